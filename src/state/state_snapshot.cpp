// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/state_snapshot.hpp"

#include <cstring>

namespace coeus {

int64_t StateSnapshot::bytes(const Parameters& parameters) {
    const Parameters::Bytes here = parameters.bytes(true), offloaded = parameters.offloaded_bytes();
    return here.master + here.moments + offloaded.master + offloaded.moments;
}

StateSnapshot::StateSnapshot(const Parameters& parameters, Exec& exec)
    : parameters_(parameters),
      exec_(exec),
      memory_(bytes(parameters), "in-memory snapshot", exec.device->staging()) {}

void StateSnapshot::take() {
    std::byte* at = memory_.data();
    for (const std::span<std::byte> part : parameters_.owned_state()) {
        copy(at, part.data(), int64_t(part.size()));
        at += part.size();
    }
}

void StateSnapshot::restore() const {
    const std::byte* at = memory_.data();
    for (const std::span<std::byte> part : parameters_.owned_state()) {
        copy(part.data(), at, int64_t(part.size()));
        at += part.size();
    }
}

void StateSnapshot::copy(void* to, const void* from, int64_t bytes) const {
    if (exec_.queue)
        exec_.queue->copy(to, from, bytes);
    else
        std::memcpy(to, from, size_t(bytes));
}

}  // namespace coeus
