// SPDX-License-Identifier: Apache-2.0
// Collectives over MPI. Coeus sums tensors itself: large reductions of MPI allocate temporaries in each call
// and leave the order of summation open. Exchanging pieces of 256 KiB with each peer and summing them in rank
// order is several times faster.
#include "coeus/comm/communicator.hpp"

#include "coeus/base/flight_recorder.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "communicator_handle.hpp"
#include "wait.hpp"
#include "world_line.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace coeus {

namespace {

int64_t max_message_bytes = int64_t(1) << 30;  // counts in MPI 3 are int
constexpr int64_t few_bytes = 1024;            // from each rank: for less, sending takes longer than reading

int as_count(int64_t bytes) {
    require(bytes >= 0 && bytes <= max_message_bytes, "message too large for one MPI call");
    return int(bytes);
}

// out = sum of the P pieces in rank order. `own` is this rank's piece; rank r's is in staging at [r *
// stride].
template <class T, class Accumulator>
void sum_pieces(T* out, const std::byte* staging, int64_t stride, const T* own, int own_rank, int ranks,
                int64_t count) {
    constexpr int64_t block = 256;
    Accumulator acc[block];
    for (int64_t first = 0; first < count; first += block) {
        const int64_t n = std::min(block, count - first);
        for (int r = 0; r < ranks; ++r) {
            const T* piece = (r == own_rank ? own : reinterpret_cast<const T*>(staging + r * stride)) + first;
            if (r == 0)
                for (int64_t i = 0; i < n; ++i) acc[i] = Accumulator(piece[i]);
            else
                for (int64_t i = 0; i < n; ++i) acc[i] += Accumulator(piece[i]);
        }
        for (int64_t i = 0; i < n; ++i) out[first + i] = T(acc[i]);
    }
}

void sum_pieces(Tensor out, const std::byte* staging, int64_t stride, Tensor own, int own_rank, int ranks) {
    const int64_t n = out.count();
    switch (out.dtype) {
        case Dtype::f64:
            return sum_pieces<double, double>(out.as<double>(), staging, stride, own.as<double>(), own_rank,
                                              ranks, n);
        case Dtype::f32:
            return sum_pieces<float, float>(out.as<float>(), staging, stride, own.as<float>(), own_rank,
                                            ranks, n);
        case Dtype::bf16:
            return sum_pieces<bf16, float>(out.as<bf16>(), staging, stride, own.as<bf16>(), own_rank, ranks,
                                           n);
        case Dtype::i32:
            return sum_pieces<int32_t, int32_t>(out.as<int32_t>(), staging, stride, own.as<int32_t>(),
                                                own_rank, ranks, n);
        case Dtype::i64:
            return sum_pieces<int64_t, int64_t>(out.as<int64_t>(), staging, stride, own.as<int64_t>(),
                                                own_rank, ranks, n);
        default: throw LogicError("this element type cannot be summed");
    }
}

MPI_Datatype mpi_type(Dtype t) {
    switch (t) {
        case Dtype::f64: return MPI_DOUBLE;
        case Dtype::f32: return MPI_FLOAT;
        case Dtype::i32: return MPI_INT32_T;
        case Dtype::i64: return MPI_INT64_T;
        default: throw LogicError("MPI has no such element type");
    }
}

// Elements [first, first + count) of a dense tensor, as a vector.
Tensor part(Tensor t, int64_t first, int64_t count) {
    return t.reshape({t.count()}).slice_rows(first, count);
}

// Reduces by MPI's own algorithm (a tree), for operations whose result does not depend on the order.
void reduce_by_mpi(Tensor inout, MPI_Op op, MPI_Comm comm) {
    const int64_t piece = max_message_bytes / size_of(inout.dtype);
    for (int64_t first = 0; first < inout.count(); first += piece) {
        const int64_t n = std::min(piece, inout.count() - first);
        COEUS_CHECK_MPI(
            MPI_Allreduce(MPI_IN_PLACE, part(inout, first, n).data, int(n), mpi_type(inout.dtype), op, comm));
    }
}

}  // namespace

int64_t larger_bytes(Tensor t, std::span<const RowRange> to, std::span<const RowRange> from) {
    const auto rows = [](std::span<const RowRange> ranges) {
        int64_t sum = 0;
        for (const RowRange& range : ranges) sum += range.count;
        return sum;
    };
    return std::max(rows(to), rows(from)) * t.cols() * size_of(t.dtype);
}

std::span<std::byte> piece_of(Tensor t, int64_t first, int64_t most) {
    const std::span all(static_cast<std::byte*>(t.data), size_t(t.bytes()));
    const std::span rest = all.subspan(std::min(size_t(first), all.size()));
    return rest.first(std::min(rest.size(), size_t(most)));
}

Communicator::Communicator(std::unique_ptr<Handle> handle, std::string name)
    : handle_(std::move(handle)), name_(std::move(name)) {
    if (handle_->comm == MPI_COMM_NULL) return;
    COEUS_CHECK_MPI(MPI_Comm_rank(handle_->comm, &rank_));
    COEUS_CHECK_MPI(MPI_Comm_size(handle_->comm, &size_));
    COEUS_CHECK_MPI(MPI_Comm_set_errhandler(handle_->comm, MPI_ERRORS_RETURN));
    if (size_ > 1) handle_->line = FlightRecorder::Line(name_, handle_->origin, rank_, size_);
}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

Communicator Communicator::world(const std::string& name) {
    const Recorded recorded(world_line(), OperationKind::collective, "make_communicator", 0,
                            std::source_location::current());
    MPI_Comm comm = MPI_COMM_NULL;
    COEUS_CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    return {std::make_unique<Handle>(comm), name};
}

Communicator Communicator::self() {
    return {std::make_unique<Handle>(MPI_COMM_NULL), "self"};
}

Communicator Communicator::planned(int rank, int size, const std::string& name) {
    Communicator c(std::make_unique<Handle>(MPI_COMM_NULL), name);
    c.rank_ = rank;
    c.size_ = size;
    c.planned_ = true;
    return c;
}

const Communicator& alone() {
    static const Communicator self = Communicator::self();
    return self;
}

Communicator Communicator::split(int color, const std::string& name) const {
    if (handle_->comm == MPI_COMM_NULL) return {std::make_unique<Handle>(MPI_COMM_NULL), name};
    const Recorded recorded(handle_->line, OperationKind::collective, "split", 0,
                            std::source_location::current());
    MPI_Comm comm = MPI_COMM_NULL;
    COEUS_CHECK_MPI(MPI_Comm_split(handle_->comm, color, rank_, &comm));
    const uint64_t split = handle_->line.id() + ++handle_->splits;
    return {std::make_unique<Handle>(comm, split * 1'000'003 + uint64_t(color)), name};
}

void Communicator::prepare_sums() const {
    if (size_ > 1 && !planned_) handle_->pieces();
}

int64_t Communicator::reduction_bytes(int ranks) {
    return ranks == 1 ? 0 : Handle::bytes_from_each(ranks) * ranks;
}

int64_t Communicator::reduction_bytes() const {
    return handle_->staging.bytes();
}

// out (at most one piece) = sum over ranks of `in` at [first + rank * stride]; each rank owns one such part.
void Communicator::reduce_piece(Tensor out, Tensor in, int64_t first, int64_t stride) const {
    const int64_t n = out.count(), bytes = out.bytes();
    const auto part_of = [&](int peer) { return part(in, first + peer * stride, n); };
    auto& requests = handle_->requests;
    requests.clear();
    for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        COEUS_CHECK_MPI(MPI_Irecv(handle_->pieces() + peer * bytes, as_count(bytes), MPI_BYTE, peer, 0,
                                  handle_->comm, &requests.emplace_back()));
    }
    for (int step = 1; step < size_; ++step) {
        const int peer = (rank_ + step) % size_;  // spreads the load: no rank is the first peer of all others
        COEUS_CHECK_MPI(MPI_Isend(part_of(peer).data, as_count(bytes), MPI_BYTE, peer, 0, handle_->comm,
                                  &requests.emplace_back()));
    }
    wait_all(requests);
    sum_pieces(out, handle_->pieces(), bytes, part_of(rank_), rank_, size_);
}

// Records the operation, tells the observer, if there is one, and does the work.
template <class Work>
void Communicator::perform(const char* operation, int64_t bytes, const Where& where, const Work& work) const {
    if (size_ == 1) return work();
    const Recorded recorded(handle_->line, OperationKind::collective, operation, bytes, where);
    if (recorded.left_out()) return;
    struct Observed {
        CommunicationObserver* observer;
        int64_t event;
        ~Observed() {
            if (observer) observer->end(event);
        }
    };
    const Observed observed{observer_,
                            observer_ ? observer_->begin(name_, operation, bytes, where, nullptr) : 0};
    work();
}

// What a planned communicator does instead of an operation: only the observer is told.
void Communicator::plan(const char* operation, int64_t bytes, const Where& where, const Queue* queue) const {
    if (observer_ && size_ > 1) observer_->end(observer_->begin(name_, operation, bytes, where, queue));
}

void Communicator::reduce_scatter(Tensor out, Tensor in, Where where) const {
    require(in.count() == out.count() * size_ && in.dtype == out.dtype,
            "reduce_scatter: counts or types do not match");
    if (planned_) return plan("reduce_scatter", in.bytes(), where);
    if (size_ == 1 && out.data == in.data) return;
    perform("reduce_scatter", in.bytes(), where, [&] {
        const int64_t piece = handle_->piece_bytes / size_of(out.dtype);
        for (int64_t first = 0; first < out.count(); first += piece)
            reduce_piece(part(out, first, std::min(piece, out.count() - first)), in, first, out.count());
    });
}

void Communicator::all_reduce(Tensor inout, Reduce op, Where where) const {
    if (size_ == 1 || inout.count() == 0) return;
    if (planned_) return plan("all_reduce", inout.bytes(), where);
    perform("all_reduce", inout.bytes(), where, [&] {
        const bool counts = inout.dtype == Dtype::i32 || inout.dtype == Dtype::i64;
        if (op == Reduce::max)
            largest(inout);
        else if (counts)
            reduce_by_mpi(inout, MPI_SUM, handle_->comm);
        else
            sum_by_pieces(inout);
    });
}

void Communicator::largest(Tensor inout) const {
    reduce_by_mpi(inout, MPI_MAX, handle_->comm);
}

// Reduces and gathers window by window, so that the sum is still in the cache when it is gathered.
void Communicator::sum_by_pieces(Tensor inout) const {
    const int64_t piece = handle_->piece_bytes / size_of(inout.dtype);
    int64_t first = 0;
    while (first < inout.count()) {
        const int64_t each = std::min(piece, (inout.count() - first) / size_);
        if (each == 0) break;
        Tensor window = part(inout, first, each * size_);
        Tensor own = part(window, rank_ * each, each);
        reduce_piece(own, window, 0, each);
        gather(window, own);
        first += each * size_;
    }
    // fewer elements than ranks are left: every rank sums all of them
    for (; first < inout.count(); first += piece) {
        const Tensor rest = part(inout, first, std::min(piece, inout.count() - first));
        auto* all = rest.bytes() <= int64_t(sizeof(int64_t))
                        ? reinterpret_cast<std::byte*>(handle_->numbers.data())
                        : handle_->pieces();
        std::memcpy(all + rank_ * rest.bytes(), rest.data, size_t(rest.bytes()));
        gather_by_doubling(all, rest.bytes());
        sum_pieces(rest, all, rest.bytes(), rest, rank_, size_);
    }
}

double Communicator::all_reduce(double value, Reduce op, Where where) const {
    all_reduce(Tensor(&value, Dtype::f64, {1}), op, where);
    return value;
}

int64_t Communicator::all_reduce(int64_t value, Reduce op, Where where) const {
    all_reduce(Tensor(&value, Dtype::i64, {1}), op, where);
    return value;
}

void Communicator::set_largest_message(int64_t bytes) {
    require(bytes >= 8 && bytes <= int64_t(1) << 30, "a message has 8 bytes to 1 GiB");
    max_message_bytes = bytes;
}

void Communicator::all_gather(Tensor out, Tensor in, Where where) const {
    require(out.count() == in.count() * size_ && in.dtype == out.dtype,
            "all_gather: counts or types do not match");
    if (planned_) return plan("all_gather", out.bytes(), where);
    perform("all_gather", out.bytes(), where, [&] { gather(out, in); });
}

void Communicator::gather(Tensor out, Tensor in) const {
    void* own = part(out, rank_ * in.count(), in.count()).data;
    if (own != in.data) std::memcpy(own, in.data, size_t(in.bytes()));
    if (in.bytes() <= few_bytes) return gather_by_doubling(static_cast<std::byte*>(out.data), in.bytes());
    const int64_t piece = max_message_bytes / size_of(in.dtype);
    for (int64_t first = 0; first < in.count() && size_ > 1; first += piece) {
        const int64_t n = std::min(piece, in.count() - first);
        auto& requests = handle_->requests;
        requests.clear();
        for (int step = 1; step < size_; ++step) {
            const int peer = (rank_ + size_ - step) % size_;
            const Tensor from = part(out, peer * in.count() + first, n);
            COEUS_CHECK_MPI(MPI_Irecv(from.data, as_count(from.bytes()), MPI_BYTE, peer, 1, handle_->comm,
                                      &requests.emplace_back()));
        }
        const Tensor sent = part(out, rank_ * in.count() + first, n);
        for (int step = 1; step < size_; ++step)
            COEUS_CHECK_MPI(MPI_Isend(sent.data, as_count(sent.bytes()), MPI_BYTE, (rank_ + step) % size_, 1,
                                      handle_->comm, &requests.emplace_back()));
        wait_all(requests);
    }
}

// Gathers in log2(n) messages of at most n/2 ranks' bytes (Bruck et al. 1997, section 3). A rank has first
// its own bytes, then those of the 2, 4, 8, ... ranks that begin with itself.
void Communicator::gather_by_doubling(std::byte* all, int64_t bytes) const {
    std::memmove(all, all + rank_ * bytes, size_t(bytes));
    for (int have = 1; have < size_; have *= 2) {
        const int more = as_count(std::min(have, size_ - have) * bytes);
        std::array<MPI_Request, 2> requests;
        COEUS_CHECK_MPI(MPI_Irecv(all + have * bytes, more, MPI_BYTE, (rank_ + have) % size_, 4,
                                  handle_->comm, &requests[0]));
        COEUS_CHECK_MPI(
            MPI_Isend(all, more, MPI_BYTE, (rank_ + size_ - have) % size_, 4, handle_->comm, &requests[1]));
        wait_all(requests);
    }
    std::rotate(all, all + (size_ - rank_) % size_ * bytes, all + size_ * bytes);
}

void Communicator::all_to_all(Tensor out, Tensor in, Where where) const {
    require(out.count() == in.count() && out.count() % size_ == 0 && in.dtype == out.dtype && in.dense() &&
                out.dense(),
            "all_to_all: counts or types do not match, or rows are apart");
    if (planned_) return plan("all_to_all", in.bytes(), where);
    perform("all_to_all", in.bytes(), where, [&] {
        const int64_t each = in.count() / size_;
        exchange_parts([&](int peer) { return part(out, peer * each, each); },
                       [&](int peer) { return part(in, peer * each, each); });
    });
}

void Communicator::all_to_all(Tensor out, std::span<const RowRange> to, Tensor in,
                              std::span<const RowRange> from, Where where) const {
    if (planned_) return plan("all_to_all", in.bytes(), where);
    check_ranges(out, to, in, from);
    perform("all_to_all", larger_bytes(in, to, from), where, [&] {
        exchange_parts([&](int peer) { return rows_of(out, to[size_t(peer)]); },
                       [&](int peer) { return rows_of(in, from[size_t(peer)]); });
    });
}

void Communicator::check_ranges(Tensor out, std::span<const RowRange> to, Tensor in,
                                std::span<const RowRange> from) const {
    require(in.dtype == out.dtype && in.cols() == out.cols() && in.dense() && out.dense(),
            "all_to_all: columns or types do not match, or rows are apart");
    require(int(to.size()) == size_ && int(from.size()) == size_, "all_to_all: each rank has two ranges");
    for (const RowRange& range : to) rows_of(out, range);  // throws if there are no such rows
    for (const RowRange& range : from) rows_of(in, range);
    require(to[size_t(rank_)].count == from[size_t(rank_)].count,
            "all_to_all: a rank keeps as many rows as it has for itself");
}

// Exchanges with each rank a dense part of two tensors. Its size is the same at both ends.
void Communicator::exchange_parts(PartOf out, PartOf in) const {
    const Tensor kept = in(rank_);
    if (kept.bytes() > 0) std::memcpy(out(rank_).data, kept.data, size_t(kept.bytes()));
    int64_t most = 0;
    for (int step = 1; step < size_; ++step) {
        const int peer = (rank_ + step) % size_;
        most = std::max({most, out(peer).bytes(), in(peer).bytes()});
    }
    for (int64_t first = 0; first < most; first += max_message_bytes) {
        auto& requests = handle_->requests;
        requests.clear();
        for (int step = 1; step < size_; ++step) {
            const int peer = (rank_ + size_ - step) % size_;
            if (const auto piece = piece_of(out(peer), first, max_message_bytes); !piece.empty())
                COEUS_CHECK_MPI(MPI_Irecv(piece.data(), int(piece.size()), MPI_BYTE, peer, 2, handle_->comm,
                                          &requests.emplace_back()));
        }
        for (int step = 1; step < size_; ++step) {
            const int peer = (rank_ + step) % size_;
            if (const auto piece = piece_of(in(peer), first, max_message_bytes); !piece.empty())
                COEUS_CHECK_MPI(MPI_Isend(piece.data(), int(piece.size()), MPI_BYTE, peer, 2, handle_->comm,
                                          &requests.emplace_back()));
        }
        wait_all(requests);
    }
}

void Communicator::send_receive(Tensor sent, int to, Tensor received, int from, Where where) const {
    require(sent.dense() && received.dense(), "messages need dense rows");
    if (planned_) return plan("send_receive", sent.bytes(), where);
    perform("send_receive", sent.bytes(), where, [&] {
        for (int64_t first = 0; first < std::max(sent.bytes(), received.bytes());
             first += max_message_bytes) {
            const auto coming = piece_of(received, first, max_message_bytes),
                       going = piece_of(sent, first, max_message_bytes);
            std::array<MPI_Request, 2> requests;
            COEUS_CHECK_MPI(
                MPI_Irecv(coming.data(), int(coming.size()), MPI_BYTE, from, 3, handle_->comm, &requests[0]));
            COEUS_CHECK_MPI(
                MPI_Isend(going.data(), int(going.size()), MPI_BYTE, to, 3, handle_->comm, &requests[1]));
            wait_all(requests);
        }
    });
}

// Makes the staged transport at the first call if nothing is connected. By then the Communicator is where it
// stays; moving it would leave the transport with a dangling reference.
Transport& Communicator::transport(const Exec& exec) const {
    if (!handle_->transport) handle_->transport = make_staged_transport(*this, *exec.device);
    return *handle_->transport;
}

void Communicator::connect(NcclWorld& nccl, int max_ctas) {
    if (auto connection = nccl.connect(*this, max_ctas))
        handle_->transport = make_nccl_transport(*this, std::move(connection));
}

void Communicator::grouped(const Exec& exec, FunctionRef<void()> calls) const {
    if (exec.is_synchronous() || size_ == 1) return calls();
    if (!planned_) return transport(exec).grouped(calls);
    if (observer_) observer_->begin_group();
    calls();
    if (observer_) observer_->end_group();
}

void Communicator::all_reduce(Exec& exec, Tensor inout, Reduce op, Where where) const {
    if (exec.is_synchronous()) return all_reduce(inout, op, where);
    if (size_ == 1 || inout.count() == 0) return;
    if (planned_) return plan("all_reduce", inout.bytes(), where, exec.queue.get());
    transport(exec).all_reduce(*exec.queue, inout, op, where);
}

// Submits the exchange to the Exec's queue. With one rank, `out` gets a copy of `in`.
void Communicator::carry(Exec& exec, Exchange exchange, Tensor out, Tensor in, Where where) const {
    if (size_ == 1 && out.data == in.data) return;
    if (size_ == 1) return exec.queue->copy(out.data, in.data, in.bytes());
    (transport(exec).*exchange)(*exec.queue, out, in, where);
}

void Communicator::all_gather(Exec& exec, Tensor out, Tensor in, Where where) const {
    if (exec.is_synchronous()) return all_gather(out, in, where);
    require(out.count() == in.count() * size_ && in.dtype == out.dtype,
            "all_gather: counts or types do not match");
    if (planned_) return plan("all_gather", out.bytes(), where, exec.queue.get());
    carry(exec, &Transport::all_gather, out, in, where);
}

void Communicator::reduce_scatter(Exec& exec, Tensor out, Tensor in, Where where) const {
    if (exec.is_synchronous()) return reduce_scatter(out, in, where);
    require(in.count() == out.count() * size_ && in.dtype == out.dtype,
            "reduce_scatter: counts or types do not match");
    if (planned_) return plan("reduce_scatter", in.bytes(), where, exec.queue.get());
    carry(exec, &Transport::reduce_scatter, out, in, where);
}

void Communicator::all_to_all(Exec& exec, Tensor out, Tensor in, Where where) const {
    if (exec.is_synchronous()) return all_to_all(out, in, where);
    require(in.count() == out.count() && in.count() % size_ == 0 && in.dtype == out.dtype,
            "all_to_all: counts or types do not match");
    if (planned_) return plan("all_to_all", in.bytes(), where, exec.queue.get());
    carry(exec, &Transport::all_to_all, out, in, where);
}

void Communicator::all_to_all(Exec& exec, Tensor out, std::span<const RowRange> to, Tensor in,
                              std::span<const RowRange> from, Where where) const {
    if (exec.is_synchronous()) return all_to_all(out, to, in, from, where);
    if (planned_) return plan("all_to_all", in.bytes(), where, exec.queue.get());
    check_ranges(out, to, in, from);
    if (size_ > 1) return transport(exec).all_to_all(*exec.queue, out, to, in, from, where);
    const Tensor kept = rows_of(in, from[0]);
    exec.queue->copy(rows_of(out, to[0]).data, kept.data, kept.bytes());
}

void Communicator::send_receive(Exec& exec, Tensor sent, int to, Tensor received, int from,
                                Where where) const {
    if (exec.is_synchronous()) return send_receive(sent, to, received, from, where);
    require(sent.dense() && received.dense() && sent.bytes() == received.bytes(),
            "messages of a device need dense rows and equal sizes");
    if (planned_) return plan("send_receive", sent.bytes(), where, exec.queue.get());
    transport(exec).send_receive(*exec.queue, sent, to, received, from, where);
}

void Communicator::broadcast(Tensor inout, int root, Where where) const {
    if (planned_ || size_ == 1) return;
    require(inout.dense(), "broadcast needs dense rows");
    perform("broadcast", inout.bytes(), where, [&] {
        auto* bytes = static_cast<std::byte*>(inout.data);
        for (int64_t first = 0; first < inout.bytes(); first += max_message_bytes) {
            const int64_t n = std::min(max_message_bytes, inout.bytes() - first);
            COEUS_CHECK_MPI(MPI_Bcast(bytes + first, as_count(n), MPI_BYTE, root, handle_->comm));
        }
    });
}

void Communicator::barrier(Where where) const {
    if (planned_ || size_ == 1) return;
    perform("barrier", 0, where, [&] { COEUS_CHECK_MPI(MPI_Barrier(handle_->comm)); });
}

void Communicator::patient_barrier(Where where) const {
    if (planned_ || size_ == 1) return;
    const Recorded recorded(handle_->line, OperationKind::patient, "patient_barrier", 0, where);
    MPI_Request request = MPI_REQUEST_NULL;
    COEUS_CHECK_MPI(MPI_Ibarrier(handle_->comm, &request));
    auto pause = std::chrono::microseconds(10);
    for (int done = 0; !done;) {
        COEUS_CHECK_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (!done) std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(10000));
    }
}

}  // namespace coeus
