// SPDX-License-Identifier: Apache-2.0
// FlightRecorder: the last operations of this process that may have to wait for another rank, a disk or data,
// in a ring that is always on: an entry takes about 0.1 us, no lock and no memory. It lies in memory that the
// other ranks of a host can map, so that they know what a rank did last when it is stopped or dead. Like the
// log there is one of a process.
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

/// What an operation waits for: `collective` for the other ranks of its communicator; `patient` too, while
/// one of them does work that may take any time; `message` for one rank; `queued` is a collective that was
/// given to a GPU, `graph` all that a step gives to it; `file` for a disk, `data` for the next batch,
/// `driver` for a GPU's driver.
enum class OperationKind : uint8_t { collective, patient, message, queued, graph, file, data, driver };

/// Names of operations that others than the ones who enter them look for.
namespace operation_name {
inline constexpr const char *read_samples = "read samples", *write = "write",
                            *copy_checkpoint = "copy a checkpoint";
}

/// An entry of the ring. Texts are cut off where they are too long: names at their ends, places at their
/// beginnings.
struct Operation {
    int64_t sequence = 0;  ///< of its line and kind, from 1: ranks number a communicator's collectives alike
    int64_t bytes = 0;
    double began = 0;      ///< steady_seconds(), which the processes of a host share
    double ended = 0;      ///< 0: under way
    bool reached = true;   ///< false: it waits in a GPU's queue
    double allowance = 0;  ///< seconds that it may take besides what any operation may
    int32_t line = -1;     ///< number of its line; -1: none
    int32_t thread = 0;    ///< as the system numbers it; the main thread's is the process's
    int32_t peer = -1;     ///< of a message: the other rank, as the communicator numbers it
    int32_t source_line = 0;
    OperationKind kind = OperationKind::collective;
    std::array<char, 31> name = {};
    std::array<char, 48> place = {};  ///< source file, or the file that is read or written

    bool under_way() const { return ended == 0; }
};

/// What operations are numbered by: a communicator, the files.
struct OperationLine {
    std::array<char, 48> name = {};
    uint64_t id = 0;  ///< the same on all ranks of a communicator, and of no other
    int32_t rank = 0, size = 1;
    int64_t collectives = 0, messages = 0;  ///< entered until now

    bool operator==(const OperationLine&) const = default;
};

/// For tests: comes between an operation and its work.
class OperationFault {
public:
    virtual ~OperationFault() = default;
    /// True: as if this rank had never come to it.
    virtual bool leaves_out(const char* operation, OperationKind kind) = 0;
    /// It has been entered and has not begun.
    virtual void entered(const char* operation, OperationKind kind) = 0;
};

class FlightRecorder {
public:
    static constexpr int remembered = 1024;
    class Line;

    /// Of this process.
    static FlightRecorder& own();
    /// Of another process of this host, by what it gets from pid() and descriptor(); it stays when that ends.
    /// Null where it cannot be had.
    static std::unique_ptr<FlightRecorder> of(int64_t pid, int descriptor);
    ~FlightRecorder();
    FlightRecorder(const FlightRecorder&) = delete;
    FlightRecorder& operator=(const FlightRecorder&) = delete;

    /// Enters an operation of a line (null: of none) and returns what end() gets. `place`: a file's name.
    int begin(const Line* line, OperationKind kind, const char* name, int64_t bytes, std::string_view place,
              int source_line = 0, int peer = -1, double allowance = 0);
    void end(int entry);
    /// A GPU has come to this `queued` operation.
    void reach(int entry);
    /// An operation that is not entered: those behind it have the numbers that other ranks give them.
    void pass_over(const Line& line);

    /// Those of the ring, the oldest first.
    std::vector<Operation> operations() const;
    /// By number; what is gone stays until its number is used again, which is when all others were.
    std::vector<OperationLine> lines() const;

    int64_t pid() const;
    int descriptor() const { return descriptor_; }
    /// What processes of a host tell each other besides; 0 at first.
    struct Notes {
        std::atomic<int64_t> step;   ///< that is under way
        std::atomic<int64_t> event;  ///< number of the last event of a watchdog that it should look for
        std::atomic<int64_t> left;   ///< 1: has ended its work in order
    };
    Notes& notes() const;

    /// Null: nobody comes between.
    void set_fault(OperationFault* fault) { fault_ = fault; }
    OperationFault* fault() const { return fault_.load(std::memory_order_relaxed); }

private:
    struct Memory;
    FlightRecorder(Memory* memory, int descriptor) : memory_(memory), descriptor_(descriptor) {}
    Memory* memory_;
    int descriptor_ = -1;
    std::atomic<OperationFault*> fault_ = nullptr;
};

/// A line of the process's recorder, as long as it lives. Where there are too many it has no number.
class FlightRecorder::Line {
public:
    Line() = default;
    /// `kind_of_id`: lines that are made in the same order by the same ranks with the same value belong
    /// together.
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

/// An operation from here to the end of the scope.
class Recorded {
public:
    Recorded(const FlightRecorder::Line& line, OperationKind kind, const char* name, int64_t bytes,
             const std::source_location& where, int peer = -1);
    /// Of a file: it may take a second for each 10 MiB besides what any operation may.
    Recorded(const char* name, int64_t bytes, std::string_view path);
    /// Of no communicator: a wait for data or a driver.
    Recorded(OperationKind kind, const char* name, const std::source_location& where);
    ~Recorded();
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;

    /// A test wants that it is not done.
    bool left_out() const { return left_out_; }

private:
    void enter(const FlightRecorder::Line* line, OperationKind kind, const char* name, int64_t bytes,
               std::string_view place, int source_line, int peer, double allowance);
    int entry_ = -1;
    bool left_out_ = false;
};

}  // namespace coeus
