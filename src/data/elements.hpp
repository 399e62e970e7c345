// SPDX-License-Identifier: Apache-2.0
// Little-endian whole numbers of 1 to 8 bytes, at any address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace coeus {

template <class T>
T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

/// Numbers of fewer than 8 bytes count as without sign.
inline int64_t element_at(const std::byte* place, int64_t width) {
    if (width == 1) return int64_t(*place);
    if (width == 2) return load<uint16_t>(place);
    if (width == 4) return load<uint32_t>(place);
    return load<int64_t>(place);
}

}  // namespace coeus
