// SPDX-License-Identifier: Apache-2.0
// Exec: where and how kernels run. First argument of every kernel.
#pragma once

#include "coeus/device/arena.hpp"

#include <memory>
#include <span>

namespace coeus {

/// Sees every kernel start and end; counting, profiling and tracing are observers, not other tables.
class KernelObserver {
public:
    virtual ~KernelObserver() = default;
    /// `flops` and `bytes` (read and written) as the operands say.
    virtual void begin(const char* kernel, double flops, double bytes) = 0;
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
    int threads = 1;                        ///< CPU threads of this rank
    Arena workspace;                        ///< scratch of the kernels; sized by the planning run
    KernelObserver* observer = nullptr;     ///< borrowed; none is the usual case
    std::unique_ptr<BackendState> backend;  ///< made by the backend at its first use
};

/// Notes work that is no kernel, an exchange of `tensor` between ranks, where someone observes.
class ObservedWork {
public:
    ObservedWork(Exec& exec, const char* name, const Tensor& tensor) : observer_(exec.observer) {
        if (!observer_) return;
        observer_->begin(name, 0, double(tensor.bytes()));
        observer_->operands({&tensor, 1});
    }
    ~ObservedWork() {
        if (observer_) observer_->end();
    }
    ObservedWork(const ObservedWork&) = delete;
    ObservedWork& operator=(const ObservedWork&) = delete;

private:
    KernelObserver* observer_;
};

}  // namespace coeus
