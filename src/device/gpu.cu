// SPDX-License-Identifier: Apache-2.0
// GPUs through the CUDA runtime library.
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/device/device.hpp"
#include "coeus/device/gpu_presence.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cuda_runtime.h>

namespace coeus {

namespace {

void check(cudaError_t status, const char* call) {
    if (status != cudaSuccess)
        throw SystemError(fmt::format("CUDA: {}: {}", call, cudaGetErrorString(status)));
}
#define COEUS_CHECK_CUDA(call) check(call, #call)

// The first calls for a GPU fail if another process has it for itself or has left no memory.
void check_opened(cudaError_t status, int number) {
    if (status == cudaSuccess) return;
    cudaGetLastError();
    throw SystemError(
        fmt::format("GPU {} cannot be opened: {}. If another process has it for itself (its compute mode) or "
                    "holds its memory, `nvidia-smi` names it: end it, or choose another GPU "
                    "(CUDA_VISIBLE_DEVICES)",
                    gpu_bus_id(number), cudaGetErrorString(status)));
}

__global__ void any_kernel() {}

// All kernels are built for the same GPUs, so one of them tells whether this GPU is among them. Returns true
// if the program has only PTX for it, which the driver compiles.
bool compiles_kernels_for(const cudaDeviceProp& gpu) {
    cudaFuncAttributes attributes = {};
    const cudaError_t status = cudaFuncGetAttributes(&attributes, any_kernel);
    if (status == cudaSuccess) return attributes.binaryVersion != attributes.ptxVersion;
    cudaGetLastError();
    throw SystemError(
        fmt::format("this program has no kernels for {} (compute capability {}.{}): {}; build it with "
                    "COEUS_CUDA_ARCH={}{}, or give device = \"cpu\"",
                    gpu.name, gpu.major, gpu.minor, cudaGetErrorString(status), gpu.major, gpu.minor));
}

class GpuMemory : public Memory {
public:
    explicit GpuMemory(const std::string& gpu) : gpu_(gpu) {}

    std::byte* take(int64_t bytes, const std::string& what) const override {
        void* data = nullptr;
        if (const cudaError_t status = cudaMalloc(&data, size_t(bytes)); status != cudaSuccess) {
            cudaGetLastError();  // clears the error, which the next call would report again
            throw SystemError(fmt::format("cannot get {} of {} for {}: {}", bytes_text(double(bytes)), gpu_,
                                          what, cudaGetErrorString(status)));
        }
        COEUS_CHECK_CUDA(cudaMemset(data, 0, size_t(bytes)));
        COEUS_CHECK_CUDA(cudaDeviceSynchronize());  // queues do not wait for the memset
        // the peak is exact if one thread allocates, as at the start of a run
        const int64_t now = taken_ += bytes;
        peak_ = std::max(peak_.load(), now);
        return static_cast<std::byte*>(data);
    }
    void give_back(std::byte* data, int64_t bytes) const override {
        cudaFree(data);  // fails only after an error that was already reported
        taken_ -= bytes;
    }
    bool is_host() const override { return false; }
    int64_t peak_bytes() const { return peak_; }

private:
    const std::string& gpu_;
    mutable std::atomic<int64_t> taken_ = 0, peak_ = 0;
};

class PinnedMemory : public Memory {
public:
    std::byte* take(int64_t bytes, const std::string& what) const override {
        void* data = nullptr;
        if (const cudaError_t status = cudaMallocHost(&data, size_t(bytes)); status != cudaSuccess) {
            cudaGetLastError();
            throw SystemError(fmt::format("cannot get {} of pinned memory for {}: {}",
                                          bytes_text(double(bytes)), what, cudaGetErrorString(status)));
        }
        std::fill_n(static_cast<std::byte*>(data), bytes, std::byte(0));
        return static_cast<std::byte*>(data);
    }
    void give_back(std::byte* data, int64_t /*bytes*/) const override { cudaFreeHost(data); }
};

class GpuGraph : public Graph {
public:
    explicit GpuGraph(cudaGraph_t recorded) {
        const cudaError_t counted = cudaGraphGetNodes(recorded, nullptr, &nodes_);
        // without the flag, all nodes have the priority of the queue that launches the graph
        const cudaError_t status =
            cudaGraphInstantiate(&graph_, recorded, cudaGraphInstantiateFlagUseNodePriority);
        cudaGraphDestroy(recorded);
        check(counted, "cudaGraphGetNodes");
        check(status, "cudaGraphInstantiate");
    }
    ~GpuGraph() override { cudaGraphExecDestroy(graph_); }
    GpuGraph(const GpuGraph&) = delete;
    GpuGraph& operator=(const GpuGraph&) = delete;
    int64_t nodes() const override { return int64_t(nodes_); }
    cudaGraphExec_t native() const { return graph_; }

private:
    cudaGraphExec_t graph_ = nullptr;
    size_t nodes_ = 0;
};

class GpuEvent : public Event {
public:
    explicit GpuEvent(int gpu) : gpu_(gpu) {
        COEUS_CHECK_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    }
    ~GpuEvent() override { cudaEventDestroy(event_); }
    void record(const Queue& queue) override {
        COEUS_CHECK_CUDA(cudaEventRecord(event_, static_cast<cudaStream_t>(queue.native())));
    }
    // sets the device: a thread that has used no GPU yet would allocate memory on another one
    bool passed() const override {
        cudaSetDevice(gpu_);
        return cudaEventQuery(event_) == cudaSuccess;
    }
    cudaEvent_t native() const { return event_; }

private:
    int gpu_;
    cudaEvent_t event_ = nullptr;
};

class GpuQueue : public Queue {
public:
    GpuQueue(int gpu, const GpuOptions& options, Priority priority) : gpu_(gpu) {
        int least = 0, greatest = 0;
        if (options.priorities) COEUS_CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        COEUS_CHECK_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                                      priority == Priority::high ? greatest : least));
        // waits for events do not follow the flags of the device
        const unsigned flags =
            cudaEventDisableTiming | (options.waiting == Waiting::asleep ? cudaEventBlockingSync : 0u);
        for (cudaEvent_t& event : marks_) COEUS_CHECK_CUDA(cudaEventCreateWithFlags(&event, flags));
    }
    ~GpuQueue() override {
        cudaStreamSynchronize(stream_);
        for (const cudaEvent_t event : marks_) cudaEventDestroy(event);
        cudaStreamDestroy(stream_);
    }

    bool is_synchronous() const override { return false; }
    void copy(void* to, const void* from, int64_t bytes) override {
        if (bytes > 0) COEUS_CHECK_CUDA(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, stream_));
    }
    void finish() override { COEUS_CHECK_CUDA(cudaStreamSynchronize(stream_)); }
    int64_t mark() override {
        const int64_t point = given_++;
        COEUS_CHECK_CUDA(cudaEventRecord(event_of(point), stream_));
        return point;
    }
    void finish(int64_t point) override { COEUS_CHECK_CUDA(cudaEventSynchronize(event_of(point))); }
    void wait_for(const Queue& other, int64_t point) override {
        COEUS_CHECK_CUDA(
            cudaStreamWaitEvent(stream_, static_cast<const GpuQueue&>(other).event_of(point), 0));
    }
    void wait_for(const Event& event) override {
        COEUS_CHECK_CUDA(cudaStreamWaitEvent(stream_, static_cast<const GpuEvent&>(event).native(), 0));
    }
    // thread-local: other threads may wait for their own queues during the recording
    void begin_recording() override {
        COEUS_CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    }
    std::unique_ptr<Graph> end_recording() override {
        cudaGraph_t recorded = nullptr;
        COEUS_CHECK_CUDA(cudaStreamEndCapture(stream_, &recorded));
        return std::make_unique<GpuGraph>(recorded);
    }
    void give(const Graph& graph) override {
        COEUS_CHECK_CUDA(cudaGraphLaunch(static_cast<const GpuGraph&>(graph).native(), stream_));
    }
    bool is_recording() const override {
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        COEUS_CHECK_CUDA(cudaStreamIsCapturing(stream_, &status));
        return status != cudaStreamCaptureStatusNone;
    }
    void enter_thread() const override { COEUS_CHECK_CUDA(cudaSetDevice(gpu_)); }
    void* native() const override { return stream_; }

private:
    cudaEvent_t event_of(int64_t point) const { return marks_[size_t(point) % marks_.size()]; }

    int gpu_;
    cudaStream_t stream_ = nullptr;
    std::array<cudaEvent_t, 64> marks_ = {};  // so many points can be told apart
    std::atomic<int64_t> given_ = 0;
};

class GpuTimedEvent : public TimedEvent {
public:
    GpuTimedEvent() { COEUS_CHECK_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDefault)); }
    ~GpuTimedEvent() override { cudaEventDestroy(event_); }
    GpuTimedEvent(const GpuTimedEvent&) = delete;
    GpuTimedEvent& operator=(const GpuTimedEvent&) = delete;
    void record(const Queue& queue) override {
        COEUS_CHECK_CUDA(cudaEventRecord(event_, static_cast<cudaStream_t>(queue.native())));
    }
    double seconds_since(const TimedEvent& earlier) const override {
        const cudaEvent_t first = static_cast<const GpuTimedEvent&>(earlier).event_;
        for (const cudaEvent_t event : {first, event_}) COEUS_CHECK_CUDA(cudaEventSynchronize(event));
        float milliseconds = 0;
        COEUS_CHECK_CUDA(cudaEventElapsedTime(&milliseconds, first, event_));
        return 1e-3 * double(milliseconds);
    }

private:
    cudaEvent_t event_ = nullptr;
};

class Gpu : public Device {
public:
    Gpu(int number, const GpuOptions& options) : number_(number), options_(options) {
        check_opened(cudaSetDevice(number), number);
        if (options.waiting == Waiting::asleep)
            COEUS_CHECK_CUDA(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
        COEUS_CHECK_CUDA(cudaGetDeviceProperties(&properties_, number));
        name_ = properties_.name;
        compiles_kernels_ = compiles_kernels_for(properties_);
        size_t total = 0, free = 0;
        check_opened(cudaMemGetInfo(&free, &total), number);
        free_bytes_ = int64_t(free);
    }

    Backend backend() const override { return Backend::cuda; }
    const std::string& name() const override { return name_; }
    const Memory& memory() const override { return memory_; }
    const Memory& staging() const override { return pinned_; }
    std::unique_ptr<Queue> make_queue(Priority priority) const override {
        return std::make_unique<GpuQueue>(number_, options_, priority);
    }
    std::unique_ptr<Event> make_event() const override { return std::make_unique<GpuEvent>(number_); }
    std::unique_ptr<TimedEvent> make_timed_event() const override {
        return std::make_unique<GpuTimedEvent>();
    }
    void copy(void* to, const void* from, int64_t bytes) const override {
        COEUS_CHECK_CUDA(cudaDeviceSynchronize());
        COEUS_CHECK_CUDA(cudaMemcpy(to, from, size_t(bytes), cudaMemcpyDefault));
        // from pageable memory it may return before the copy is done, and queues do not wait for it
        COEUS_CHECK_CUDA(cudaDeviceSynchronize());
    }
    int architecture() const override { return 10 * properties_.major + properties_.minor; }
    int multiprocessors() const override { return properties_.multiProcessorCount; }
    bool compiles_kernels() const override { return compiles_kernels_; }
    int64_t memory_bytes() const override { return free_bytes_; }
    int64_t peak_bytes() const override { return memory_.peak_bytes(); }
    int64_t taken_bytes() const override { return free_bytes_ - free_now(); }
    std::string bus_id() const override { return gpu_bus_id(number_); }

private:
    static int64_t free_now() {
        size_t free = 0, total = 0;
        COEUS_CHECK_CUDA(cudaMemGetInfo(&free, &total));
        return int64_t(free);
    }

    int number_;
    GpuOptions options_;
    cudaDeviceProp properties_ = {};
    std::string name_;
    GpuMemory memory_{name_};
    PinnedMemory pinned_;
    int64_t free_bytes_ = 0;  // when the run began
    bool compiles_kernels_ = false;
};

struct GpuCount {
    int number = 0;
    cudaError_t status = cudaSuccess;
};
GpuCount count_gpus() {
    GpuCount count;
    count.status = cudaGetDeviceCount(&count.number);
    if (count.status == cudaSuccess) return count;
    cudaGetLastError();
    return {.status = count.status};
}

}  // namespace

int visible_gpus() {
    return count_gpus().number;
}

bool built_with_cuda() {
    return true;
}

bool cuda_fails() {
    const cudaError_t status = count_gpus().status;
    return status != cudaSuccess && status != cudaErrorNoDevice;
}

CudaVersions cuda_versions() {
    CudaVersions versions;
    // without a driver, the first call succeeds and gives 0
    if (cudaDriverGetVersion(&versions.driver) != cudaSuccess) versions.driver = 0;
    COEUS_CHECK_CUDA(cudaRuntimeGetVersion(&versions.toolkit));
    return versions;
}

std::string why_no_gpu() {
    const auto [number, status] = count_gpus();
    if (number > 0) return "";
    if (status == cudaSuccess || status == cudaErrorNoDevice)
        return "no GPU is visible (CUDA_VISIBLE_DEVICES hides them?)";
    if (status == cudaErrorInsufficientDriver)
        return insufficient_driver_text(cuda_versions(), driver_version());
    return fmt::format("CUDA reports \"{}\"", cudaGetErrorString(status));
}

std::string gpu_bus_id(int number) {
    const auto part = [&](cudaDeviceAttr which) {
        int value = 0;
        COEUS_CHECK_CUDA(cudaDeviceGetAttribute(&value, which, number));
        return value;
    };
    return fmt::format("{:04x}:{:02x}:{:02x}.0", part(cudaDevAttrPciDomainId), part(cudaDevAttrPciBusId),
                       part(cudaDevAttrPciDeviceId));
}

std::unique_ptr<Device> open_gpu(int number, const GpuOptions& options) {
    return std::make_unique<Gpu>(number, options);
}

}  // namespace coeus
