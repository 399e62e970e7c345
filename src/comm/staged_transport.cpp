// SPDX-License-Identifier: Apache-2.0
#include "transport.hpp"

#include <algorithm>

namespace coeus {

namespace {

// Copies tensors through pinned host memory piece by piece, with room for two pieces of each rank.
class StagedTransport : public Transport {
public:
    StagedTransport(const Communicator& ranks, const Device& device)
        : ranks_(ranks),
          piece_bytes_(
              std::clamp(most_bytes / ranks.size() / alignment * alignment, least_piece, most_piece)),
          staging_(2 * piece_bytes_ * ranks.size(), "tensors in transfer between GPUs", device.staging()) {}

    void all_reduce(Queue& queue, Tensor inout, Where where) override {
        const int64_t most = 2 * piece_bytes_ * ranks_.size();
        for_each_piece(inout.bytes(), most, [&](int64_t first, int64_t bytes) {
            queue.copy(staging_.data(), at(inout, first), bytes);
            queue.finish();
            ranks_.all_reduce(staged(inout.dtype, 0, bytes), Reduce::sum, where);
            queue.copy(at(inout, first), staging_.data(), bytes);
            queue.finish();
        });
    }

    void all_gather(Queue& queue, Tensor out, Tensor in, Where where) override {
        for_each_piece(in.bytes(), piece_bytes_, [&](int64_t first, int64_t bytes) {
            const Tensor all = staged(in.dtype, 0, bytes * ranks_.size()),
                         own = staged(in.dtype, bytes * ranks_.rank(), bytes);
            queue.copy(own.data, at(in, first), bytes);
            queue.finish();
            ranks_.all_gather(all, own, where);
            for (int rank = 0; rank < ranks_.size(); ++rank)
                queue.copy(at(out, rank * in.bytes() + first), at(all, rank * bytes), bytes);
            queue.finish();
        });
    }

    void reduce_scatter(Queue& queue, Tensor out, Tensor in, Where where) override {
        for_each_piece(out.bytes(), piece_bytes_, [&](int64_t first, int64_t bytes) {
            const Tensor all = staged(in.dtype, 0, bytes * ranks_.size()),
                         own = staged(in.dtype, bytes * ranks_.rank(), bytes);
            for (int rank = 0; rank < ranks_.size(); ++rank)
                queue.copy(at(all, rank * bytes), at(in, rank * out.bytes() + first), bytes);
            queue.finish();
            ranks_.reduce_scatter(own, all, where);
            queue.copy(at(out, first), own.data, bytes);
            queue.finish();
        });
    }

    void all_to_all(Queue& queue, Tensor out, Tensor in, Where where) override {
        const int64_t each = in.bytes() / ranks_.size();
        for_each_piece(each, piece_bytes_, [&](int64_t first, int64_t bytes) {
            const Tensor sent = staged(in.dtype, 0, bytes * ranks_.size()),
                         received = staged(in.dtype, bytes * ranks_.size(), bytes * ranks_.size());
            for (int rank = 0; rank < ranks_.size(); ++rank)
                queue.copy(at(sent, rank * bytes), at(in, rank * each + first), bytes);
            queue.finish();
            ranks_.all_to_all(received, sent, where);
            for (int rank = 0; rank < ranks_.size(); ++rank)
                queue.copy(at(out, rank * each + first), at(received, rank * bytes), bytes);
            queue.finish();
        });
    }

    void send_receive(Queue& queue, Tensor sent, int to, Tensor received, int from, Where where) override {
        for_each_piece(sent.bytes(), piece_bytes_, [&](int64_t first, int64_t bytes) {
            const Tensor going = staged(sent.dtype, 0, bytes), coming = staged(sent.dtype, bytes, bytes);
            queue.copy(going.data, at(sent, first), bytes);
            queue.finish();
            ranks_.send_receive(going, to, coming, from, where);
            queue.copy(at(received, first), coming.data, bytes);
            queue.finish();
        });
    }

private:
    static constexpr int64_t most_bytes = int64_t(32) << 20, least_piece = int64_t(16) << 10,
                             most_piece = int64_t(4) << 20;

    static std::byte* at(Tensor tensor, int64_t first) {
        return static_cast<std::byte*>(tensor.data) + first;
    }

    Tensor staged(Dtype dtype, int64_t first, int64_t bytes) const {
        return Tensor(staging_.data() + first, dtype, {bytes / size_of(dtype)});
    }

    template <class Each>
    static void for_each_piece(int64_t bytes, int64_t most, const Each& each) {
        for (int64_t first = 0; first < bytes; first += most) each(first, std::min(most, bytes - first));
    }

    const Communicator& ranks_;
    int64_t piece_bytes_;
    Buffer staging_;
};

}  // namespace

std::unique_ptr<Transport> make_staged_transport(const Communicator& ranks, const Device& device) {
    return std::make_unique<StagedTransport>(ranks, device);
}

}  // namespace coeus
