// SPDX-License-Identifier: Apache-2.0
// Communicator: the ranks along one axis (or a product of axes) of the mesh, and their collectives.
//
//   all_reduce        rank 0 [a0 a1]  rank 1 [b0 b1]   ->  both [a0+b0 a1+b1]
//   reduce_scatter    rank 0 [a0 a1]  rank 1 [b0 b1]   ->  0: [a0+b0]   1: [a1+b1]
//   all_gather        rank 0 [a]      rank 1 [b]       ->  both [a b]
//   all_to_all        rank 0 [a0 a1]  rank 1 [b0 b1]   ->  0: [a0 b0]   1: [a1 b1]
//                     (the parts may be ranges of rows, of any length)
//
// Sums are taken in rank order, whatever arrives first, in the tensor's type (bf16 is summed in f32), so that
// a run is repeatable bit by bit. Every call is collective: all ranks must make the same calls in the same
// order.
//
// Calls with an Exec take operands in the memory of its device, and on a GPU they are work of its queue.
// Calls without an Exec take operands on the host. After connect(), NCCL carries a GPU's tensors and chooses
// its own order of summation. Otherwise they are copied through pinned host memory and give the same bits as
// on the host.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/device/exec.hpp"

#include <memory>
#include <source_location>
#include <span>
#include <string>

namespace coeus {

enum class Reduce : uint8_t { sum, max };

/// Rows [first, first + count) of a matrix.
struct RowRange {
    int64_t first = 0, count = 0;
};

/// Called for every collective and message, on the thread that makes it; on a GPU, when it is submitted to a
/// queue.
class CommunicationObserver {
public:
    virtual ~CommunicationObserver() = default;
    /// `bytes` is the size of this rank's largest operand. `queue` is the queue that the call is work of;
    /// null: the host does it. Returns the value that end() gets.
    virtual int64_t begin(const std::string& communicator, const char* operation, int64_t bytes,
                          const std::source_location& where, const Queue* queue) = 0;
    virtual void end(int64_t event) = 0;
    /// Calls from here to end_group() are one operation of a queue. Only a planned communicator tells it.
    virtual void begin_group() {}
    virtual void end_group() {}
};

class NcclWorld;
class Transport;

class Communicator {
    using Where = std::source_location;

public:
    struct Handle;  ///< the MPI communicator; defined inside src/comm

    /// Takes ownership of the handle. `name` is used in messages: "dp_replicate x dp_shard".
    Communicator(std::unique_ptr<Handle> handle, std::string name);
    /// All ranks of the MPI world, on an MPI communicator of its own.
    static Communicator world(const std::string& name);
    /// Only this process; needs no MPI.
    static Communicator self();
    /// For planning runs: acts as if there were `size` ranks. Collectives do nothing but tell the observer.
    static Communicator planned(int rank, int size, const std::string& name);
    ~Communicator();
    Communicator(Communicator&&) noexcept;
    Communicator& operator=(Communicator&&) noexcept;

    int rank() const { return rank_; }
    /// Sets the largest message in bytes that one MPI call carries, for the whole process; larger tensors are
    /// split. The default is 1 GiB. Tests set less, the same on every rank.
    static void set_largest_message(int64_t bytes);

    int size() const { return size_; }
    const std::string& name() const { return name_; }
    bool is_planned() const { return planned_; }
    /// Sets the observer, which is borrowed; null: none.
    void observe(CommunicationObserver* observer) { observer_ = observer; }
    CommunicationObserver* observer() const { return observer_; }
    const Handle& handle() const { return *handle_; }

    /// Reduces in place. Tensors are dense, have the same shape on every rank, and are f64, f32, bf16, i32 or
    /// i64.
    void all_reduce(Tensor inout, Reduce op = Reduce::sum, Where where = Where::current()) const;
    /// Reduces one number; the result has the same bits on every rank.
    double all_reduce(double value, Reduce op = Reduce::sum, Where where = Where::current()) const;
    int64_t all_reduce(int64_t value, Reduce op = Reduce::sum, Where where = Where::current()) const;
    /// `out` has size() times the elements of `in`, in rank order. `in` may be this rank's part of `out`.
    void all_gather(Tensor out, Tensor in, Where where = Where::current()) const;
    /// `in` has size() times the elements of `out`. `out` may be this rank's part of `in`.
    void reduce_scatter(Tensor out, Tensor in, Where where = Where::current()) const;
    /// Part p of `in` goes to rank p, and part p of `out` comes from rank p. Both are dense and have equal
    /// counts.
    void all_to_all(Tensor out, Tensor in, Where where = Where::current()) const;
    /// Rows from[p] of `in` go to rank p, and rows to[p] of `out` come from rank p. Both tensors are dense
    /// and have equal columns. from[p].count here equals to[q].count on rank p, if this is rank q; if it
    /// is 0, no message is sent. A range of `out` overlaps no other range of `out` or `in`. A planned
    /// communicator does not look at the ranges.
    void all_to_all(Tensor out, std::span<const RowRange> to, Tensor in, std::span<const RowRange> from,
                    Where where = Where::current()) const;
    /// Sends `sent` to one rank while `received` arrives from another; all ranks call it with matching
    /// partners. Both are dense.
    void send_receive(Tensor sent, int to, Tensor received, int from, Where where = Where::current()) const;
    void broadcast(Tensor inout, int root, Where where = Where::current()) const;

    /// Connects the ranks by NCCL. From then on until `nccl` is destroyed, NCCL carries tensors on the GPU
    /// and the messages of PointToPoints that are made later. Collective over the world of `nccl`. The
    /// communicator must not be moved afterwards. CollectiveError with NCCL's reason if the ranks cannot be
    /// connected.
    void connect(NcclWorld& nccl, int max_ctas = 0);
    /// The same collectives, where the Exec runs. A communicator must always be used with the same device.
    void all_reduce(Exec& exec, Tensor inout, Reduce op = Reduce::sum, Where where = Where::current()) const;
    void all_gather(Exec& exec, Tensor out, Tensor in, Where where = Where::current()) const;
    void reduce_scatter(Exec& exec, Tensor out, Tensor in, Where where = Where::current()) const;
    void all_to_all(Exec& exec, Tensor out, Tensor in, Where where = Where::current()) const;
    /// The ranges are read before it returns; a recorded graph repeats them.
    void all_to_all(Exec& exec, Tensor out, std::span<const RowRange> to, Tensor in,
                    std::span<const RowRange> from, Where where = Where::current()) const;
    /// `sent` and `received` have the same size in bytes.
    void send_receive(Exec& exec, Tensor sent, int to, Tensor received, int from,
                      Where where = Where::current()) const;
    /// Groups the collectives that `calls` makes with this communicator and this Exec. They may all begin
    /// when the last one is submitted, so no other work may need their results before grouped() returns.
    void grouped(const Exec& exec, FunctionRef<void()> calls) const;
    void barrier(Where where = Where::current()) const;
    /// A barrier that sleeps between tests instead of spinning: for when one rank does long work and could
    /// use the cores of the other ranks.
    void patient_barrier(Where where = Where::current()) const;

    /// Allocates the memory for sums of tensors now, rather than at the first sum.
    void prepare_sums() const;
    /// Bytes of that memory: for a given number of ranks, and what this communicator has allocated so far.
    static int64_t reduction_bytes(int ranks);
    int64_t reduction_bytes() const;

    /// Splits the ranks by colour into new communicators; the ranks keep their order. Collective.
    Communicator split(int color, const std::string& name) const;

private:
    template <class Work>
    void perform(const char* operation, int64_t bytes, const Where& where, const Work& work) const;
    void plan(const char* operation, int64_t bytes, const Where& where, const Queue* queue = nullptr) const;
    void gather(Tensor out, Tensor in) const;
    void gather_by_doubling(std::byte* all, int64_t bytes) const;
    using PartOf = FunctionRef<Tensor(int)>;
    void exchange_parts(PartOf out, PartOf in) const;
    void check_ranges(Tensor out, std::span<const RowRange> to, Tensor in,
                      std::span<const RowRange> from) const;
    void reduce_piece(Tensor out, Tensor in, int64_t first, int64_t stride) const;
    void sum_by_pieces(Tensor inout) const;
    void largest(Tensor inout) const;
    Transport& transport(const Exec& exec) const;
    using Exchange = void (Transport::*)(Queue& queue, Tensor out, Tensor in, Where where);
    void carry(Exec& exec, Exchange exchange, Tensor out, Tensor in, Where where) const;
    std::unique_ptr<Handle> handle_;
    std::string name_;
    int rank_ = 0, size_ = 1;
    bool planned_ = false;
    CommunicationObserver* observer_ = nullptr;
};

/// Communicator::self(), made once.
const Communicator& alone();

}  // namespace coeus
