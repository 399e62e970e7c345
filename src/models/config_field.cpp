// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/config_field.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>

namespace coeus {

std::string divisors_near(int64_t n, int64_t value) {
    int64_t below = std::min(value, n), above = value;
    while (below > 1 && n % below != 0) --below;
    while (above < n && n % above != 0) ++above;
    return above > n || above == below ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

}  // namespace coeus
