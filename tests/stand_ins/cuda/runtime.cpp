// SPDX-License-Identifier: Apache-2.0
#include "stand_ins/cuda/runtime.hpp"

#include "stand_ins/cuda/block.hpp"
#include "stand_ins/cuda/peers.hpp"
#include "stand_ins/cuda/streams.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cuda_runtime.h>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace coeus::emulation {

namespace {

bool some_starve = false;
size_t taken = 0;
std::atomic<size_t> waited = 0;
std::mutex mutex;  // guards everything below; the thread that waits for work runs it
std::set<coeus_emulated_stream*> streams;
std::vector<coeus_emulated_graph*> recordings;  // captures in progress
size_t recorded = 0, launched = 0;              // numbers of graphs until now
size_t clock_microseconds = 0;
struct Mapping {
    size_t bytes, whole_bytes;  // from the address that was returned, and of the whole mapping
    void* whole;                // the whole mapping
    int file = -1;              // if other processes can open it
};
std::map<void*, Mapping> device_memory;
std::function<void(bool again)> told_of_waiting = [](bool) {};

// Device memory is accessible while an object of this class lives. A protection key of the processor
// (pkeys(7)) opens and closes all of it in one instruction, for the thread that does the device's work. On a
// processor without keys each mapping changes, which takes time for each page in use: almost half of the time
// of a test of whole runs.
class Access {
public:
    Access() {
        if (depth++ == 0) set(true);
    }
    ~Access() {
        if (--depth == 0) set(false);
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

    /// Makes new memory some that objects of this class open; false if the system refuses.
    static bool governs(void* memory, size_t bytes) {
        return key < 0 || pkey_mprotect(memory, bytes, PROT_READ | PROT_WRITE, key) == 0;
    }

private:
    static const int key;                      // negative: this processor has none
    static inline thread_local int depth = 0;  // of objects of this class

    static void set(bool accessible) {
        if (key >= 0) {
            pkey_set(key, accessible ? 0 : PKEY_DISABLE_ACCESS);
            return;
        }
        for (const auto& [memory, mapping] : device_memory)
            mprotect(memory, mapping.bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
};
const int Access::key = pkey_alloc(0, PKEY_DISABLE_ACCESS);

// Device memory, not yet accessible, or null if there is none. Large memory uses huge pages, since without
// protection keys it takes time for each page in use to open and close access.
void* map_device_memory(size_t bytes) {
    constexpr size_t huge = size_t(2) << 20;
    const size_t room = bytes < huge ? 0 : huge;
    void* const whole =
        mmap(nullptr, bytes + room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED) return nullptr;
    void* memory = whole;
    if (room > 0) {
        size_t left = bytes + room;
        std::align(huge, bytes, memory, left);
        madvise(memory, bytes, MADV_HUGEPAGE);
    }
    if (!Access::governs(memory, bytes)) {
        munmap(whole, bytes + room);
        return nullptr;
    }
    device_memory[memory] = {bytes, bytes + room, whole};
    return memory;
}

// The stream whose work comes next; null if none can continue before something outside this process happens.
coeus_emulated_stream* next_stream() {
    std::vector<coeus_emulated_stream*> ready;
    bool others_may_come = false;
    for (coeus_emulated_stream* stream : streams) {
        if (stream->can_go_on()) ready.push_back(stream);
        others_may_come |= stream->waits_outside();
    }
    if (ready.empty() && others_may_come) return nullptr;
    if (ready.empty()) throw std::runtime_error("emulation: streams wait for each other");
    if (!some_starve) return ready[random_number() % ready.size()];
    return *std::ranges::min_element(ready, {}, [](const auto* stream) { return stream->rank; });
}

// If a kernel fails, what other work all streams have is lost: it might use memory that is freed when the
// error is reported. If an operation with other ranks fails, the rest stays, since these wait for it.
void run_one(coeus_emulated_stream& stream) {
    const auto item = std::move(stream.items.front());
    stream.items.pop_front();
    try {
        item.work();
    } catch (const KernelError&) {
        for (coeus_emulated_stream* each : streams) each->items.clear();
        throw;
    }
    clock_microseconds += item.microseconds;
}

// An operation that a capture forbids, to its thread or on its streams or events, invalidates the capture.
cudaError_t refused(const std::function<bool(const coeus_emulated_graph&)>& concerns) {
    const std::lock_guard lock(mutex);
    for (coeus_emulated_graph* recording : recordings)
        if (concerns(*recording)) {
            recording->is_void = true;
            return cudaErrorStreamCaptureUnsupported;
        }
    return cudaSuccess;
}

cudaError_t refused_to_thread() {
    return refused([](const auto& recording) { return recording.thread == std::this_thread::get_id(); });
}

template <class Done>
void run_until(const Done& done) {
    ++waited;
    std::unique_lock lock(mutex);
    while (!done()) {
        if (coeus_emulated_stream* stream = next_stream()) {
            told_of_waiting(false);
            const Access access;
            for (; stream; stream = done() ? nullptr : next_stream()) run_one(*stream);
        } else {  // other threads may give work in the meantime
            lock.unlock();
            told_of_waiting(true);
            std::this_thread::yield();
            lock.lock();
        }
    }
}

}  // namespace

void give(coeus_emulated_stream* stream, size_t microseconds, std::function<void()> work) {
    const std::lock_guard lock(mutex);
    if (stream && stream->recording) {
        stream->recording->nodes.push_back({.lane = stream->lane, .work = std::move(work)});
    } else if (stream) {
        stream->items.push_back({.work = std::move(work), .microseconds = microseconds});
    } else {
        const Access access;
        work();
    }
}

namespace {

// Where the device does what is asked of no stream. The calls may return before it is done, and other streams
// do not wait for it.
coeus_emulated_stream& default_stream() {
    static coeus_emulated_stream stream;
    const std::lock_guard lock(mutex);
    streams.insert(&stream);
    return stream;
}

bool is_on_device(const void* address) {
    const std::lock_guard lock(mutex);
    return is_device_memory(address);
}

}  // namespace

bool is_device_memory(const void* address) {
    auto next = device_memory.upper_bound(const_cast<void*>(address));
    if (next == device_memory.begin()) return false;
    --next;
    return address < static_cast<const std::byte*>(next->first) + next->second.bytes;
}

void give_when(coeus_emulated_stream* stream, std::function<bool()> ready, std::function<void()> work) {
    const std::lock_guard lock(mutex);
    stream->items.push_back({.work = std::move(work), .ready = std::move(ready), .microseconds = 1});
}

void on_waiting(std::function<void(bool again)> told) {
    told_of_waiting = std::move(told);
}

void give_anew(coeus_emulated_stream* stream, std::function<void(coeus_emulated_stream*)> begin) {
    {
        const std::lock_guard lock(mutex);
        if (stream->recording) {
            stream->recording->nodes.push_back({.lane = stream->lane, .begin = std::move(begin)});
            return;
        }
    }
    begin(stream);
}

size_t waits() {
    return waited;
}

int priority(const coeus_emulated_stream* stream) {
    return stream->priority;
}

size_t graph_launches() {
    return launched;
}

void let_streams_starve(bool some) {
    some_starve = some;
}

size_t allocations() {
    return taken;
}

size_t device_bytes() {
    const std::lock_guard lock(mutex);
    size_t bytes = bytes_of_libraries;
    for (const auto& [memory, mapping] : device_memory) bytes += mapping.bytes;
    return bytes;
}

int share(void* memory) {
    const std::lock_guard lock(mutex);
    const auto found = device_memory.find(memory);
    if (found == device_memory.end()) return -1;
    Mapping& mapping = found->second;
    if (mapping.file >= 0) return mapping.file;
    const int file = memfd_create("memory of an emulated GPU", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, off_t(mapping.bytes)) != 0) return -1;
    {
        const Access access;
        for (size_t done = 0; done < mapping.bytes;) {
            const ssize_t n =
                pwrite(file, static_cast<std::byte*>(memory) + done, mapping.bytes - done, off_t(done));
            if (n <= 0) return -1;
            done += size_t(n);
        }
    }
    if (mmap(memory, mapping.bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED ||
        !Access::governs(memory, mapping.bytes))
        return -1;
    return mapping.file = file;
}

void* open_shared(int file, size_t bytes) {
    const std::lock_guard lock(mutex);
    void* const memory = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED || !Access::governs(memory, bytes)) return nullptr;
    device_memory[memory] = {bytes, bytes, memory};
    return memory;
}

uint32_t number_at(const uint32_t* address) {
    const Access access;
    return std::atomic_ref(*const_cast<uint32_t*>(address)).load(std::memory_order_acquire);
}

}  // namespace coeus::emulation

using namespace coeus::emulation;

cudaError_t cudaMalloc(void** memory, size_t bytes) {
    if (refused_to_thread() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    const std::lock_guard lock(mutex);
    ++taken;
    if (bytes > all_memory) return cudaErrorMemoryAllocation;
    *memory = map_device_memory(bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void* memory) {
    if (refused_to_thread() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    const std::lock_guard lock(mutex);
    const Mapping mapping = device_memory.at(memory);
    munmap(mapping.whole, mapping.whole_bytes);
    if (mapping.file >= 0) close(mapping.file);
    device_memory.erase(memory);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
    if (refused_to_thread() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    ++taken;
    *memory = std::malloc(bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void* memory) {
    if (refused_to_thread() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    std::free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    if (refused_to_thread() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    return cudaMemsetAsync(to, value, bytes, &default_stream());
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
    give(stream, [=] { std::memset(to, value, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/) {
    if (refused_to_thread() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    if (!is_on_device(to)) {
        const auto& stream = default_stream();
        run_until([&] { return stream.items.empty(); });
        give(nullptr, [=] { std::memcpy(to, from, bytes); });
    } else if (is_on_device(from)) {
        give(&default_stream(), [=] { std::memcpy(to, from, bytes); });
    } else {  // the memory may change as soon as this returns
        const auto* const first = static_cast<const std::byte*>(from);
        give(&default_stream(), [to, read = std::vector<std::byte>(first, first + bytes)] {
            std::memcpy(to, read.data(), read.size());
        });
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
    give(stream, [=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
    give(stream, [=] {
        for (size_t row = 0; row < height; ++row)
            std::memcpy(static_cast<char*>(to) + row * to_pitch,
                        static_cast<const char*>(from) + row * from_pitch, width);
    });
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    // the device includes the streams of any capture, whichever thread began it
    if (refused([](const auto& /*recording*/) { return true; }) != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    run_until([] {
        return std::all_of(streams.begin(), streams.end(),
                           [](auto* stream) { return stream->items.empty(); });
    });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int priority) {
    const std::lock_guard lock(mutex);
    *stream = new coeus_emulated_stream{.priority = priority};
    streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (refused([&](const auto& recording) { return stream->recording == &recording; }) != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    run_until([stream] { return stream->items.empty(); });
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    const std::lock_guard lock(mutex);
    *status = stream && stream->recording ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    streams.erase(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    ++taken;
    if ((flags & cudaEventBlockingSync) != 0) ++events_with_sleep;
    *event = new coeus_emulated_event{.timed = (flags & cudaEventDisableTiming) == 0};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    if (coeus_emulated_graph* recording = stream->recording) {
        event->recording = recording->number;
        event->node = recording->nodes.size();
        recording->nodes.push_back({.lane = stream->lane});
        return cudaSuccess;
    }
    const size_t times = ++event->recorded;
    event->recording = 0;
    stream->items.push_back({[mark = event->mark, times] {
        mark->done = times;
        mark->microseconds = clock_microseconds;
    }});
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
    const std::lock_guard lock(mutex);
    const auto of_event = std::find_if(recordings.begin(), recordings.end(), [&](auto* recording) {
        return recording->number == event->recording;
    });
    coeus_emulated_graph* recording = stream->recording;
    if (recording && (of_event == recordings.end() || *of_event != recording)) {
        recording->is_void = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (!recording && event->recording != 0) {
        if (of_event == recordings.end()) return cudaErrorCapturedEvent;
        recording = stream->recording = *of_event;
        stream->lane = recording->lanes.size();
        recording->lanes.push_back(stream);
    }
    if (recording)
        recording->nodes.push_back({.lane = stream->lane, .awaited = event->node});
    else
        stream->items.push_back({[] {}, event->mark, event->recorded});
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
    const std::lock_guard lock(mutex);
    stream->recording = new coeus_emulated_graph;
    stream->lane = 0;
    stream->recording->number = ++recorded;
    stream->recording->thread = std::this_thread::get_id();
    stream->recording->lanes = {stream};
    recordings.push_back(stream->recording);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    const std::lock_guard lock(mutex);
    *graph = stream->recording;
    std::erase(recordings, *graph);
    for (coeus_emulated_stream* lane : (*graph)->lanes) lane->recording = nullptr;
    const cudaError_t status = (*graph)->is_void       ? cudaErrorStreamCaptureInvalidated
                               : (*graph)->is_joined() ? cudaSuccess
                                                       : cudaErrorStreamCaptureUnjoined;
    if (status != cudaSuccess) delete std::exchange(*graph, nullptr);
    return status;
}

// As in CUDA, events are only edges between nodes.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    if (nodes) return cudaErrorInvalidValue;
    *count =
        size_t(std::ranges::count_if(graph->nodes, [](const auto& node) { return node.work || node.begin; }));
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long flags) {
    graph_flags = flags;
    *instance = new coeus_emulated_graph(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    delete graph;
    return cudaSuccess;
}

// Each lane becomes a stream that waits for the earlier work of the launching stream; the later work of that
// stream waits for the lanes.
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    struct Launch {
        std::vector<std::unique_ptr<coeus_emulated_stream>> lanes;
        std::vector<coeus_emulated_event> done;  // one event for each node, then one for each lane
        coeus_emulated_event start;
    };
    const auto launch = std::make_shared<Launch>();
    const size_t nodes = graph->nodes.size(), lanes = graph->lanes.size();
    launch->done.resize(nodes + lanes);
    const auto is_done = [](coeus_emulated_event& event) {
        return coeus_emulated_stream::Item{[mark = event.mark] { mark->done = 1; }};
    };
    const auto is_awaited = [](coeus_emulated_event& event) {
        return coeus_emulated_stream::Item{[] {}, event.mark, 1};
    };
    for (size_t lane = 0; lane < lanes; ++lane) {
        launch->lanes.push_back(std::make_unique<coeus_emulated_stream>());
        launch->lanes.back()->items.push_back(is_awaited(launch->start));
    }
    for (size_t n = 0; n < nodes; ++n) {
        const coeus_emulated_graph::Node& node = graph->nodes[n];
        coeus_emulated_stream& lane = *launch->lanes[node.lane];
        if (node.work) lane.items.push_back({.work = node.work, .microseconds = 1});
        if (node.begin) node.begin(&lane);
        if (node.awaited) lane.items.push_back(is_awaited(launch->done[*node.awaited]));
        lane.items.push_back(is_done(launch->done[n]));
    }
    const std::lock_guard lock(mutex);
    ++launched;
    stream->items.push_back(is_done(launch->start));
    for (size_t lane = 0; lane < lanes; ++lane) {
        launch->lanes[lane]->items.push_back(is_done(launch->done[nodes + lane]));
        stream->items.push_back(is_awaited(launch->done[nodes + lane]));
        streams.insert(launch->lanes[lane].get());
    }
    stream->items.push_back({[launch] {
        for (const auto& lane : launch->lanes) streams.erase(lane.get());
    }});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (event->recording != 0) {
        refused([&](const auto& recording) { return recording.number == event->recording; });
        return cudaErrorCapturedEvent;
    }
    size_t times = 0;
    {
        const std::lock_guard lock(mutex);
        times = event->recorded;
    }
    run_until([event, times] { return event->mark->done >= times; });
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (event->recording != 0) {
        refused([&](const auto& recording) { return recording.number == event->recording; });
        return cudaErrorCapturedEvent;
    }
    if (refused_to_thread() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    const std::lock_guard lock(mutex);
    return event->mark->done >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
    const std::lock_guard lock(mutex);
    for (const cudaEvent_t event : {first, last}) {
        if (!event->timed || event->recorded == 0) return cudaErrorInvalidResourceHandle;
        if (event->mark->done < event->recorded) return cudaErrorNotReady;
    }
    *milliseconds = float(1e-3 * (double(last->mark->microseconds) - double(first->mark->microseconds)));
    return cudaSuccess;
}
