// SPDX-License-Identifier: Apache-2.0
// FlightRecorder: a ring with the last operations of this process that may have to wait for another rank, a
// disk or data. It is always on: recording takes about 0.1 us, no lock and no allocation. The ring is in
// memory that the other ranks of the host can map, so that they can see what a rank did last when it is
// stopped or dead. There is one per process, as for the log.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace coeus {

/// What an operation waits for:
/// - `collective`: the other ranks of its communicator
/// - `patient`: the same, while one of these ranks does work that may take any time
/// - `message`: one other rank
/// - `queued`: the other ranks, for a collective that was submitted to a GPU
/// - `graph`: everything that a step submits to a GPU
/// - `file`: a disk
/// - `data`: the next batch
/// - `driver`: a GPU's driver
enum class OperationKind : uint8_t { collective, patient, message, queued, graph, file, data, driver };

/// Names of operations that are also looked up outside the code that records them.
namespace operation_name {
inline constexpr const char *read_samples = "read samples", *write = "write",
                            *copy_checkpoint = "copy a checkpoint";
}

/// An entry of the ring. Texts that are too long are cut: names at their end, places at their beginning.
struct Operation {
    int64_t sequence = 0;  ///< number within its line and kind, from 1; the same on all ranks for a
                           ///< collective
    int64_t bytes = 0;
    double began = 0;      ///< steady_seconds(), which all processes of a host share
    double ended = 0;      ///< 0: in progress
    bool reached = true;   ///< false: it still waits in a GPU's queue
    double allowance = 0;  ///< seconds that it may take beyond what any operation may take
    int32_t line = -1;     ///< number of its line; -1: it has none
    int32_t thread = 0;    ///< the system's thread id; the main thread has the id of the process
    int32_t peer = -1;     ///< for a message: the other rank, as the communicator numbers it
    int32_t source_line = 0;
    OperationKind kind = OperationKind::collective;
    std::array<char, 31> name = {};
    std::array<char, 48> place = {};  ///< source file, or the file that is read or written

    bool under_way() const { return ended == 0; }
};

/// A sequence of operations that are numbered together: those of one communicator.
struct OperationLine {
    std::array<char, 48> name = {};
    uint64_t id = 0;  ///< the same on all ranks of a communicator, and different for any other
    int32_t rank = 0, size = 1;
    int64_t collectives = 0, messages = 0;  ///< recorded so far

    bool operator==(const OperationLine&) const = default;
};

/// Intercepts operations before they do their work. Used to test hangs and slow ranks.
class OperationFault {
public:
    virtual ~OperationFault() = default;
    /// True: the operation is skipped, as if this rank had never reached it.
    virtual bool leaves_out(const char* operation, OperationKind kind) = 0;
    /// Called after the operation was recorded and before it does its work.
    virtual void entered(const char* operation, OperationKind kind) = 0;
};

class FlightRecorder {
public:
    static constexpr int remembered = 1024;
    class Line;

    /// The recorder of this process.
    static FlightRecorder& own();
    /// The recorder of another process of this host, given that process's pid() and descriptor(). It remains
    /// readable after the process has ended. Null if it cannot be mapped.
    static std::unique_ptr<FlightRecorder> of(int64_t pid, int descriptor);
    ~FlightRecorder();
    FlightRecorder(const FlightRecorder&) = delete;
    FlightRecorder& operator=(const FlightRecorder&) = delete;

    /// Records an operation of a line (null: of no line) and returns the entry for end(). `place` is a file's
    /// name.
    int begin(const Line* line, OperationKind kind, const char* name, int64_t bytes, std::string_view place,
              int source_line = 0, int peer = -1, double allowance = 0);
    void end(int entry);
    /// Marks a `queued` operation as reached by the GPU.
    void reach(int entry);
    /// Counts a collective that is not recorded, so that later ones have the same numbers as on the other
    /// ranks.
    void pass_over(const Line& line);

    /// The operations in the ring, the oldest first.
    std::vector<Operation> operations() const;
    /// The lines, indexed by their numbers. A line that was destroyed stays in the list until its number is
    /// used again; numbers are reused in turn.
    std::vector<OperationLine> lines() const;

    int64_t pid() const;
    int descriptor() const { return descriptor_; }
    /// Numbers that the processes of a host share besides the operations; all are 0 at first.
    struct Notes {
        std::atomic<int64_t> step;   ///< the step in progress
        std::atomic<int64_t> event;  ///< number of the last event that this process's watchdog has to handle
        std::atomic<int64_t> left;   ///< 1: the process has finished in order, so its end is not a crash
    };
    Notes& notes() const;

    /// Null: nothing intercepts operations.
    void set_fault(OperationFault* fault) { fault_ = fault; }
    OperationFault* fault() const { return fault_.load(std::memory_order_relaxed); }

private:
    struct Memory;
    FlightRecorder(Memory* memory, int descriptor) : memory_(memory), descriptor_(descriptor) {}
    Memory* memory_;
    int descriptor_ = -1;
    std::atomic<OperationFault*> fault_ = nullptr;
};

/// A line of this process's recorder while the object lives. If more than 256 exist at a time, the rest have
/// no number and their operations belong to no line.
class FlightRecorder::Line {
public:
    Line() = default;
    /// Makes a line. Lines get the same id() if their ranks make them in the same order, with the same name
    /// and size and the same `kind_of_id`.
    Line(std::string_view name, uint64_t kind_of_id, int rank, int size);
    ~Line();
    Line(Line&& other) noexcept;
    Line& operator=(Line&& other) noexcept;

    uint64_t id() const { return id_; }

private:
    friend class FlightRecorder;
    int number_ = -1;
    uint64_t id_ = 0;
};

/// Records an operation from its construction to the end of its scope.
class Recorded {
public:
    Recorded(const FlightRecorder::Line& line, OperationKind kind, const char* name, int64_t bytes,
             const std::source_location& where, int peer = -1);
    /// For a file: each 10 MiB allow it one second more than any operation may take.
    Recorded(const char* name, int64_t bytes, std::string_view path);
    /// For a wait that belongs to no communicator: for data or a driver.
    Recorded(OperationKind kind, const char* name, const std::source_location& where);
    ~Recorded();
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;

    /// True if a test wants the operation skipped.
    bool left_out() const { return left_out_; }

private:
    void enter(const FlightRecorder::Line* line, OperationKind kind, const char* name, int64_t bytes,
               std::string_view place, int source_line, int peer, double allowance);
    int entry_ = -1;
    bool left_out_ = false;
};

}  // namespace coeus
