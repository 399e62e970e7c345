// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/cuda/memory_counter.hpp"

#include "stand_ins/cuda/block.hpp"
#include "stand_ins/cuda/runtime.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace coeus::emulation {

namespace {

constexpr uintptr_t banks = 32, word = 4;

/// A lane's access: the n-th at this place since the last barrier.
struct Access {
    const void* place;
    uint32_t number;
    uint32_t bytes;
    uintptr_t memory;
    bool writes, is_shared;

    auto request() const { return std::tuple(place, number, writes, is_shared); }
};

/// The accesses of one request.
using Request = std::vector<Access>;

/// The number of different pieces of `size` bytes in which the accesses are.
int64_t pieces(const Request& request, uintptr_t size, std::vector<uintptr_t>& found) {
    found.clear();
    for (const Access& a : request)
        for (uintptr_t piece = a.memory / size; piece <= (a.memory + a.bytes - 1) / size; ++piece)
            found.push_back(piece);
    std::ranges::sort(found);
    found.erase(std::ranges::unique(found).begin(), found.end());
    return int64_t(found.size());
}

}  // namespace

class MemoryCounter::Counting : public GridObserver {
public:
    void begin_grid() override {
        drop_accesses();
        grids_.emplace_back();
    }

    void access(const void* place, const void* memory, size_t bytes, bool writes) override {
        const Thread& t = thread();
        const auto* const address = static_cast<const std::byte*>(memory);
        const bool is_shared = address >= t.shared && address < t.shared + t.shared_bytes;
        if (!is_shared && !is_device_memory(memory)) return;
        Lane& lane = lanes_[size_t(t.lane())];
        lane.accesses.push_back({place, lane.count[place]++, uint32_t(bytes),
                                 reinterpret_cast<uintptr_t>(memory), writes, is_shared});
    }

    /// Lanes run one after the other, but the warps of a block never between each other's barriers: until
    /// this call only lanes of this warp have run.
    void warp_waits() override {
        for (const Lane& lane : lanes_)
            accesses_.insert(accesses_.end(), lane.accesses.begin(), lane.accesses.end());
        std::ranges::stable_sort(accesses_, {}, &Access::request);
        for (auto first = accesses_.begin(); first != accesses_.end();) {
            const auto last = std::find_if(first, accesses_.end(),
                                           [&](const Access& a) { return a.request() != first->request(); });
            request_.assign(first, last);
            if (first->is_shared)
                count_shared();
            else
                count_global();
            first = last;
        }
        drop_accesses();
    }

    std::vector<MemoryCounts> take() { return std::exchange(grids_, {}); }

private:
    struct Lane {
        std::vector<Access> accesses;
        std::unordered_map<const void*, uint32_t> count;
    };

    void drop_accesses() {
        accesses_.clear();
        for (Lane& lane : lanes_) {
            lane.accesses.clear();
            lane.count.clear();
        }
    }

    void count_global() {
        MemoryCounts& counts = grids_.back();
        ++counts.requests;
        (request_.front().writes ? counts.written_sectors : counts.read_sectors) +=
            pieces(request_, sector_bytes, found_);
    }

    /// Lanes are in order: those of a group follow each other.
    void count_shared() {
        const size_t group = 128 / std::max<size_t>(4, request_.front().bytes);
        for (size_t first = 0; first < request_.size(); first += group) {
            group_.assign(request_.begin() + ptrdiff_t(first),
                          request_.begin() + ptrdiff_t(std::min(first + group, request_.size())));
            pieces(group_, word, found_);
            std::array<int64_t, banks> words = {};
            for (const uintptr_t piece : found_) ++words[piece % banks];
            const int64_t passes = *std::ranges::max_element(words);
            MemoryCounts& counts = grids_.back();
            ++counts.shared_accesses;
            counts.shared_passes += passes;
            counts.worst_passes = std::max(counts.worst_passes, passes);
        }
    }

    std::array<Lane, 32> lanes_;
    std::vector<Access> accesses_;
    Request request_, group_;
    std::vector<uintptr_t> found_;
    std::vector<MemoryCounts> grids_;
};

MemoryCounter::MemoryCounter() : counting_(std::make_unique<Counting>()) {
    observe_grids(counting_.get());
}
MemoryCounter::~MemoryCounter() {
    observe_grids(nullptr);
}
std::vector<MemoryCounts> MemoryCounter::take() {
    return counting_->take();
}

}  // namespace coeus::emulation

// What -fsanitize=thread calls. The place of an access is the address to which the call returns.
extern "C" {

#define COEUS_ACCESS(name, bytes, writes)                                                     \
    void name(void* memory) {                                                                 \
        coeus::emulation::tell_of_access(__builtin_return_address(0), memory, bytes, writes); \
    }
#define COEUS_ACCESSES(bytes)                                \
    COEUS_ACCESS(__tsan_read##bytes, bytes, false)           \
    COEUS_ACCESS(__tsan_write##bytes, bytes, true)           \
    COEUS_ACCESS(__tsan_unaligned_read##bytes, bytes, false) \
    COEUS_ACCESS(__tsan_unaligned_write##bytes, bytes, true)
COEUS_ACCESSES(1)
COEUS_ACCESSES(2)
COEUS_ACCESSES(4)
COEUS_ACCESSES(8)
COEUS_ACCESSES(16)

void __tsan_read_range(void* memory, size_t bytes) {
    coeus::emulation::tell_of_access(__builtin_return_address(0), memory, bytes, false);
}
void __tsan_write_range(void* memory, size_t bytes) {
    coeus::emulation::tell_of_access(__builtin_return_address(0), memory, bytes, true);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// of the guard of a static local
unsigned char __tsan_atomic8_load(const volatile unsigned char* memory, int /*order*/) {
    return __atomic_load_n(memory, __ATOMIC_ACQUIRE);
}

}  // extern "C"
