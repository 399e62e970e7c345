// SPDX-License-Identifier: Apache-2.0
// Exec: where and how kernels run. First argument of every kernel.
#pragma once

#include "coeus/device/arena.hpp"
#include "coeus/device/device.hpp"

#include <memory>
#include <span>

namespace coeus {

/// Sees every kernel start and end, on a GPU where it is given to the queue; counting, profiling and tracing
/// are observers, not other tables.
class KernelObserver {
public:
    virtual ~KernelObserver() = default;
    /// `flops` and `bytes` (read and written) as the operands say.
    virtual void begin(const char* kernel, double flops, double bytes) = 0;
    /// No kernel, but an exchange with other ranks or a wait for one; end() follows as well.
    virtual void begin_exchange(const char* name, double bytes) { begin(name, 0, bytes); }
    /// The tensors of the call that has just begun, outputs first; absent ones have no shape.
    virtual void operands(std::span<const Tensor>) {}
    virtual void end() = 0;
};

/// What a backend keeps between calls: library handles, plan caches.
class BackendState {
public:
    virtual ~BackendState() = default;
};

struct Exec {
    Exec() = default;
    /// On a device, with a queue of its own.
    explicit Exec(const Device& d) { run_on(d); }
    /// From now on.
    void run_on(const Device& d) {
        device = &d;
        queue = d.make_queue();
    }

    const Device* device = &host_device();
    std::unique_ptr<Queue> queue;        ///< of a GPU; null on the host, where calls return when all is done
    int threads = 1;                     ///< CPU threads of this rank
    Arena workspace;                     ///< scratch of the kernels; sized by the planning run
    KernelObserver* observer = nullptr;  ///< borrowed; none is the usual case
    std::unique_ptr<BackendState> backend;  ///< made by the backend at its first use
};

/// Notes an exchange with other ranks, or a wait for one, where someone observes.
class ObservedExchange {
public:
    ObservedExchange(Exec& exec, const char* name, double bytes = 0) : observer_(exec.observer) {
        if (observer_) observer_->begin_exchange(name, bytes);
    }
    ObservedExchange(Exec& exec, const char* name, const Tensor& tensor)
        : ObservedExchange(exec, name, double(tensor.bytes())) {
        if (observer_) observer_->operands({&tensor, 1});
    }
    ~ObservedExchange() {
        if (observer_) observer_->end();
    }
    ObservedExchange(const ObservedExchange&) = delete;
    ObservedExchange& operator=(const ObservedExchange&) = delete;

private:
    KernelObserver* observer_;
};

}  // namespace coeus
