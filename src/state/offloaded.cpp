// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/offloaded.hpp"

#include <algorithm>

namespace coeus {

namespace {

// Bytes of one of the two places, which never needs more than all state of its kind.
int64_t place_bytes(int64_t kind_bytes, int64_t chunk) {
    return std::min(padded_bytes(chunk), kind_bytes);
}

int64_t distance(const void* from, const void* to) {
    return static_cast<const std::byte*>(to) - static_cast<const std::byte*>(from);
}

// Beginning of the memory line (of `alignment` bytes) that contains a byte.
int64_t line_of(int64_t byte) {
    return byte / alignment * alignment;
}

// The tensor of a kind among owned rows; absent if the parameter has none of this kind.
Tensor of_kind(const OwnedRows& rows, size_t kind, size_t moments) {
    return kind < moments ? rows.moments[kind] : rows.master;
}

}  // namespace

int64_t Offloaded::bytes(const Parameters& parameters, int64_t chunk) {
    int64_t bytes = 0;
    for (const int64_t of_kind : parameters.offloaded_kinds()) bytes += 2 * place_bytes(of_kind, chunk);
    return bytes;
}

Offloaded::Offloaded(const Parameters& parameters, int64_t chunk, const Exec& computation)
    : with_masters_(parameters.types().offloads_master()),
      places_(bytes(parameters, chunk), "buffers of offloaded state", computation.device->memory()),
      in_(Stream::Mode::eager, computation),
      out_(Stream::Mode::eager, computation) {
    const auto add_kind = [&](std::span<std::byte> host) {
        kinds_.push_back({host.data(), place_bytes(int64_t(host.size()), chunk)});
    };
    const std::vector<std::span<std::byte>>& state = parameters.owned_state();
    for (size_t i = 1; i < state.size(); ++i) add_kind(state[i]);
    if (with_masters_) add_kind(state[0]);
    parameters.for_each_in_memory([&](const Storage& storage) {
        if (!storage.trainable()) return;
        for (const OwnedRun& run : storage.runs()) add(storage, run);
    });
}

// Number of rows of the rest of a parameter that fit in a chunk in every kind.
int64_t Offloaded::fitting(const OwnedRows& rest, const Chunk& chunk) const {
    const size_t moments = kinds_.size() - (with_masters_ ? 1 : 0);
    int64_t count = rest.master.rows();
    for (size_t k = 0; k < kinds_.size(); ++k) {
        const Tensor rows = of_kind(rest, k, moments);
        if (!rows) continue;
        const int64_t at = distance(kinds_[k].first, rows.data);
        const Range& range = chunk.ranges[k];
        // elements keep their offset within a memory line, since kernels depend on alignment
        const int64_t begin = line_of(range.last > range.first ? range.first : at);
        count = std::min(count, (kinds_[k].place_bytes - (at - begin)) / (rows.cols() * size_of(rows.dtype)));
    }
    return count;
}

// Adds a run to the last chunk as far as it fits, and to new chunks.
void Offloaded::add(const Storage& storage, const OwnedRun& run) {
    const size_t moments = kinds_.size() - (with_masters_ ? 1 : 0);
    for (int64_t first = 0; first < run.rows;) {
        const OwnedRows rest = Parameters::rows_of(storage, run.part(first, run.rows - first));
        if (chunks_.empty() || fitting(rest, chunks_.back()) <= 0)
            chunks_.push_back({std::vector<Range>(kinds_.size()), {}});
        Chunk& chunk = chunks_.back();
        const int64_t count = fitting(rest, chunk);
        require(count > 0, "a row of a parameter is longer than the place of a chunk");
        chunk.parts.push_back({&storage, run.part(first, count)});
        for (size_t k = 0; k < kinds_.size(); ++k) {
            const Tensor rows = of_kind(rest, k, moments);
            if (!rows) continue;
            Range& range = chunk.ranges[k];
            const int64_t at = distance(kinds_[k].first, rows.data);
            if (range.last == range.first) range.first = at;
            range.last = at + count * rows.cols() * size_of(rows.dtype);
        }
        first += count;
    }
}

// Data has the same offset within a memory line in a place as in host memory.
std::byte* Offloaded::place_of(size_t kind, size_t chunk) const {
    std::byte* at = places_.data();
    for (size_t k = 0; k < kinds_.size(); ++k)
        at += kinds_[k].place_bytes * (int64_t(chunk % 2) + (k < kind ? 1 : 0));
    return at + chunks_[chunk].ranges[kind].first % alignment;
}

Tensor Offloaded::moved(Tensor rows, size_t kind, size_t chunk) const {
    if (!rows) return rows;
    const int64_t at = distance(kinds_[kind].first, rows.data);
    rows.data = place_of(kind, chunk) + (at - chunks_[chunk].ranges[kind].first);
    return rows;
}

void Offloaded::copy_in(size_t chunk) {
    for (size_t k = 0; k < kinds_.size(); ++k)
        if (const Range& range = chunks_[chunk].ranges[k]; range.last > range.first)
            in_.exec().queue->copy(place_of(k, chunk), kinds_[k].first + range.first,
                                   range.last - range.first);
}

void Offloaded::copy_out(size_t chunk) {
    for (size_t k = 0; k < kinds_.size(); ++k)
        if (const Range& range = chunks_[chunk].ranges[k]; range.last > range.first)
            out_.exec().queue->copy(kinds_[k].first + range.first, place_of(k, chunk),
                                    range.last - range.first);
}

void Offloaded::for_each_owned(EachRows each) {
    std::array<Pending, 2> here, back;  // by place
    const auto bring = [&](size_t chunk) {
        back[chunk % 2].join();  // the last chunk but one, which was in that place
        here[chunk % 2] = in_.run([this, chunk] { copy_in(chunk); });
    };
    if (!chunks_.empty()) bring(0);
    for (size_t i = 0; i < chunks_.size(); ++i) {
        if (i + 1 < chunks_.size()) bring(i + 1);
        here[i % 2].join();
        for (const Part& part : chunks_[i].parts) {
            OwnedRows rows = Parameters::rows_of(*part.storage, part.run);
            const size_t moments = kinds_.size() - (with_masters_ ? 1 : 0);
            for (size_t k = 0; k < moments; ++k) rows.moments[k] = moved(rows.moments[k], k, i);
            if (with_masters_) rows.master = moved(rows.master, moments, i);
            each(rows);
        }
        back[i % 2] = out_.run([this, i] { copy_out(i); });
    }
    for (Pending& pending : back) pending.join();
}

}  // namespace coeus
