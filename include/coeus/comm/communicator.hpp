// SPDX-License-Identifier: Apache-2.0
// Communicator: the ranks along one axis (or a product of axes) of the mesh, for one purpose.
//
//   all_reduce        rank 0 [a0 a1]  rank 1 [b0 b1]   ->  both [a0+b0 a1+b1]
//   reduce_scatter    rank 0 [a0 a1]  rank 1 [b0 b1]   ->  0: [a0+b0]   1: [a1+b1]
//   all_gather        rank 0 [a]      rank 1 [b]       ->  both [a b]
//   all_to_all        rank 0 [a0 a1]  rank 1 [b0 b1]   ->  0: [a0 b0]   1: [a1 b1]
//
// Sums are taken in the order of the ranks, whatever arrives first, in the tensor's type (bf16: summed in
// f32), so that a run is repeatable bit by bit. Every call is collective and must be made in the same order
// by all ranks.
//
// With an Exec, operands are in the memory of its device, and on a GPU the call is work of its queue; without
// one they are the host's. NCCL carries a GPU's tensors after connect(), and sums in an order of its own;
// else they go by pinned host memory and have the host's bits.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/device/exec.hpp"

#include <memory>
#include <source_location>
#include <string>

namespace coeus {

enum class Reduce : uint8_t { sum, max };

/// Sees every collective and message, on the thread that makes it, on a GPU where it is given to a queue.
class CommunicationObserver {
public:
    virtual ~CommunicationObserver() = default;
    /// `bytes`: of this rank's largest operand; `queue`: that it is work of, null where it is the host's.
    /// Returns what end() gets.
    virtual int64_t begin(const std::string& communicator, const char* operation, int64_t bytes,
                          const std::source_location& where, const Queue* queue) = 0;
    virtual void end(int64_t event) = 0;
};

class NcclWorld;
class Transport;

class Communicator {
    using Where = std::source_location;

public:
    struct Handle;  ///< the MPI communicator; known in src/comm alone

    /// Takes the handle over. `name` is what messages call it: "dp_replicate x dp_shard".
    Communicator(std::unique_ptr<Handle> handle, std::string name);
    /// The whole MPI world, on a communicator of its own.
    static Communicator world(const std::string& name);
    /// One process alone; needs no MPI at all.
    static Communicator self();
    /// For planning: as if there were so many ranks. Collectives do nothing.
    static Communicator planned(int rank, int size, const std::string& name);
    ~Communicator();
    Communicator(Communicator&&) noexcept;
    Communicator& operator=(Communicator&&) noexcept;

    int rank() const { return rank_; }
    /// What one call of MPI carries at most, of the process; larger tensors go in several. 1 GiB unless a
    /// test sets less, on every rank alike.
    static void set_largest_message(int64_t bytes);

    int size() const { return size_; }
    const std::string& name() const { return name_; }
    bool is_planned() const { return planned_; }
    /// From now on; null: nobody. The observer is borrowed.
    void observe(CommunicationObserver* observer) { observer_ = observer; }
    CommunicationObserver* observer() const { return observer_; }
    const Handle& handle() const { return *handle_; }

    /// In place over dense tensors of equal shape: f64, f32, bf16, i32, i64.
    void all_reduce(Tensor inout, Reduce op = Reduce::sum, Where where = Where::current()) const;
    /// Scalars; the same bits on every rank.
    double all_reduce(double value, Reduce op = Reduce::sum, Where where = Where::current()) const;
    int64_t all_reduce(int64_t value, Reduce op = Reduce::sum, Where where = Where::current()) const;
    /// out has size() times the elements of in, in the order of the ranks; in may be this rank's part of out.
    void all_gather(Tensor out, Tensor in, Where where = Where::current()) const;
    /// in has size() times the elements of out; out may be this rank's part of in.
    void reduce_scatter(Tensor out, Tensor in, Where where = Where::current()) const;
    /// Part p of `in` goes to rank p; part p of `out` comes from rank p. Dense, of equal count.
    void all_to_all(Tensor out, Tensor in, Where where = Where::current()) const;
    /// `sent` goes to one rank while `received` comes from another; every rank's partners do the same. Dense.
    void send_receive(Tensor sent, int to, Tensor received, int from, Where where = Where::current()) const;
    void broadcast(Tensor inout, int root, Where where = Where::current()) const;

    /// Tensors of the GPU, and messages of its PointToPoints to come, go by NCCL from now on, until `nccl`
    /// ends. Collective over the world of `nccl`; the communicator stays where it is. CollectiveError with
    /// what NCCL says where it cannot.
    void connect(NcclWorld& nccl);
    /// The same where the Exec runs; of one communicator always by the same device.
    void all_reduce(Exec& exec, Tensor inout, Where where = Where::current()) const;
    void all_gather(Exec& exec, Tensor out, Tensor in, Where where = Where::current()) const;
    void reduce_scatter(Exec& exec, Tensor out, Tensor in, Where where = Where::current()) const;
    void all_to_all(Exec& exec, Tensor out, Tensor in, Where where = Where::current()) const;
    /// Equal bytes.
    void send_receive(Exec& exec, Tensor sent, int to, Tensor received, int from,
                      Where where = Where::current()) const;
    /// Calls of this communicator by this Exec that may begin together, when the last is given: until then no
    /// other work may need what they write.
    void grouped(const Exec& exec, FunctionRef<void()> calls) const;
    void barrier(Where where = Where::current()) const;
    /// A barrier that sleeps between looks instead of spinning, for when one rank does long work and could
    /// use the cores of the others.
    void patient_barrier(Where where = Where::current()) const;

    /// Takes the memory that sums of tensors need, now rather than in the first of them.
    void prepare_sums() const;
    /// Bytes of it, with so many ranks; and what this one has at present.
    static int64_t reduction_bytes(int ranks);
    int64_t reduction_bytes() const;

    /// Splits by colour; ranks keep their order. Collective.
    Communicator split(int color, const std::string& name) const;

private:
    template <class Work>
    void perform(const char* operation, int64_t bytes, const Where& where, const Work& work) const;
    void gather(Tensor out, Tensor in) const;
    void gather_by_doubling(std::byte* all, int64_t bytes) const;
    void exchange_parts(Tensor out, Tensor in) const;
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
