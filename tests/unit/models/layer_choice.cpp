// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/layer_choice.hpp"

#include "support/catch.hpp"

using namespace coeus;

namespace {

LayerChoice of(const std::string& list) {
    std::vector<bool> has;
    for (const char c : list) has.push_back(c == '1');
    return LayerChoice::of(has, {});
}

}  // namespace

TEST_CASE("a choice of layers has the layers of its list, whatever they are") {
    for (size_t layers = 1; layers <= 10; ++layers)
        for (uint32_t mask = 0; mask < 1u << layers; ++mask) {
            std::vector<bool> has;
            for (size_t i = 0; i < layers; ++i) has.push_back((mask >> i & 1) != 0);
            const LayerChoice choice = LayerChoice::of(has, {});
            int64_t before = 0;
            bool is_right = choice.before(0) == 0;
            for (size_t i = 0; i < layers; ++i) {
                before += has[i] ? 1 : 0;
                is_right &= choice.has(int64_t(i)) == has[i] && choice.before(int64_t(i) + 1) == before;
            }
            CAPTURE(layers, mask, choice.period, choice.first, choice.word);
            CHECK(is_right);
        }
}

TEST_CASE("a choice of layers has its shortest form") {
    CHECK(of("0000") == LayerChoice{.period = 0});
    CHECK(of("1111") == LayerChoice{});
    CHECK(of("0011") == LayerChoice{.first = 2});
    CHECK(of("0101") == LayerChoice{.period = 2, .first = 1});
    CHECK(of("1000") == LayerChoice{.word = "1000"});
    CHECK(of("0010") == LayerChoice{.word = "0010"});
    CHECK(of("1") == LayerChoice{});
    CHECK(of("0001") == LayerChoice{.first = 3});
    CHECK(of("110110") == LayerChoice{.word = "110"});
    CHECK(of("11011011") == LayerChoice{.word = "110"});  // Gemma's last layers
    CHECK(of("11011") == LayerChoice{.word = "11011"});   // once is not a rule
    CHECK(of("110100") == LayerChoice{.word = "110100"});
}

TEST_CASE("a word says which layers a longer model has, and a list does not") {
    const LayerChoice word = of("110110");
    CHECK(word.has(6));
    CHECK_FALSE(word.has(8));
    CHECK(word.before(100) == 67);
    CHECK_FALSE(word.is_list(6));
    CHECK(of("110100").is_list(6));
    CHECK_FALSE(of("010101").is_list(6));
    // a single layer: only if it is the last one, all further ones are like it
    CHECK(of("1000").is_list(4));
    CHECK(of("10").is_list(2));
    CHECK_FALSE(of("0001").is_list(4));
    CHECK(of("0001").has(4));
    // the usual choice is a rule
    const LayerChoice every_second = {.period = 2}, fourth = {.period = 4, .first = 3};
    CHECK(LayerChoice::of({true, false}, every_second) == every_second);
    CHECK(LayerChoice::of({false, false, false, true, false}, fourth) == fourth);
    CHECK(LayerChoice::of({true, false, false}, every_second) == LayerChoice{.word = "100"});
    CHECK(LayerChoice::of({true, false, false, true}, {.word = "1001"}) == LayerChoice{.period = 3});
}
