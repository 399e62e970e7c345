// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/offloaded.hpp"

#include <algorithm>

namespace coeus {

namespace {

size_t vectors_of(const Parameters& parameters) {
    return parameters.types().offloads_master() ? 3 : 2;
}

// Of one vector; what is less than a chunk needs no more.
int64_t place_bytes(const Parameters& parameters, int64_t chunk) {
    return std::min(padded_bytes(chunk), parameters.offloaded_bytes().moments / 2);
}

int64_t distance(const void* from, const void* to) {
    return static_cast<const std::byte*>(to) - static_cast<const std::byte*>(from);
}

}  // namespace

int64_t Offloaded::bytes(const Parameters& parameters, int64_t chunk) {
    return 2 * int64_t(vectors_of(parameters)) * place_bytes(parameters, chunk);
}

Offloaded::Offloaded(const Parameters& parameters, int64_t chunk, const Exec& computation)
    : place_bytes_(place_bytes(parameters, chunk)),
      places_(bytes(parameters, chunk), "places of offloaded state", computation.device->memory()),
      in_(Stream::Mode::eager, computation),
      out_(Stream::Mode::eager, computation) {
    vectors_ = parameters.offloaded_vectors();
    require(vectors_.size() == vectors_of(parameters), "state is offloaded that was not planned to be");
    // in the order of their addresses, as Parameters lays them out
    for (const bool partial : {true, false})
        for (const Storage& storage : parameters.storages())
            if (storage.is_partial() == partial && storage.trainable())
                for (const Param& param : storage.params()) add(storage, param);
}

// To the chunk that was begun last, as far as its place goes, and to new ones.
void Offloaded::add(const Storage& storage, const Param& param) {
    const Tensor rows = storage.owned(param, storage.exp_avg).rows;
    if (rows.count() == 0) return;
    const int64_t row_bytes = rows.cols() * size_of(rows.dtype), begin = distance(vectors_[0], rows.data);
    for (int64_t first = 0; first < rows.rows();) {
        const int64_t at = begin + first * row_bytes;
        const auto fitting = [&](int64_t chunk_first) {
            // elements keep their place in a line of memory, which kernels look at
            const int64_t room = place_bytes_ - (at - chunk_first / alignment * alignment);
            return std::min(rows.rows() - first, room / row_bytes);
        };
        if (chunks_.empty() || fitting(chunks_.back().first) <= 0) chunks_.push_back({at, at, {}});
        Chunk& chunk = chunks_.back();
        const int64_t count = fitting(chunk.first);
        require(count > 0, "a row of a parameter is longer than the place of a chunk");
        chunk.parts.push_back({&storage, &param, first, count});
        first += count;
        chunk.last = begin + first * row_bytes;
    }
}

// Two places take turns. A chunk lies in them as it does between the lines of the host's memory.
std::byte* Offloaded::place_of(size_t vector, size_t chunk) const {
    const size_t place = chunk % 2 * vectors_.size() + vector;
    return places_.data() + int64_t(place) * place_bytes_ + chunks_[chunk].first % alignment;
}

Tensor Offloaded::moved(Tensor rows, size_t vector, size_t chunk) const {
    rows.data = place_of(vector, chunk) + (distance(vectors_[vector], rows.data) - chunks_[chunk].first);
    return rows;
}

void Offloaded::copy_in(size_t chunk) {
    const Chunk& c = chunks_[chunk];
    for (size_t v = 0; v < vectors_.size(); ++v)
        in_.exec().queue->copy(place_of(v, chunk), vectors_[v] + c.first, c.last - c.first);
}

void Offloaded::copy_out(size_t chunk) {
    const Chunk& c = chunks_[chunk];
    for (size_t v = 0; v < vectors_.size(); ++v)
        out_.exec().queue->copy(vectors_[v] + c.first, place_of(v, chunk), c.last - c.first);
}

void Offloaded::for_each_owned(EachRows each) {
    std::array<Pending, 2> here, back;  // of the places
    const auto bring = [&](size_t chunk) {
        back[chunk % 2].join();  // the one before the last, which lies there
        here[chunk % 2] = in_.run([this, chunk] { copy_in(chunk); });
    };
    if (!chunks_.empty()) bring(0);
    for (size_t i = 0; i < chunks_.size(); ++i) {
        if (i + 1 < chunks_.size()) bring(i + 1);
        here[i % 2].join();
        for (const Part& part : chunks_[i].parts) {
            OwnedRows rows = Parameters::rows_of(*part.storage, *part.param, part.first, part.count);
            AdamTensors& t = rows.tensors;
            t.exp_avg = moved(t.exp_avg, 0, i);
            t.exp_avg_sq = moved(t.exp_avg_sq, 1, i);
            if (vectors_.size() > 2) t.master = moved(t.master, 2, i);
            each(rows);
        }
        back[i % 2] = out_.run([this, i] { copy_out(i); });
    }
    for (Pending& pending : back) pending.join();
}

}  // namespace coeus
