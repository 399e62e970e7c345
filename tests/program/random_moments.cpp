// SPDX-License-Identifier: Apache-2.0
#include "program/random_moments.hpp"

#include "coeus/base/random.hpp"
#include "support/part.hpp"
#include "support/skip.hpp"

#include <fmt/core.h>

namespace coeus::test {

std::vector<RandomMoment> random_moments(const std::string& name, uint64_t seed, int count) {
    const RandomStream random(seed, name);
    Part part(name + std::to_string(seed), 1, {.check_all = 1, .short_list = 2});
    std::vector<RandomMoment> moments;
    for (int i = 0; i < count; ++i)
        if (part.takes_next())
            moments.push_back({i, random.uniform(part_seed() * uint64_t(count) + uint64_t(i))});
    return moments;
}

void count_missed(int missed, int moments) {
    if (missed == 0) return;
    fmt::print("\n{} of {} random moments missed the run\n", missed, moments);
    if (missed == moments) skip("every random moment missed the run");
}

}  // namespace coeus::test
