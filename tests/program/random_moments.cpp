// SPDX-License-Identifier: Apache-2.0
#include "program/random_moments.hpp"

#include "coeus/base/random.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/part.hpp"
#include "support/skip.hpp"

#include <fmt/core.h>

#include <set>

namespace coeus::test {

std::vector<RandomMoment> random_moments(const std::string& name, uint64_t seed, int count) {
    const RandomStream random(seed, name);
    Part part(name + std::to_string(seed), 1, {.check_all = 1, .short_list = 2});
    std::vector<RandomMoment> moments;
    for (int i = 0; i < count; ++i)
        if (part.takes_next())
            moments.push_back({i, random.uniform(part_seed() * uint64_t(count) + uint64_t(i))});
    if (moments.empty()) moments.push_back({0, random.uniform(part_seed() * uint64_t(count))});
    return moments;
}

void count_missed(int missed, int moments) {
    if (missed == 0) return;
    fmt::print("\n{} of {} random moments missed the run\n", missed, moments);
    if (missed == moments) skip("every random moment missed the run");
}

}  // namespace coeus::test

using namespace coeus;
using namespace coeus::test;

TEST_CASE("program: a test's random moments differ by seed, and the short list has half of them") {
    const EnvironmentVariable every("COEUS_EVERY_CASE", ""), parts("COEUS_PARTS", "");
    const auto drawn = [](const char* check_all, const char* part_seed) {
        const EnvironmentVariable list("COEUS_CHECK_ALL", check_all), seed("COEUS_PART_SEED", part_seed);
        return random_moments("moments", 3, 10);
    };
    const std::vector<RandomMoment> whole = drawn("1", "0"), first = drawn("", "0"), second = drawn("", "1");
    REQUIRE(whole.size() == 10);
    const RandomStream random(3, "moments");
    for (int i = 0; i < 10; ++i) {
        CHECK(whole[size_t(i)].number == i);
        CHECK(whole[size_t(i)].place == random.uniform(uint64_t(i)));
    }
    CHECK(first.size() == 5);
    CHECK(second.size() == 5);
    std::set<int> numbers;
    for (const RandomMoment& m : first) {
        numbers.insert(m.number);
        CHECK(m.place == whole[size_t(m.number)].place);
    }
    for (const RandomMoment& m : second) {
        numbers.insert(m.number);
        CHECK(m.place != whole[size_t(m.number)].place);
    }
    CHECK(numbers.size() == 10);
}
