// SPDX-License-Identifier: Apache-2.0
#include "transport.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace coeus {

namespace {

// Copies tensors through pinned host memory piece by piece, with room for two pieces of each rank.
class StagedTransport : public Transport {
public:
    StagedTransport(const Communicator& ranks, const Device& device)
        : ranks_(ranks),
          piece_bytes_(
              std::clamp(most_bytes / ranks.size() / alignment * alignment, least_piece, most_piece)),
          staging_(2 * piece_bytes_ * ranks.size(), "tensors in transfer between GPUs", device.staging()),
          going_(size_t(ranks.size())),
          coming_(size_t(ranks.size())) {}

    void all_reduce(Queue& queue, Tensor inout, Reduce op, Where where) override {
        const int64_t most = 2 * piece_bytes_ * ranks_.size();
        for_each_piece(inout.bytes(), most, [&](int64_t first, int64_t bytes) {
            queue.copy(staging_.data(), at(inout, first), bytes);
            queue.finish();
            ranks_.all_reduce(staged(inout.dtype, 0, bytes), op, where);
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

    // The number of pieces is that of the largest message of any rank.
    void all_to_all(Queue& queue, Tensor out, std::span<const RowRange> to, Tensor in,
                    std::span<const RowRange> from, Where where) override {
        const Tensor sent = staged(Dtype::u8, 0, piece_bytes_ * ranks_.size()),
                     received = staged(Dtype::u8, sent.bytes(), sent.bytes());
        for_each_piece(largest_of(in, from, where), piece_bytes_, [&](int64_t first, int64_t /*bytes*/) {
            for (size_t peer = 0; peer < from.size(); ++peer) {
                const auto going = piece_of(rows_of(in, from[peer]), first, piece_bytes_),
                           coming = piece_of(rows_of(out, to[peer]), first, piece_bytes_);
                going_[peer] = {int64_t(peer) * piece_bytes_, int64_t(going.size())};
                coming_[peer] = {int64_t(peer) * piece_bytes_, int64_t(coming.size())};
                queue.copy(at(sent, going_[peer].first), going.data(), going_[peer].count);
            }
            queue.finish();
            ranks_.all_to_all(received, coming_, sent, going_, where);
            for (size_t peer = 0; peer < to.size(); ++peer)
                queue.copy(piece_of(rows_of(out, to[peer]), first, piece_bytes_).data(),
                           at(received, coming_[peer].first), coming_[peer].count);
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

    // Bytes of the largest of these ranges on any rank. (The maximum of MPI waits without sleeping,
    // wait.hpp.)
    int64_t largest_of(Tensor tensor, std::span<const RowRange> ranges, Where where) const {
        const int64_t each = size_of(Dtype::i64);
        const Tensor all = staged(Dtype::i64, 0, each * ranks_.size()),
                     own = staged(Dtype::i64, each * ranks_.rank(), each);
        int64_t& largest = *own.as<int64_t>();
        largest = 0;
        for (const RowRange& range : ranges) largest = std::max(largest, rows_of(tensor, range).bytes());
        ranks_.all_gather(all, own, where);
        return *std::max_element(all.as<int64_t>(), all.as<int64_t>() + all.count());
    }

    const Communicator& ranks_;
    int64_t piece_bytes_;
    Buffer staging_;
    std::vector<RowRange> going_, coming_;  // pieces of rows in the staging, for each rank
};

}  // namespace

std::unique_ptr<Transport> make_staged_transport(const Communicator& ranks, const Device& device) {
    return std::make_unique<StagedTransport>(ranks, device);
}

}  // namespace coeus
