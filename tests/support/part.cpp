// SPDX-License-Identifier: Apache-2.0
#include "support/part.hpp"

#include <cstdlib>

namespace coeus::test {

namespace {

uint64_t environment(const char* name, uint64_t otherwise) {
    const char* const value = std::getenv(name);
    return value && *value ? std::strtoull(value, nullptr, 10) : otherwise;
}

uint64_t this_lists(OneOf one_of) {
    if (environment("COEUS_EVERY_CASE", 0) == 1) return 1;
    if (environment("COEUS_CHECK_ALL", 0) == 1) return uint64_t(one_of.check_all);
    // what is always run stays so
    return uint64_t(one_of.short_list) * (one_of.short_list > 1 ? environment("COEUS_PARTS", 1) : 1);
}

}  // namespace

uint64_t part_seed() {
    return environment("COEUS_PART_SEED", 0);
}

Part::Part(std::string_view name, int ranks, OneOf one_of, int number)
    : random_(uint64_t(ranks), name), one_of_(this_lists(one_of)), shift_(uint64_t(number) + part_seed()) {}

bool Part::takes_next() {
    const uint64_t place = next_++;
    return place % one_of_ == (random_.u64(place / one_of_) + shift_) % one_of_;
}

}  // namespace coeus::test
