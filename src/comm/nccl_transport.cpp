// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/comm/nccl_world.hpp"
#include "transport.hpp"

#include <exception>

namespace coeus {

namespace {

nccl::DataType type_of(Dtype dtype) {
    switch (dtype) {
        case Dtype::f64: return nccl::DataType::float64;
        case Dtype::f32: return nccl::DataType::float32;
        case Dtype::bf16: return nccl::DataType::bfloat16;
        case Dtype::i32: return nccl::DataType::int32;
        case Dtype::i64: return nccl::DataType::int64;
        case Dtype::u8: return nccl::DataType::uint8;
        default: throw LogicError("NCCL does not carry this element type here");
    }
}

// Calls are made by one thread at a time, on the GPU that it uses.
class NcclTransport : public Transport {
public:
    NcclTransport(const Communicator& ranks, std::shared_ptr<const NcclConnection> connection)
        : ranks_(ranks), connection_(std::move(connection)), nccl_(connection_->nccl) {}

    void all_reduce(Queue& queue, Tensor inout, Where where) override {
        give("all_reduce", inout, where, [&] {
            return nccl_.all_reduce(inout.data, inout.data, size_t(inout.count()), type_of(inout.dtype),
                                    nccl::RedOp::sum, connection_->comm, queue.native());
        });
    }

    void all_gather(Queue& queue, Tensor out, Tensor in, Where where) override {
        give("all_gather", out, where, [&] {
            return nccl_.all_gather(in.data, out.data, size_t(in.count()), type_of(in.dtype),
                                    connection_->comm, queue.native());
        });
    }

    void reduce_scatter(Queue& queue, Tensor out, Tensor in, Where where) override {
        give("reduce_scatter", in, where, [&] {
            return nccl_.reduce_scatter(in.data, out.data, size_t(out.count()), type_of(out.dtype),
                                        nccl::RedOp::sum, connection_->comm, queue.native());
        });
    }

    void all_to_all(Queue& queue, Tensor out, Tensor in, Where where) override {
        const int64_t each = in.bytes() / ranks_.size();
        give("all_to_all", in, where, [&] {
            return all_of([&](const auto& call) {
                for (int peer = 0; peer < ranks_.size(); ++peer) {
                    call(send(queue, part(in, peer * each), each, peer));
                    call(receive(queue, part(out, peer * each), each, peer));
                }
            });
        });
    }

    void send_receive(Queue& queue, Tensor sent, int to, Tensor received, int from, Where where) override {
        give("send_receive", sent, where, [&] {
            return all_of([&](const auto& call) {
                call(send(queue, sent.data, sent.bytes(), to));
                call(receive(queue, received.data, received.bytes(), from));
            });
        });
    }

    void grouped(FunctionRef<void()> calls) override {
        const Group group(*this);
        calls();
    }

private:
    using Result = nccl::Result;

    // What is called while it lives begins at its end.
    class Group {
    public:
        explicit Group(const NcclTransport& t) : transport_(t) {
            t.connection_->check(t.nccl_.group_start(), "group", Where::current());
        }
        ~Group() noexcept(false) {
            const Result result = transport_.nccl_.group_end();
            if (std::uncaught_exceptions() == 0)
                transport_.connection_->check(result, "group", Where::current());
        }
        Group(const Group&) = delete;
        Group& operator=(const Group&) = delete;

    private:
        const NcclTransport& transport_;
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

    // Messages that need each other: the first failure of a group of calls.
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

    // Errors of earlier work are met here at the latest: what was given to a queue returns at once.
    template <class Call>
    void give(const char* operation, const Tensor& largest, const Where& where, const Call& call) {
        CommunicationObserver* observer = ranks_.observer();
        const int64_t event =
            observer ? observer->begin(ranks_.name(), operation, largest.bytes(), where) : 0;
        Result earlier = Result::success;
        require(connection_->comm != nullptr, "a communicator is used after its world has ended");
        connection_->check(nccl_.comm_get_async_error(connection_->comm, &earlier), operation, where);
        connection_->check(earlier, operation, where);
        connection_->check(call(), operation, where);
        if (observer) observer->end(event);
    }

    const Communicator& ranks_;
    std::shared_ptr<const NcclConnection> connection_;
    const NcclLibrary& nccl_;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const Communicator& ranks,
                                               std::shared_ptr<const NcclConnection> connection) {
    return std::make_unique<NcclTransport>(ranks, std::move(connection));
}

}  // namespace coeus
