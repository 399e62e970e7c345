// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/state_snapshot.hpp"

namespace coeus {

int64_t StateSnapshot::bytes(const Parameters& parameters) {
    const Parameters::Bytes here = parameters.bytes(true), offloaded = parameters.offloaded_bytes();
    return here.master + here.moments + offloaded.master + offloaded.moments;
}

StateSnapshot::StateSnapshot(const Parameters& parameters, Exec& exec)
    : parameters_(parameters),
      exec_(exec),
      memory_(bytes(parameters), "in-memory snapshot", exec.device->staging()) {}

namespace {

// Calls each(part) for all memory of the state, in one order.
template <class Each>
void for_each_part(const Parameters& parameters, const Each& each) {
    for (const std::span<std::byte> part : parameters.owned_state()) each(part);
    each(parameters.exact_state());
}

}  // namespace

void StateSnapshot::take() {
    std::byte* at = memory_.data();
    for_each_part(parameters_, [&](std::span<std::byte> part) {
        exec_.queue->copy(at, part.data(), int64_t(part.size()));
        at += part.size();
    });
}

void StateSnapshot::restore() const {
    const std::byte* at = memory_.data();
    for_each_part(parameters_, [&](std::span<std::byte> part) {
        exec_.queue->copy(part.data(), at, int64_t(part.size()));
        at += part.size();
    });
}

}  // namespace coeus
