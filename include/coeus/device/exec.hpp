// SPDX-License-Identifier: Apache-2.0
// Exec: where and how kernels run. It is the first argument of every kernel.
#pragma once

#include "coeus/device/arena.hpp"
#include "coeus/device/device.hpp"
#include "coeus/device/observers.hpp"

#include <array>
#include <memory>
#include <optional>

namespace coeus {

/// State that a backend keeps between calls: library handles, caches of plans.
class BackendState {
public:
    virtual ~BackendState() = default;
};

/// Processor::chunk_bytes of a CPU: a chunk stays in the last-level cache until the next kernels read it.
inline constexpr int64_t cpu_chunk_bytes = int64_t(8) << 20;
/// Those of a GPU, the preferred one first. No cache holds a chunk, so what counts is how often the operands
/// that do not depend on the rows pass through memory. For each chunk of logits the weight [V, D] is read
/// twice in bf16 and its f32 gradient is read and written: 12 V D bytes for 6 rows V D operations. That is
/// rows / 2 operations per byte, while an H100 does 300 operations in the time of a byte. With a vocabulary
/// of 128256, chunks have 4160 or 1024 rows, and the bytes take 14 or 59 % of the operations' time, of which
/// only a part is hidden.
inline constexpr std::array<int64_t, 2> gpu_chunk_bytes = {int64_t(1) << 30, int64_t(256) << 20};

/// What the memory that layers and kernels use depends on, besides the shapes.
struct Processor {
    int threads = 1;  ///< CPU threads of this rank
    /// That of the GPU, as in Device. Plans are for this GPU, or (0) for the one that needs the most
    /// workspace.
    int architecture = 0;
    /// Products of 8-bit floats are computed in bfloat16, also if the GPU has products of 8-bit floats.
    bool emulates_8_bits = false;
    /// Products of experts' rows multiply 8-bit floats as they are; if false, these are decoded first. Not
    /// set: as is faster on the GPU (experts_multiply_8_bits).
    std::optional<bool> experts_in_8_bits = {};
    /// The most workspace that cuDNN may use for the gradients of attention; 0: our own kernels compute
    /// attention.
    int64_t cudnn_bytes = 0;
    /// Kernels give the same bits each time. If false, cuDNN may add with atomics.
    bool deterministic = true;
    /// Preferred size of an intermediate result that one product writes and the next kernels read. Layers
    /// that may process rows in chunks choose chunks of about this size.
    int64_t chunk_bytes = cpu_chunk_bytes;
};

struct Exec : Processor {
    /// Runs on the host.
    Exec() : Exec(host_device()) {}
    /// Runs on a device, with a queue of its own.
    explicit Exec(const Device& d, Priority priority = Priority::normal) { run_on(d, priority); }
    /// Plans for a processor, or runs on the host.
    explicit Exec(const Processor& processor) : Exec() { static_cast<Processor&>(*this) = processor; }
    /// Moves to another device, with a new queue there.
    void run_on(const Device& d, Priority priority = Priority::normal) {
        device = &d;
        queue = d.make_queue(priority);
        architecture = d.architecture();
    }
    /// True if calls return after their work is done.
    bool is_synchronous() const { return queue->is_synchronous(); }

    const Device* device = nullptr;         ///< never null
    std::unique_ptr<Queue> queue;           ///< never null
    Arena workspace;                        ///< scratch memory of the kernels; sized by the planning run
    Observers observers;                    ///< of what runs here; usually none
    std::unique_ptr<BackendState> backend;  ///< made by the backend at its first use
};

/// Reports an exchange with other ranks, or a wait for one, to the Exec's observers for the length of a
/// scope.
class ObservedExchange {
public:
    ObservedExchange(Exec& exec, Exchange exchange, double bytes = 0)
        : observers_(exec.observers.none() ? nullptr : &exec.observers) {
        if (observers_) observers_->begin_exchange(exchange, bytes);
    }
    ObservedExchange(Exec& exec, Exchange exchange, const Tensor& tensor)
        : ObservedExchange(exec, exchange, double(tensor.bytes())) {
        if (observers_) observers_->operands({&tensor, 1});
    }
    ~ObservedExchange() {
        if (observers_) observers_->end();
    }
    ObservedExchange(const ObservedExchange&) = delete;
    ObservedExchange& operator=(const ObservedExchange&) = delete;

private:
    const Observers* observers_;
};

}  // namespace coeus
