// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/counted.hpp"

#include "coeus/base/text.hpp"

namespace coeus {

std::string counted(int64_t count, std::string_view one, std::string_view many) {
    const std::string plural = many.empty() ? std::string(one) + "s" : std::string(many);
    return with_commas(count) + " " + (count == 1 ? std::string(one) : plural);
}

}  // namespace coeus
