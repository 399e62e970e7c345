// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/turns.hpp"

#include "support/catch.hpp"

#include <stdexcept>
#include <string>
#include <tuple>

using namespace coeus;

namespace {

// Appends `letter` three times, and gives the other one its turn after each.
void write(Turns& turns, std::string& text, char letter, int times) {
    for (int i = 0; i < times; ++i) {
        text += letter;
        turns.change();
    }
}

// Appends a letter when its scope ends.
struct AtEnd {
    std::string& text;
    char letter;
    ~AtEnd() { text += letter; }
};

}  // namespace

TEST_CASE("turns: two functions alternate, and the longer one continues by itself") {
    Turns turns;
    for (const auto& [first, second, should] :
         {std::tuple(3, 3, "ababab"), std::tuple(1, 4, "abbbb"), std::tuple(4, 1, "abaaa"),
          std::tuple(0, 2, "bb"), std::tuple(2, 0, "aa"), std::tuple(0, 0, "")}) {
        std::string text;
        turns.run([&, times = first] { write(turns, text, 'a', times); },
                  [&, times = second] { write(turns, text, 'b', times); });
        CHECK(text == should);
        CHECK_FALSE(turns.are_taken());
    }
}

TEST_CASE("turns: nobody else has a turn after one of them has ended") {
    Turns turns;
    bool first_sees = false, second_sees = false;
    turns.run([&] { first_sees = turns.are_taken(); }, [&] { second_sees = turns.are_taken(); });
    CHECK(first_sees);
    CHECK_FALSE(second_sees);
    turns.run(
        [&] {
            turns.change();
            first_sees = turns.are_taken();
        },
        [&] { second_sees = turns.are_taken(); });
    CHECK_FALSE(first_sees);
    CHECK(second_sees);
}

TEST_CASE("turns: a change outside of them has no effect") {
    Turns turns;
    turns.change();
    turns.run([&] {}, [&] {});
    turns.change();
    CHECK_FALSE(turns.are_taken());
}

TEST_CASE("turns: the first of them fails, and the second is unwound") {
    Turns turns;
    for (const int before : {0, 1, 2}) {
        std::string text;
        const auto first = [&] {
            const AtEnd end{text, 'A'};
            write(turns, text, 'a', before);
            throw std::runtime_error("first");
        };
        const auto second = [&] {
            const AtEnd end{text, 'B'};
            write(turns, text, 'b', 5);
        };
        CHECK_THROWS_WITH(turns.run(first, second), "first");
        // a function that has not begun when the other fails does not begin any more
        CHECK(text == (before == 0 ? "A" : before == 1 ? "abAB" : "ababAB"));
    }
    std::string text;
    turns.run([&] { write(turns, text, 'a', 1); }, [&] { write(turns, text, 'b', 1); });
    CHECK(text == "ab");
}

TEST_CASE("turns: the second of them fails, and the first is unwound with its exception") {
    Turns turns;
    for (const int before : {0, 1, 2}) {
        std::string text;
        const auto first = [&] {
            const AtEnd end{text, 'A'};
            write(turns, text, 'a', 5);
        };
        const auto second = [&] {
            const AtEnd end{text, 'B'};
            write(turns, text, 'b', before);
            throw std::runtime_error("second");
        };
        CHECK_THROWS_WITH(turns.run(first, second), "second");
        CHECK(text == (before == 0 ? "aBA" : before == 1 ? "abaBA" : "ababaBA"));
    }
}
