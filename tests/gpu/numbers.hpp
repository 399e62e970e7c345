// SPDX-License-Identifier: Apache-2.0
// Equal numbers in a GPU's memory.
#pragma once

#include "coeus/device/device.hpp"

#include <vector>

namespace coeus::test {

struct Numbers {
    static constexpr int64_t count = 64;
    const Device& device;
    OwnedTensor memory;

    Numbers(const Device& d, float value) : device(d), memory(Dtype::f32, {count}, "numbers", d.memory()) {
        const std::vector<float> all(count, value);
        device.copy(memory.view.data, all.data(), memory.view.bytes());
    }
    float first() const {
        float value = 0;
        device.copy(&value, memory.view.data, sizeof value);
        return value;
    }
};

}  // namespace coeus::test
