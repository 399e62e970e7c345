// SPDX-License-Identifier: Apache-2.0
// Pickles made by hand: plain data is read, everything else is refused with a message, and no code runs.
#include "coeus/file/pickle.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/random.hpp"
#include "support/catch.hpp"
#include "support/pickle_writer.hpp"

using namespace coeus;
using namespace coeus::test::pickled;
using Catch::Contains;

namespace {

constexpr std::string_view allowed[] = {"torch.Size", "a.b.Class", Pickle::persistent};

/// A pickle and the bytes that its texts refer to.
struct Made {
    std::string bytes;
    Pickle read;
    explicit Made(const Code& value)
        : bytes(pickle(value)), read(std::as_bytes(std::span(bytes)), "a file", allowed) {}
    const PickleValue& root() const { return read.root(); }
};

std::string refusal_of_bytes(const std::string& bytes) {
    try {
        const Pickle read(std::as_bytes(std::span(bytes)), "a file", allowed);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "read without complaint";
}
std::string refusal_of(const Code& value) {
    return refusal_of_bytes(pickle(value));
}
const std::string zeros(16, '\0');

}  // namespace

TEST_CASE("pickle: plain data", "[pickle]") {
    CHECK(Made(none()).root().is_none());
    CHECK(*Made(boolean(true)).root().as<bool>());
    CHECK_FALSE(*Made(boolean(false)).root().as<bool>());
    CHECK(*Made("K\xff").root().integer() == 255);
    CHECK(*Made("M\xff\xff").root().integer() == 65535);
    CHECK(*Made("J\xfe\xff\xff\xff").root().integer() == -2);
    CHECK(*Made(Code("\x8a") + '\0').root().integer() == 0);
    CHECK(*Made("\x8a\x01\xff").root().integer() == -1);
    CHECK(*Made("\x8a\x02\xff\x7f").root().integer() == 32767);
    CHECK(*Made(integer(INT64_MIN)).root().integer() == INT64_MIN);
    CHECK(*Made(real(1.5)).root().as<double>() == 1.5);
    CHECK(*Made(text("abc")).root().text() == "abc");
    CHECK(*Made("\x8c\x02hi").root().text() == "hi");
    CHECK(*Made("\x8d\x02" + zeros.substr(0, 7) + "hi").root().text() == "hi");

    for (const Code& three :
         {integer(1) + integer(2) + integer(3) + "\x87", tuple({integer(1), integer(2), integer(3)})}) {
        const Made made(three);
        REQUIRE(made.root().tuple());
        REQUIRE(made.root().tuple()->size() == 3);
        CHECK(*made.root().tuple()->at(0)->integer() == 1);
        CHECK(*made.root().tuple()->at(2)->integer() == 3);
    }
    CHECK(Made(")").root().tuple()->empty());
    CHECK(Made(list({integer(1), text("x")}) + none() + "a").root().list()->size() == 3);
    // a memoized value at two places of a dict, with memo numbers of either size
    for (const Code& memo : {Code("q\x05"), Code("r\x05") + zeros.substr(0, 3)}) {
        const Made made(dict({{text("a"), list({integer(7)}) + memo}, {text("b"), "h\x05"}}));
        REQUIRE(made.root().find("a"));
        CHECK(made.root().find("a") == made.root().find("b"));
        CHECK(made.root().find("c") == nullptr);
    }
    const Made counted(
        tuple({text("x") + "\x94", text("y") + "\x94", "h\x01", Code("j") + zeros.substr(0, 4)}));
    CHECK(*counted.root().tuple()->at(2)->text() == "y");
    CHECK(*counted.root().tuple()->at(3)->text() == "x");
}

TEST_CASE("pickle: a call that Python would make is noted, not made", "[pickle]") {
    const Made size(call("ctorch\nSize\n", tuple({tuple({integer(2), integer(3)})})));
    const PickleValue::Object* object = size.root().object("torch.Size");
    REQUIRE(object);
    CHECK(object->arguments->tuple()->at(0)->tuple()->size() == 2);
    CHECK(size.root().object("a.b.Class") == nullptr);
    const Made instance_of(instance(global("a.b", "Class"), dict({{text("field"), integer(4)}})));
    object = instance_of.root().object("a.b.Class");
    REQUIRE(object);
    REQUIRE(object->state);
    CHECK(*object->state->find("field")->integer() == 4);
    const Made outside(persistent(text("0")));
    REQUIRE(outside.root().object(Pickle::persistent));
    CHECK(*outside.root().object(Pickle::persistent)->arguments->text() == "0");
}

TEST_CASE("pickle: names that are not listed are refused, however they are written", "[pickle]") {
    const std::string no_use = ", which such a file does not need";
    CHECK_THAT(refusal_of(call("cos\nsystem\n", tuple({text("true")}))),
               Contains("a file: the pickle cannot be read, at byte 2: it names os.system" + no_use));
    CHECK_THAT(refusal_of(call(global("builtins", "eval"), tuple({text("1")}))),
               Contains("it names builtins.eval" + no_use));
    // parts of listed names
    for (const auto& [module, name] : {std::pair{"torch", "Siz"},
                                       {"torc", "hSize"},
                                       {"torc", ".Size"},
                                       {"torch", "Size.x"},
                                       {"", "torch.Size"},
                                       {"torch.Size", ""},
                                       {"a", "b.Clas"}})
        CHECK_THAT(refusal_of(global(module, name)), Contains("it names "));
    CHECK_THAT(refusal_of(global("o\ns", "\x01")), Contains("it names o\\x0as.\\x01" + no_use));
    CHECK_THAT(refusal_of("i"
                          "os\nsystem\n"),
               Contains("opcode INST" + no_use));
    CHECK_THAT(refusal_of("(o"), Contains("opcode OBJ" + no_use));
    CHECK_THAT(refusal_of("\x82\x01"), Contains("opcode EXT1" + no_use));
    CHECK_THAT(refusal_of(global("a.b", "Class") + ")}\x92"), Contains("opcode NEWOBJ_EX" + no_use));
    CHECK_THAT(refusal_of("P0\n"), Contains("opcode PERSID" + no_use));
    CHECK_THAT(refusal_of("\xfe"), Contains("byte 0xfe is not an opcode"));
    // calls of values that are not names
    CHECK_THAT(refusal_of(call(text("os.system"), tuple({}))),
               Contains("calls something that is not a name"));
    CHECK_THAT(refusal_of(call(call(global("a.b", "Class"), tuple({})), tuple({}))),
               Contains("calls something that is not a name"));
    CHECK_THAT(refusal_of(call(global("a.b", "Class"), text("x"))),
               Contains("calls something that is not a name"));
    CHECK_THAT(refusal_of(integer(1) + integer(2) + "\x93"), Contains("a name is not a text"));
    const std::string outside = pickle(persistent(none()));
    CHECK_THROWS_WITH(Pickle(std::as_bytes(std::span(outside)), "a file", std::span(allowed).first(2)),
                      Contains("it refers to data outside of it" + no_use));
}

TEST_CASE("pickle: damage and hostile sizes are refused before memory is allocated", "[pickle]") {
    CHECK_THAT(refusal_of_bytes(""), Contains("truncated"));
    CHECK_THAT(refusal_of_bytes("\x80"), Contains("truncated"));
    CHECK_THAT(refusal_of_bytes("N."), Contains("does not begin as a pickle"));
    CHECK_THAT(refusal_of_bytes("\x80\x01N."), Contains("protocol 1 is not known"));
    CHECK_THAT(refusal_of_bytes("\x80\x06N."), Contains("protocol 6 is not known"));
    CHECK_THAT(refusal_of_bytes(pickle(none()) + "x"), Contains("bytes after its end"));
    CHECK_THAT(refusal_of("X\xff\xff\xff\x7fhi"), Contains("truncated"));
    CHECK_THAT(refusal_of("\x8d\xff\xff\xff\xff\xff\xff\xff\xffhi"), Contains("truncated"));
    CHECK_THAT(refusal_of("\x95\xff\xff\xff\xff\xff\xff\xff\xffN"), Contains("truncated"));
    CHECK_THAT(refusal_of("\x8a\x09" + zeros), Contains("more than 64 bits"));
    CHECK_THAT(refusal_of("\x8b\xff\xff\xff\x7f"), Contains("opcode LONG4"));
    CHECK_THAT(refusal_of("cos"), Contains("truncated"));
    // a memo entry with a large number takes no memory
    CHECK(Made(none() + "r\xff\xff\xff\xff").root().is_none());
    CHECK_THAT(refusal_of("h\x01"), Contains("refers to a value that does not exist"));
    CHECK_THAT(refusal_of(""), Contains("stack is empty"));
    CHECK_THAT(refusal_of("\x85"), Contains("stack is empty"));
    CHECK_THAT(refusal_of("N(\x85"), Contains("stack is empty"));  // not beyond a mark
    CHECK_THAT(refusal_of("t"), Contains("a mark is missing"));
    CHECK_THAT(refusal_of(none() + none()), Contains("left over"));
    CHECK_THAT(refusal_of("(" + none()), Contains("left over"));
    CHECK_THAT(refusal_of(text("x") + none() + "a"), Contains("appends to something that is not a list"));
    CHECK_THAT(refusal_of("](" + none() + "u"), Contains("items of something that is not a dict"));
    CHECK_THAT(refusal_of("}(" + none() + "u"), Contains("items of something that is not a dict"));
    CHECK_THAT(refusal_of(none() + none() + "b"), Contains("sets the state"));
    CHECK_THAT(refusal_of(instance(global("a.b", "Class"), none()) + none() + "b"),
               Contains("sets the state"));
}

TEST_CASE("pickle: recursive and deeply nested values need no more memory than their bytes", "[pickle]") {
    const Made endless("]\x94h" + zeros.substr(0, 1) + "a");
    REQUIRE(endless.root().list());
    CHECK(endless.root().list()->at(0) == &endless.root());
    // a million tuples, each inside the next
    const Made deep(none() + std::string(1'000'000, '\x85'));
    CHECK(deep.root().tuple()->size() == 1);
    CHECK_THAT(refusal_of(std::string(1'000'000, '(')), Contains("stack is empty"));
    // each list contains the one before twice: 2^40 values for code that visits them all
    Code doubling = list({none()});
    for (int i = 0; i < 40; ++i) {
        const Code memo = {char(i)};
        doubling += "q" + memo + "h" + memo + "\x86";
    }
    CHECK(Made(doubling).root().tuple()->size() == 2);
}

TEST_CASE("pickle: after any change of a byte it is read or refused, nothing worse", "[pickle]") {
    const std::string good =
        pickle(instance(global("a.b", "Class"),
                        dict({{text("x"), tuple({integer(1), real(2), list({text("y") + "\x94", "h\x00"})})},
                              {text("z"), persistent(tuple({none(), boolean(true)}))}})));
    const RandomStream random(1, "bytes");
    int read = 0;
    for (uint64_t i = 0; i < 20000; ++i) {
        std::string bytes = good;
        for (uint64_t k = 0; k <= i % 3; ++k)
            bytes[size_t(random.uniform(8 * i + 2 * k) * double(bytes.size()))] =
                char(int(random.uniform(8 * i + 2 * k + 1) * 256));
        try {
            const Pickle pickle(std::as_bytes(std::span(bytes)), "a file", allowed);
            ++read;
        } catch (const ConfigError&) {
        }
    }
    CHECK(read > 0);  // numbers and texts may have changed
}
