// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/cuda/tma.hpp"

#include "stand_ins/cuda/block.hpp"
#include "stand_ins/cuda/cuda.h"
#include "stand_ins/cuda/wgmma.hpp"

#include <algorithm>
#include <utility>

namespace coeus::emulation {

namespace {

constexpr uint64_t is_map = 0x70616d726f736e74;
constexpr size_t element = 2, piece_bytes = 16, row_bytes = 128, dimensions = 3;

// The content of a map.
struct Box {
    uint64_t mark;
    const std::byte* first;
    uint64_t sizes[dimensions], strides[dimensions - 1], box[dimensions];
};
static_assert(sizeof(Box) <= sizeof(CUtensorMap));

const char* broken_rule(const CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                        const void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                        const cuuint32_t* box, const cuuint32_t* steps, CUtensorMapInterleave interleave,
                        CUtensorMapSwizzle swizzle, CUtensorMapFloatOOBfill fill) {
    const auto is_multiple = [](const void* p, uintptr_t of) {
        return reinterpret_cast<uintptr_t>(p) % of == 0;
    };
    if (!is_multiple(map, 64)) return "the map is not at a multiple of 64 bytes";
    if (rank == 0 || rank > 5) return "a tensor has 1 to 5 dimensions";
    if (!is_multiple(address, 16)) return "the address is not a multiple of 16";
    for (cuuint32_t i = 0; i < rank; ++i) {
        if (sizes[i] == 0 || sizes[i] > uint64_t(1) << 32) return "a size is not in 1 to 2^32";
        if (box[i] == 0 || box[i] > 256) return "a size of the box is not in 1 to 256";
        if (steps[i] == 0 || steps[i] > 8) return "a step is not in 1 to 8";
    }
    for (cuuint32_t i = 0; i + 1 < rank; ++i)
        if (strides[i] % 16 != 0 || strides[i] >= uint64_t(1) << 40)
            return "a stride is not a multiple of 16 below 2^40";
    const size_t bytes = type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? 2 : 4;
    if (rank > 1 && strides[0] < sizes[0] * bytes) return "rows overlap";
    for (cuuint32_t i = 1; i + 1 < rank; ++i)
        if (strides[i] < strides[i - 1] * sizes[i]) return "matrices overlap";
    if (box[0] * bytes % 16 != 0) return "rows of the box are not multiples of 16 bytes";
    if (swizzle == CU_TENSOR_MAP_SWIZZLE_128B && box[0] * bytes > row_bytes)
        return "rows of the box are longer than the swizzle";
    if (rank != dimensions || type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ||
        interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle != CU_TENSOR_MAP_SWIZZLE_128B ||
        fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || box[0] * bytes != row_bytes || steps[1] != 1 ||
        steps[2] != 1)
        return "not emulated";
    return nullptr;
}

size_t offset_of(const void* shared) {
    const Thread& t = thread();
    const auto* const first = t.shared;
    const auto* const at = static_cast<const std::byte*>(shared);
    if (at < first || at >= first + t.shared_bytes) fail("a barrier or box outside of shared memory");
    return size_t(at - first);
}

// Elements of the box, in the 128-byte swizzle: bits 4 to 6 of an address are changed by bits 7 to 9.
void bring_box(std::byte* to, size_t shared_address, const Box& map, std::array<int64_t, 3> first) {
    size_t row_of_box = 0;
    for (uint64_t z = 0; z < map.box[2]; ++z)
        for (uint64_t y = 0; y < map.box[1]; ++y, ++row_of_box)
            for (uint64_t x = 0; x < map.box[0]; ++x) {
                const int64_t place[] = {first[0] + int64_t(x), first[1] + int64_t(y), first[2] + int64_t(z)};
                bool is_inside = true;
                for (size_t i = 0; i < dimensions; ++i)
                    is_inside = is_inside && place[i] >= 0 && uint64_t(place[i]) < map.sizes[i];
                const size_t plain = row_of_box * row_bytes + x * element,
                             row = (shared_address + plain) / row_bytes % 8;
                std::byte* const target = to + (plain ^ row * piece_bytes);
                if (is_inside)
                    std::memcpy(target,
                                map.first + uint64_t(place[0]) * element +
                                    uint64_t(place[1]) * map.strides[0] + uint64_t(place[2]) * map.strides[1],
                                element);
                else
                    std::memset(target, 0, element);
            }
}

// A copy reads its box's rows within the tensor, with a request for each of them.
void tell_of_rows(const void* place, const Box& map, std::array<int64_t, 3> first) {
    const auto within = [&](size_t i, int64_t at) { return at >= 0 && uint64_t(at) < map.sizes[i]; };
    const int64_t begin = std::max<int64_t>(first[0], 0),
                  end = std::min(first[0] + int64_t(map.box[0]), int64_t(map.sizes[0]));
    if (begin >= end) return;
    for (int64_t z = first[2]; z < first[2] + int64_t(map.box[2]); ++z)
        for (int64_t y = first[1]; y < first[1] + int64_t(map.box[1]); ++y)
            if (within(1, y) && within(2, z))
                tell_of_access(place,
                               map.first + uint64_t(begin) * element + uint64_t(y) * map.strides[0] +
                                   uint64_t(z) * map.strides[1],
                               size_t(end - begin) * element, false);
}

}  // namespace

void begin_barrier(const void* barrier, unsigned arrivals) {
    if (reinterpret_cast<uintptr_t>(barrier) % 8 != 0) fail("a barrier is not at a multiple of 8 bytes");
    const size_t offset = offset_of(barrier);
    if (thread().shared_bytes - offset < 8) fail("a barrier or box outside of shared memory");
    barriers().begin(offset, arrivals);
}

void show_barriers() {
    barriers().show();
}

void arrive(const void* barrier, unsigned bytes) {
    barriers().arrive(offset_of(barrier), bytes);
}

void wait_for_phase(const void* barrier, unsigned parity) {
    const size_t offset = offset_of(barrier);
    if (parity > 1) fail("the parity of a phase is 0 or 1");
    wait_at(offset, parity);
}

void copy_box(void* to, const CUtensorMap& map, const void* barrier, std::array<int64_t, 3> first) {
    Box box;
    std::memcpy(&box, &map, sizeof(box));
    if (box.mark != is_map) fail("a copy of a box of something that is not a map");
    const unsigned address = shared_address(to);
    if (address % 1024 != 0) fail("a box is not copied to a multiple of 1024 bytes");
    const size_t offset = offset_of(to), bytes = size_t(box.box[1] * box.box[2]) * row_bytes;
    SharedPieces& pieces = shared_pieces();
    if (const char* const failure = pieces.copy_starts(offset, bytes, thread().thread.x)) fail(failure);
    barriers().refuse_within(offset, bytes);
    tell_of_rows(__builtin_return_address(0), box, first);
    barriers().start_copy(offset_of(barrier), unsigned(bytes), [=, &pieces] {
        bring_box(static_cast<std::byte*>(to), address, box, first);
        pieces.box_arrives(offset, bytes);
    });
    std::memset(to, 0xff, bytes);
}

const Barriers::Barrier& Barriers::at(size_t offset) const {
    const auto found = barriers_.find(offset);
    if (found == barriers_.end()) fail("a barrier that has not begun");
    return found->second;
}
Barriers::Barrier& Barriers::at(size_t offset) {
    return const_cast<Barrier&>(std::as_const(*this).at(offset));
}

void Barriers::end_phase(Barrier& barrier) {
    if (barrier.missing > 0 || barrier.bytes > 0) return;
    barrier.missing = barrier.arrivals;
    ++barrier.phase;
}

void Barriers::begin(size_t offset, unsigned arrivals) {
    if (arrivals == 0 || arrivals >= 1u << 20) fail("a barrier has 1 to 2^20 - 1 arrivals");
    if (!barriers_.emplace(offset, Barrier{.arrivals = arrivals, .missing = arrivals}).second)
        fail("a barrier begins twice");
}

void Barriers::show() {
    for (auto& [offset, barrier] : barriers_) barrier.is_shown = true;
}

void Barriers::arrive(size_t offset, unsigned bytes) {
    Barrier& barrier = at(offset);
    if (barrier.missing == 0) fail("a barrier has more arrivals in a phase than it began with");
    barrier.bytes += bytes;
    if (barrier.bytes >= 1 << 20) fail("a phase of a barrier waits for at most 2^20 - 1 bytes");
    barrier.unclaimed += bytes;
    --barrier.missing;
    end_phase(barrier);
}

bool Barriers::has_ended(size_t offset, unsigned parity) const {
    return at(offset).phase % 2 != parity;
}

std::string Barriers::lacks(size_t offset) const {
    const Barrier& barrier = at(offset);
    return "lacks " + std::to_string(barrier.missing) + " arrivals and " + std::to_string(barrier.bytes) +
           " bytes";
}

void Barriers::refuse_within(size_t offset, size_t bytes) const {
    const auto next = barriers_.lower_bound(offset);
    if (next != barriers_.end() && next->first < offset + bytes) fail("a copy overwrites a barrier");
}

void Barriers::start_copy(size_t offset, unsigned bytes, std::function<void()> bring) {
    Barrier& barrier = at(offset);
    if (!barrier.is_shown) fail("a copy with a barrier that was not shown to the TMA");
    if (barrier.unclaimed < int64_t(bytes)) fail("a copy brings bytes that its barrier does not expect");
    barrier.unclaimed -= bytes;
    copies_.push_back({offset, bytes, std::move(bring)});
}

void Barriers::finish_copy(size_t number) {
    const Copy copy = std::move(copies_[number]);
    copies_.erase(copies_.begin() + ptrdiff_t(number));
    copy.bring();
    Barrier& barrier = at(copy.barrier);
    barrier.bytes -= copy.bytes;
    end_phase(barrier);
}

}  // namespace coeus::emulation

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill fill) {
    using namespace coeus::emulation;
    const char* const broken =
        broken_rule(map, type, rank, address, sizes, strides, box, steps, interleave, swizzle, fill);
    refused_map = broken ? broken : "";
    if (broken) return CUDA_ERROR_INVALID_VALUE;
    const Box content = {is_map,
                         static_cast<const std::byte*>(address),
                         {sizes[0], sizes[1], sizes[2]},
                         {strides[0], strides[1]},
                         {box[0], box[1], box[2]}};
    std::memcpy(map, &content, sizeof(content));
    return CUDA_SUCCESS;
}
