// SPDX-License-Identifier: Apache-2.0
// Exec: where and how kernels run. It is the first argument of every kernel.
#pragma once

#include "coeus/device/arena.hpp"
#include "coeus/device/device.hpp"
#include "coeus/device/observers.hpp"

#include <memory>

namespace coeus {

/// State that a backend keeps between calls: library handles, caches of plans.
class BackendState {
public:
    virtual ~BackendState() = default;
};

/// What the workspace of kernels depends on, besides their operands.
struct Processor {
    int threads = 1;  ///< CPU threads of this rank
    /// That of the GPU, as in Device. Plans are for this GPU, or (0) for the one that needs the most
    /// workspace.
    int architecture = 0;
    /// Products of 8-bit floats are computed in bfloat16, also if the GPU has products of 8-bit floats.
    bool emulates_8_bits = false;
    /// The most workspace that cuDNN may use for the gradients of attention; 0: our own kernels compute
    /// attention.
    int64_t cudnn_bytes = 0;
    /// Kernels give the same bits each time. If false, cuDNN may add with atomics.
    bool deterministic = true;
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
