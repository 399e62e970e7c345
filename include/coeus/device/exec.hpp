// SPDX-License-Identifier: Apache-2.0
// Exec: where and how kernels run. First argument of every kernel.
#pragma once

#include "coeus/device/arena.hpp"
#include "coeus/device/device.hpp"
#include "coeus/device/observers.hpp"

#include <memory>

namespace coeus {

/// What a backend keeps between calls: library handles, plan caches.
class BackendState {
public:
    virtual ~BackendState() = default;
};

struct Exec {
    /// On the host.
    Exec() : Exec(host_device()) {}
    /// On a device, with a queue of its own.
    explicit Exec(const Device& d) : device(&d), queue(d.make_queue()) {}
    /// From now on.
    void run_on(const Device& d) {
        device = &d;
        queue = d.make_queue();
    }
    /// Calls return when their work is done.
    bool is_synchronous() const { return queue->is_synchronous(); }

    const Device* device;
    std::unique_ptr<Queue> queue;           ///< never null
    int threads = 1;                        ///< CPU threads of this rank
    Arena workspace;                        ///< scratch of the kernels; sized by the planning run
    Observers observers;                    ///< of what runs here; none is the usual case
    std::unique_ptr<BackendState> backend;  ///< made by the backend at its first use
};

/// Notes an exchange with other ranks, or a wait for one, where someone observes.
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
