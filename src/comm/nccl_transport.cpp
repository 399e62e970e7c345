// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "message_carrier.hpp"
#include "transport.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace coeus {

namespace {

nccl::DataType type_of(Dtype dtype) {
    switch (dtype) {
        case Dtype::f64: return nccl::DataType::float64;
        case Dtype::f32: return nccl::DataType::float32;
        case Dtype::bf16: return nccl::DataType::bfloat16;
        case Dtype::i32: return nccl::DataType::int32;
        case Dtype::i64: return nccl::DataType::int64;
        case Dtype::fp8_e4m3:
        case Dtype::fp8_e5m2:  // only moved
        case Dtype::u8: return nccl::DataType::uint8;
        default: throw LogicError("NCCL does not carry this element type here");
    }
}

// Carries a GPU's tensors by NCCL. Called by one thread at a time, which must use that GPU.
class NcclTransport : public Transport {
public:
    NcclTransport(const Communicator& ranks, std::shared_ptr<const NcclConnection> connection)
        : ranks_(ranks), connection_(std::move(connection)), nccl_(connection_->nccl) {}

    void all_reduce(Queue& queue, Tensor inout, Reduce op, Where where) override {
        const nccl::RedOp operation = op == Reduce::max ? nccl::RedOp::max : nccl::RedOp::sum;
        give("all_reduce", queue, inout.bytes(), where, [&] {
            return nccl_.all_reduce(inout.data, inout.data, size_t(inout.count()), type_of(inout.dtype),
                                    operation, connection_->comm, queue.native());
        });
    }

    void all_gather(Queue& queue, Tensor out, Tensor in, Where where) override {
        give("all_gather", queue, out.bytes(), where, [&] {
            return nccl_.all_gather(in.data, out.data, size_t(in.count()), type_of(in.dtype),
                                    connection_->comm, queue.native());
        });
    }

    void reduce_scatter(Queue& queue, Tensor out, Tensor in, Where where) override {
        give("reduce_scatter", queue, in.bytes(), where, [&] {
            return nccl_.reduce_scatter(in.data, out.data, size_t(out.count()), type_of(out.dtype),
                                        nccl::RedOp::sum, connection_->comm, queue.native());
        });
    }

    void all_to_all(Queue& queue, Tensor out, Tensor in, Where where) override {
        const int64_t each = in.bytes() / ranks_.size();
        give("all_to_all", queue, in.bytes(), where, [&] {
            return all_of([&](const auto& call) {
                for (int peer = 0; peer < ranks_.size(); ++peer) {
                    call(send(queue, part(in, peer * each), each, peer));
                    call(receive(queue, part(out, peer * each), each, peer));
                }
            });
        });
    }

    // NCCL has the addresses and sizes of all messages when this returns.
    void all_to_all(Queue& queue, Tensor out, std::span<const RowRange> to, Tensor in,
                    std::span<const RowRange> from, Where where) override {
        give("all_to_all", queue, larger_bytes(in, to, from), where, [&] {
            return all_of([&](const auto& call) {
                for (int peer = 0; peer < ranks_.size(); ++peer) {
                    const Tensor going = rows_of(in, from[size_t(peer)]),
                                 coming = rows_of(out, to[size_t(peer)]);
                    if (going.bytes() > 0) call(send(queue, going.data, going.bytes(), peer));
                    if (coming.bytes() > 0) call(receive(queue, coming.data, coming.bytes(), peer));
                }
            });
        });
    }

    void send_receive(Queue& queue, Tensor sent, int to, Tensor received, int from, Where where) override {
        give("send_receive", queue, sent.bytes(), where, [&] {
            return all_of([&](const auto& call) {
                call(send(queue, sent.data, sent.bytes(), to));
                call(receive(queue, received.data, received.bytes(), from));
            });
        });
    }

    void grouped(FunctionRef<void()> calls) override {
        Group group(*this);
        calls();
        group.end();
    }

    std::unique_ptr<MessageCarrier> make_messages(Exec& computation, int count) override;

    // A message as it was submitted: to rank `peer` (`sent`), or from it.
    struct Message {
        bool sent;
        Tensor tensor;
        int peer, number;
    };
    // Begins the messages together. Observers see the waits for them instead (PointToPoint).
    void exchange(Queue& queue, std::span<const Message> messages) {
        give_unobserved(messages[0].sent ? "send" : "receive", queue, messages[0].tensor.bytes(),
                        Where::current(), [&] {
                            return all_of([&](const auto& call) {
                                for (const auto& [sent, tensor, peer, number] : messages)
                                    call(sent ? send(queue, tensor.data, tensor.bytes(), peer)
                                              : receive(queue, tensor.data, tensor.bytes(), peer));
                            });
                        });
    }

private:
    using Result = nccl::Result;

    // Calls that are made while it is open begin at end().
    class Group {
    public:
        explicit Group(NcclTransport& t) : transport_(t) {
            t.connection_->check(t.nccl_.group_start(), "group", Where::current());
            t.in_group_ = true;
        }
        // During an exception: leaves NCCL's group and ignores the result.
        ~Group() {
            if (is_open_) close();
        }
        void end() {
            const Queue* queue = transport_.queue_of_group_;
            const auto event = transport_.event_of_group_;
            transport_.connection_->check(close(), "group", Where::current());
            if (QueueWatch::Line* line = transport_.connection_->line.get(); line && queue) line->end(queue);
            if (event) transport_.ranks_.observer()->end(*event);
        }
        Group(const Group&) = delete;
        Group& operator=(const Group&) = delete;

    private:
        Result close() {
            is_open_ = transport_.in_group_ = false;
            transport_.queue_of_group_ = nullptr;
            transport_.event_of_group_.reset();
            return transport_.nccl_.group_end();
        }
        NcclTransport& transport_;
        bool is_open_ = true;
    };

    static void* part(Tensor tensor, int64_t first) { return static_cast<std::byte*>(tensor.data) + first; }

    Result send(Queue& queue, const void* from, int64_t bytes, int peer) const {
        return nccl_.send(from, size_t(bytes), nccl::DataType::uint8, peer, connection_->comm,
                          queue.native());
    }
    Result receive(Queue& queue, void* to, int64_t bytes, int peer) const {
        return nccl_.receive(to, size_t(bytes), nccl::DataType::uint8, peer, connection_->comm,
                             queue.native());
    }

    // Runs calls that need each other as one group and returns their first failure.
    template <class Calls>
    Result all_of(const Calls& calls) const {
        Result first = nccl_.group_start();
        const auto call = [&](Result result) {
            if (first == Result::success) first = result;
        };
        if (first == Result::success) {
            calls(call);
            call(nccl_.group_end());
        }
        return first;
    }

    // For an observer, the time of a group is that of its first call.
    template <class Call>
    void give(const char* operation, const Queue& queue, int64_t bytes, const Where& where,
              const Call& call) {
        CommunicationObserver* observer = ranks_.observer();
        const int64_t event = observer ? observer->begin(ranks_.name(), operation, bytes, where, &queue) : 0;
        give_unobserved(operation, queue, bytes, where, call);
        if (!observer) return;
        if (in_group_ && !event_of_group_)
            event_of_group_ = event;
        else
            observer->end(event);
    }

    // Submitted work returns at once, so errors of earlier work are found here at the latest.
    template <class Call>
    void give_unobserved(const char* operation, const Queue& queue, int64_t bytes, const Where& where,
                         const Call& call) {
        Result earlier = Result::success;
        require(connection_->comm != nullptr, "a communicator is used after its world has ended");
        connection_->check(nccl_.comm_get_async_error(connection_->comm, &earlier), operation, where);
        connection_->check(earlier, operation, where);
        begin_watch(operation, queue, bytes);
        connection_->check(call(), operation, where);
        if (connection_->line && !in_group_) connection_->line->end(&queue);
    }

    // A group is one operation with the name of its first call.
    void begin_watch(const char* operation, const Queue& queue, int64_t bytes) {
        if (!connection_->line || queue_of_group_) return;
        connection_->line->begin(operation, bytes, &queue);
        if (in_group_) queue_of_group_ = &queue;
    }

    const Communicator& ranks_;
    std::shared_ptr<const NcclConnection> connection_;
    const NcclLibrary& nccl_;
    bool in_group_ = false;
    const Queue* queue_of_group_ = nullptr;  // of its first call, if a QueueWatch watches
    std::optional<int64_t> event_of_group_;  // of its first call, if there is an observer
};

// All messages of a rank are submitted to one queue, in the order of its program; the computation waits
// only for its own receives. Messages cannot wait for each other in a cycle: the rows of a lowered timetable
// are parts of one sequence of messages and computations in which each comes after everything that it needs,
// and a message needs the messages before it in both rows. prove_unbuffered() proves this with Queues::one,
// where computations wait for all messages before them as well. Nor can the host: NCCL connects two ranks
// inside the call for their first message, and both ranks make these calls in the same order. So channels are
// replaced by one order of messages. Two messages of opposite directions begin together only if both ends
// submit them so (ProgramStep::with_next), since both ends must tell NCCL the same directions.
class NcclMessages : public MessageCarrier {
public:
    NcclMessages(NcclTransport& transport, Exec& computation, int count)
        : transport_(transport),
          computation_(computation),
          queue_(computation.device->make_queue(Priority::high)),
          points_(size_t(count)) {
        given_.reserve(size_t(count));
    }

    void send(int number, Tensor tensor, int peer, int /*channel*/) override {
        given_.push_back({true, tensor, peer, number});
    }
    void receive(int number, Tensor tensor, int peer, int /*channel*/) override {
        given_.push_back({false, tensor, peer, number});
    }

    void start() override {
        if (given_.empty()) return;
        queue_->wait_for(*computation_.queue, computation_.queue->mark());
        transport_.exchange(*queue_, given_);
        const int64_t point = queue_->mark();
        for (const NcclTransport::Message& message : given_) points_[size_t(message.number)] = point;
        given_.clear();
    }

    void wait(int number) override {
        const auto is_it = [number](const NcclTransport::Message& message) {
            return message.number == number;
        };
        if (std::ranges::any_of(given_, is_it)) start();
        computation_.queue->wait_for(*queue_, points_[size_t(number)]);
    }

private:
    NcclTransport& transport_;
    Exec& computation_;
    std::unique_ptr<Queue> queue_;
    std::vector<int64_t> points_;  // in the queue, after each message
    std::vector<NcclTransport::Message> given_;
};

std::unique_ptr<MessageCarrier> NcclTransport::make_messages(Exec& computation, int count) {
    return std::make_unique<NcclMessages>(*this, computation, count);
}

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const Communicator& ranks,
                                               std::shared_ptr<const NcclConnection> connection) {
    return std::make_unique<NcclTransport>(ranks, std::move(connection));
}

}  // namespace coeus
