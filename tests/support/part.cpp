// SPDX-License-Identifier: Apache-2.0
#include "support/part.hpp"

#include <cstdlib>

namespace coeus::test {

namespace {

bool takes_every_case() {
    const char* const every = std::getenv("COEUS_EVERY_CASE");
    return every && std::string_view(every) == "1";
}

}  // namespace

Part::Part(std::string_view name, int ranks, int one_of, int number)
    : random_(uint64_t(ranks), name),
      one_of_(takes_every_case() ? 1 : uint64_t(one_of)),
      number_(uint64_t(number)) {}

bool Part::takes_next() {
    const uint64_t place = next_++;
    return place % one_of_ == (random_.u64(place / one_of_) + number_) % one_of_;
}

}  // namespace coeus::test
