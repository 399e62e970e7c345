// SPDX-License-Identifier: Apache-2.0
#include "coeus/file/json.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cmath>
#include <limits>

using namespace coeus;
using Catch::Contains;

namespace {

JsonDocument parse(const std::string& text) {
    return JsonDocument::parse(text, "config.json");
}

}  // namespace

TEST_CASE("json: typed reads") {
    const JsonDocument document = parse(
        R"({"z": 3, "a": 1e6, "b": true, "s": "é\n", "r": 0.5, "list": [1, 2, 3], "n": null,
            "deep": {"x": [{"y": "v"}]}, "names": ["p", "q"]})");
    const JsonView root = document.root();
    CHECK(root.integer("z") == 3);
    CHECK(root.integer("a") == 1000000);
    CHECK(root.number("z") == 3.0);
    CHECK(root.number("r") == 0.5);
    CHECK(root.boolean("b"));
    CHECK(root.string("s") == "é\n");
    CHECK(root["list"].integers() == std::vector<int64_t>{1, 2, 3});
    CHECK(root["names"].strings() == std::vector<std::string>{"p", "q"});
    CHECK(root["deep"]["x"][0].string("y") == "v");
    CHECK_FALSE(root.contains("n"));
    CHECK_FALSE(root.contains("absent"));
    CHECK(root.integer("n", 7) == 7);
    CHECK(root.number("absent", 2.5) == 2.5);
    CHECK(root.string("absent", "other") == "other");
    CHECK(root.boolean("absent", true));
    std::string order;
    for (const auto& [name, value] : root.items()) order += name + " ";
    CHECK(order == "z a b s r list n deep names ");
}

TEST_CASE("json: errors name file, path, rule and value") {
    const JsonDocument document = parse(R"({"hidden_size": "x", "half": 0.5, "deep": {"list": [1, "two"]}})");
    const JsonView root = document.root();
    CHECK_THROWS_WITH(root.integer("hidden_size"), "config.json: hidden_size must be an integer, is \"x\"");
    CHECK_THROWS_WITH(root.integer("half"), "config.json: half must be an integer, is 0.5");
    CHECK_THROWS_WITH(root["deep"]["list"].integers(),
                      "config.json: deep.list[1] must be an integer, is \"two\"");
    CHECK_THROWS_WITH(root.integer("absent"), "config.json: absent is missing");
    CHECK_THROWS_WITH(root["deep"].string(), "config.json: deep must be a string, is an object");
    CHECK_THROWS_WITH(root["deep"]["list"][5],
                      "config.json: deep.list must have at least 6 elements, is an array");
    CHECK_THROWS_WITH(root.elements(), "config.json: the top level must be an array, is an object");
    CHECK_THROWS_WITH(root["half"].reject("must be positive"), "config.json: half must be positive, is 0.5");
    CHECK_THROWS_AS(root.boolean("half"), ConfigError);
}

TEST_CASE("json: text that is not JSON") {
    CHECK_THROWS_WITH(parse("{\"a\": 1,\n \"b\": }"),
                      Contains("config.json: not valid JSON: ") && Contains("line 2, column 7"));
    CHECK_THROWS_AS(parse(""), ConfigError);
    CHECK_THROWS_AS(parse("{} x"), ConfigError);
    CHECK_THROWS_AS(parse("{\"a\": \"\xff\"}"), ConfigError);
    CHECK_THROWS_WITH(parse(R"({"a": 1, "b": 2, "a": 3})"),
                      "config.json: the key \"a\" appears twice in one object");
    CHECK_THROWS_WITH(parse(std::string(100000, '[')), "config.json: nested deeper than 256 levels");
    CHECK_THROWS_WITH(JsonDocument::read("/nowhere/x.json"),
                      "/nowhere/x.json: cannot be read: No such file or directory");
}

TEST_CASE("json: building and writing") {
    Json line = Json::object();
    line.set("step", 3).set("loss", 0.1).set("name", "a\"b\n").set("ok", true).set("none", Json());
    line.set("shape", std::vector<int64_t>{2, 3}).set("step", 4);
    line.set("nan", std::numeric_limits<double>::quiet_NaN());
    CHECK(line.text() ==
          R"({"step":4,"loss":0.1,"name":"a\"b\n","ok":true,"none":null,"shape":[2,3],"nan":null})");
    CHECK(Json::array().push(1).push(Json::object()).text(2) == "[\n  1,\n  {}\n]");
    CHECK(Json::object().set("a", Json::array().push("x")).text(1) == "{\n \"a\": [\n  \"x\"\n ]\n}");
    // every double comes back unchanged
    for (double value : {1.0 / 3, 1e-308, 123456789.125, 2.0})
        CHECK(parse(Json(value).text()).root().number() == value);
    CHECK(Json("\xff").text() == "\"\xEF\xBF\xBD\"");
    CHECK_THROWS_AS(line.push(1), LogicError);
}

TEST_CASE("json: files") {
    const test::TemporaryFolder folder;
    const auto file = folder / "a.json";
    write_json(Json::object().set("vocab", Json::object().set("Ġa", 5)), file);
    CHECK(test::read_file(file) == "{\n  \"vocab\": {\n    \"Ġa\": 5\n  }\n}\n");
    JsonDocument document = JsonDocument::read(file);
    const JsonView view = document.root()["vocab"];
    const JsonDocument moved = std::move(document);
    CHECK(view.integer("Ġa") == 5);
    CHECK_THROWS_WITH(write_json(Json(1), "/nowhere/x.json"),
                      Contains("/nowhere/x.json cannot be written: "));
}

TEST_CASE("json: a view notes the existing keys that are asked for, also within others") {
    const JsonDocument document =
        JsonDocument::parse(R"({"a": 1, "b": {"c": null, "d": [2, 3]}, "e": 4})", "x.json");
    std::set<std::string> asked;
    const JsonView root = document.root().noting(asked);
    CHECK(root.integer("a") == 1);
    CHECK_FALSE(root.contains("no such key"));
    const JsonView b = root["b"];
    CHECK_FALSE(b.find("c"));
    CHECK(b["d"][1].integer() == 3);
    CHECK(asked == std::set<std::string>{"a", "b", "b.c", "b.d", "b.d[1]"});
    asked.clear();
    CHECK(document.root().integer("e") == 4);  // the document's own view notes nothing
    CHECK(asked.empty());
}
