// SPDX-License-Identifier: Apache-2.0
// Offloaded: updates optimizer state that is in pinned host memory: the moments, and the master weights that
// no layer reads. The state passes chunk by chunk through two places on the device; copies in and out each
// have their own queue:
//
//   in        copy in 0 | copy in 1            | copy in 2            | ...
//   compute             | update 0             | update 1             | ...
//   out                             copy out 0 |           copy out 1 | ...
#pragma once

#include "coeus/device/stream.hpp"
#include "coeus/state/parameters.hpp"

#include <array>
#include <vector>

namespace coeus {

class Offloaded {
public:
    /// Bytes of one moment in a chunk: large compared with the cost of starting a copy, small compared with
    /// the offloaded state.
    static constexpr int64_t usual_chunk = int64_t(16) << 20;

    /// Bytes of device memory for the two places, with chunks of at most `chunk` bytes of each moment.
    static int64_t bytes(const Parameters& parameters, int64_t chunk);
    /// The parameters must have offloaded state. Allocates the places on the device of `computation`, which
    /// must outlive it.
    Offloaded(const Parameters& parameters, int64_t chunk, const Exec& computation);

    /// Calls `each` for the rows that this rank owns of each trainable parameter, while they are on the
    /// device. Work that the computation's queue gets after this call sees the state as `each` has left it.
    void for_each_owned(EachRows each);

private:
    // A kind of state: the moments of one number, or the masters. Each kind is one block of host memory.
    struct Kind {
        std::byte* first;
        int64_t place_bytes;  // device memory for a chunk of this kind
    };
    struct Part {
        const Storage* storage;
        OwnedRun run;
    };
    struct Range {
        int64_t first = 0, last = 0;  // bytes within the kind's memory
    };
    struct Chunk {
        std::vector<Range> ranges;  // one for each kind
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
    Stream in_, out_;  // must end before what they copy
};

}  // namespace coeus
