// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/config_field.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>

namespace coeus {

std::string divisors_near(int64_t n, int64_t value, int64_t most) {
    most = std::min(most, n);
    int64_t below = std::min(value, most), above = value;
    while (below > 1 && n % below != 0) --below;
    while (above <= most && n % above != 0) ++above;
    return above > most || above == below ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

}  // namespace coeus
