// SPDX-License-Identifier: Apache-2.0
#include "emulation/runtime.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cuda_runtime.h>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

struct coeus_emulated_event {
    size_t recorded = 0, done = 0;  // how often
};

struct coeus_emulated_stream {
    struct Item {
        std::function<void()> work;
        coeus_emulated_event* awaited = nullptr;  // it must have been done so often
        size_t times = 0;
        std::function<bool()> ready = nullptr;  // none: always
    };
    std::deque<Item> items;
    bool waits_outside() const { return !items.empty() && items.front().ready; }
    bool can_go_on() const {
        if (items.empty() || (waits_outside() && !items.front().ready())) return false;
        return !items.front().awaited || items.front().awaited->done >= items.front().times;
    }
};

namespace coeus::emulation {

namespace {

int gpus = std::getenv("COEUS_EMULATED_GPUS") ? std::atoi(std::getenv("COEUS_EMULATED_GPUS")) : 1;
size_t taken = 0;
std::mutex mutex;  // of all that follows; whoever waits for work does it
std::set<coeus_emulated_stream*> streams;
std::map<void*, size_t> device_memory;

void protect(int how) {
    for (const auto& [memory, bytes] : device_memory) mprotect(memory, bytes, how);
}

// While it lives, device memory can be reached.
class Access {
public:
    Access() { protect(PROT_READ | PROT_WRITE); }
    ~Access() { protect(PROT_NONE); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;
};

// Whose work comes next; null: nobody's, until others outside this process have come.
coeus_emulated_stream* next_stream() {
    std::vector<coeus_emulated_stream*> ready;
    bool others_may_come = false;
    for (coeus_emulated_stream* stream : streams) {
        if (stream->can_go_on()) ready.push_back(stream);
        others_may_come |= stream->waits_outside();
    }
    if (ready.empty() && others_may_come) return nullptr;
    if (ready.empty()) throw std::runtime_error("emulation: streams wait for each other");
    return ready[random_number() % ready.size()];
}

void run_one(coeus_emulated_stream& stream) {
    const auto item = std::move(stream.items.front());
    stream.items.pop_front();
    item.work();
}

template <class Done>
void run_until(const Done& done) {
    std::unique_lock lock(mutex);
    while (!done()) {
        if (coeus_emulated_stream* stream = next_stream()) {
            const Access access;
            for (; stream; stream = done() ? nullptr : next_stream()) run_one(*stream);
        } else {  // other threads may give work meanwhile
            lock.unlock();
            std::this_thread::yield();
            lock.lock();
        }
    }
}

}  // namespace

void give(coeus_emulated_stream* stream, std::function<void()> work) {
    const std::lock_guard lock(mutex);
    if (stream) {
        stream->items.push_back({std::move(work)});
    } else {
        const Access access;
        work();
    }
}

void give_when(coeus_emulated_stream* stream, std::function<bool()> ready, std::function<void()> work) {
    const std::lock_guard lock(mutex);
    stream->items.push_back({.work = std::move(work), .ready = std::move(ready)});
}

void set_gpus(int count) {
    gpus = count;
}

size_t allocations() {
    return taken;
}

}  // namespace coeus::emulation

using namespace coeus::emulation;

cudaError_t cudaGetDeviceCount(int* count) {
    *count = gpus;
    return gpus > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
    return device < gpus ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
    *properties = {"emulated GPU", 0, 1, 0};
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    *free = *total = size_t(4) << 30;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
    const std::lock_guard lock(mutex);
    ++taken;
    if (bytes > size_t(4) << 30) return cudaErrorMemoryAllocation;
    *memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*memory == MAP_FAILED) return cudaErrorMemoryAllocation;
    device_memory[*memory] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
    const std::lock_guard lock(mutex);
    munmap(memory, device_memory.at(memory));
    device_memory.erase(memory);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
    ++taken;
    *memory = std::malloc(bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void* memory) {
    std::free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    give(nullptr, [=] { std::memset(to, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    give(stream, [=] { std::memset(to, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/) {
    give(nullptr, [=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
    give(stream, [=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    run_until([] {
        return std::all_of(streams.begin(), streams.end(),
                           [](auto* stream) { return stream->items.empty(); });
    });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
    const std::lock_guard lock(mutex);
    *stream = new coeus_emulated_stream;
    streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    run_until([stream] { return stream->items.empty(); });
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    streams.erase(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
    *event = new coeus_emulated_event;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    const size_t times = ++event->recorded;
    stream->items.push_back({[event, times] { event->done = times; }});
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
    const std::lock_guard lock(mutex);
    stream->items.push_back({[] {}, event, event->recorded});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    size_t times = 0;
    {
        const std::lock_guard lock(mutex);
        times = event->recorded;
    }
    run_until([event, times] { return event->done >= times; });
    return cudaSuccess;
}
