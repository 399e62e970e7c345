// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/unit_places.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/random.hpp"
#include "support/catch.hpp"

#include <algorithm>

using namespace coeus;

namespace {

using Bytes = std::vector<int64_t>;

Neighbours chain(size_t units) {
    Neighbours found;
    for (size_t u = 0; u + 1 < units; ++u) found.emplace_back(u, u + 1);
    return found;
}

Neighbours circle(size_t units) {
    Neighbours found = chain(units);
    if (units > 2) found.emplace_back(units - 1, 0);
    return found;
}

// Whether all units are within the buffer and no two neighbours overlap.
bool is_sound(const UnitPlaces& places, const Bytes& bytes, const Neighbours& pairs) {
    for (size_t u = 0; u < bytes.size(); ++u)
        if (places.first[u] < 0 || places.first[u] + bytes[u] > places.bytes) return false;
    return std::ranges::none_of(pairs, [&](const auto& pair) {
        const auto [a, b] = pair;
        return places.first[a] < places.first[b] + bytes[b] && places.first[b] < places.first[a] + bytes[a];
    });
}

// No placement can need less.
int64_t largest_pair(const Bytes& bytes, const Neighbours& pairs) {
    int64_t largest = std::ranges::max(bytes);
    for (const auto& [a, b] : pairs) largest = std::max(largest, bytes[a] + bytes[b]);
    return largest;
}

// The memory that a simple rule would need: even units at the beginning, odd ones at the end, and in an odd
// circle the last but one between its neighbours.
int64_t by_parity(const Bytes& bytes, bool is_circle) {
    const size_t last = bytes.size() - 1;
    int64_t most = largest_pair(bytes, is_circle ? circle(bytes.size()) : chain(bytes.size()));
    if (is_circle && last > 0 && last % 2 == 0)
        most = std::max(most, bytes[last - 2] + bytes[last - 1] + bytes[last]);
    return most;
}

}  // namespace

TEST_CASE("unit places: units of a chain are placed at both ends in turns") {
    const Bytes bytes = {10, 5, 10, 12, 3};
    const UnitPlaces places = place_units(bytes, chain(5));
    CHECK(places.bytes == 22);
    CHECK(places.first == Bytes{0, 17, 0, 10, 0});
    CHECK(place_units(Bytes{7}, {}).first == Bytes{0});
    CHECK(place_units(Bytes{7}, {}).bytes == 7);
    CHECK(place_units(Bytes{}, {}).bytes == 0);
}

TEST_CASE("unit places: neighbours never overlap, and no buffer is larger than with the rule by parity") {
    const RandomStream random(3, "sizes");
    uint64_t draw = 0;
    for (size_t units = 1; units <= 12; ++units)
        for (int trial = 0; trial < 40; ++trial) {
            Bytes bytes(units);
            // zero as well: a stage without parameters of a kind
            for (int64_t& b : bytes) b = int64_t(random.uniform(draw++) * 20);
            for (const bool is_circle : {false, true}) {
                const Neighbours pairs = is_circle ? circle(units) : chain(units);
                CAPTURE(bytes, is_circle);
                const UnitPlaces places = place_units(bytes, pairs);
                CHECK(is_sound(places, bytes, pairs));
                CHECK(places.bytes >= largest_pair(bytes, pairs));
                CHECK(places.bytes <= by_parity(bytes, is_circle));
                if (!is_circle) CHECK(places.bytes == largest_pair(bytes, pairs));
            }
        }
}

TEST_CASE("unit places: a unit that is used again between others is a neighbour of all of them") {
    // an embedding that a head's modules read as well: 0 1 2 3 4, 0 5 4, 0 6 4
    const Bytes bytes = {9, 4, 4, 4, 7, 5, 6};
    Neighbours pairs = chain(5);
    pairs.insert(pairs.end(), {{4, 0}, {0, 5}, {5, 4}, {0, 6}, {6, 4}});
    const UnitPlaces places = place_units(bytes, pairs);
    CHECK(is_sound(places, bytes, pairs));
    CHECK(places.bytes == 9 + 7 + 6);
}

TEST_CASE("unit places: an invalid pair of units is refused") {
    CHECK_THROWS_AS(place_units(Bytes{1, 2}, {{1, 1}}), LogicError);
    CHECK_THROWS_AS(place_units(Bytes{1, 2}, {{0, 2}}), LogicError);
}
