// SPDX-License-Identifier: Apache-2.0
// Offloaded: state of the optimizer that is in pinned host memory, the moments and the masters that no layer
// reads, while it is updated. It passes through two places on the device, chunk after chunk, each way on a
// queue of its own:
//
//   in        bring 0 | bring 1             | bring 2             | ...
//   compute           | update 0            | update 1            | ...
//   out                          take 0 back |         take 1 back | ...
#pragma once

#include "coeus/device/stream.hpp"
#include "coeus/state/parameters.hpp"

#include <array>
#include <vector>

namespace coeus {

class Offloaded {
public:
    /// Of a moment at a time: long beside what it costs to begin a copy, little beside what is offloaded.
    static constexpr int64_t usual_chunk = int64_t(16) << 20;

    /// Bytes of the device that the places need, for chunks of at most `chunk` bytes of each moment.
    static int64_t bytes(const Parameters& parameters, int64_t chunk);
    /// The parameters have offloaded state. Takes that memory where `computation` runs, which outlives it.
    Offloaded(const Parameters& parameters, int64_t chunk, const Exec& computation);

    /// What this rank owns of each trainable parameter, by rows, while these are on the device. What is given
    /// to the computation's queue after it finds the state on the host as `each` has left it.
    void for_each_owned(EachRows each);

private:
    // A kind of state: a moment of some number, or the masters. It is one piece of the host's memory.
    struct Kind {
        std::byte* first;
        int64_t place_bytes;  // of the device's memory, for a chunk of it
    };
    struct Part {
        const Storage* storage;
        OwnedRun run;
    };
    struct Range {
        int64_t first = 0, last = 0;  // bytes of a kind
    };
    struct Chunk {
        std::vector<Range> ranges;  // of every kind
        std::vector<Part> parts;
    };
    void add(const Storage& storage, const OwnedRun& run);
    int64_t fitting(const OwnedRows& rest, const Chunk& chunk) const;
    Tensor moved(Tensor rows, size_t kind, size_t chunk) const;
    std::byte* place_of(size_t kind, size_t chunk) const;
    void copy_in(size_t chunk);
    void copy_out(size_t chunk);

    bool with_masters_;
    std::vector<Kind> kinds_;  // the moments, then the masters
    std::vector<Chunk> chunks_;
    Buffer places_;
    Stream in_, out_;  // end before what they copy
};

}  // namespace coeus
