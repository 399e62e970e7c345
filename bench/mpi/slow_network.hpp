// SPDX-License-Identifier: Apache-2.0
// SlowNetwork: gives communication extra latency that takes no processor time, as on a network.
#pragma once

#include "coeus/observe/tracer.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace coeus {

/// Forwards everything to a tracer. A collective or message for whose communicator `is_slow` holds takes
/// `latency` longer.
class SlowNetwork : public CommunicationObserver {
public:
    SlowNetwork(Tracer& tracer, std::chrono::milliseconds latency,
                std::function<bool(const std::string& communicator)> is_slow)
        : tracer_(tracer), latency_(latency), is_slow_(std::move(is_slow)) {}
    int64_t begin(const std::string& communicator, const char* operation, int64_t bytes,
                  const std::source_location& where, const Queue* queue) override {
        const int64_t event = tracer_.begin(communicator, operation, bytes, where, queue);
        if (is_slow_(communicator)) std::this_thread::sleep_for(latency_);
        return event;
    }
    void end(int64_t event) override { tracer_.end(event); }

private:
    Tracer& tracer_;
    std::chrono::milliseconds latency_;
    std::function<bool(const std::string& communicator)> is_slow_;
};

}  // namespace coeus
