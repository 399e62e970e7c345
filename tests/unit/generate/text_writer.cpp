// SPDX-License-Identifier: Apache-2.0
// The end of a text, prompts from a file, and batches of texts from a model with initial weights.
#include "coeus/generate/text_writer.hpp"

#include "coeus/base/error.hpp"
#include "coeus/data/bpe_training.hpp"
#include "coeus/generate/prompts.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <optional>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// The text before the first stop, pushed in pieces of `size` bytes.
std::string cut(const std::string& text, const std::vector<std::string>& stops, size_t size) {
    TextEnd end(stops);
    std::string out;
    for (size_t at = 0; at < text.size() && !end.found(); at += size) out += end.push(text.substr(at, size));
    return end.found() ? out : out + end.finish();
}

}  // namespace

TEST_CASE("a text ends before the first stop, whatever pieces it arrives in") {
    const std::string text = "one. two.. three... four";
    for (size_t size : {1, 2, 3, 5, 100}) {
        CAPTURE(size);
        CHECK(cut(text, {}, size) == text);
        CHECK(cut(text, {"five"}, size) == text);
        CHECK(cut(text, {"fours", "..."}, size) == "one. two.. three");
        CHECK(cut(text, {"...", ". t"}, size) == "one");
        CHECK(cut(text, {"r"}, size) == "one. two.. th");
        CHECK(cut(text, {"one"}, size).empty());
        CHECK(cut("aaab", {"aab"}, size) == "a");
    }
    // the first of several stops in one piece counts
    CHECK(cut("abc", {"c", "b"}, 3) == "a");
    TextEnd end({"stop"});
    CHECK(end.push("a st") == "a ");
    CHECK(end.push("ar") == "star");
    CHECK(end.push("st") == "");
    CHECK(end.finish() == "st");
}

TEST_CASE("prompts of a file") {
    const TemporaryFolder folder;
    const auto read = [&](const std::string& content, const std::string& name = "prompts") {
        write_file(folder / name, content);
        std::vector<std::string> texts;
        for (const Prompt& prompt : read_prompts(folder / name))
            texts.push_back(fmt::format("{}:{}", prompt.line, prompt.text));
        return texts;
    };
    using Texts = std::vector<std::string>;
    CHECK(read("one") == Texts{"1:one"});
    CHECK(read("\none \r\n\n  \n two\n") == Texts{"2:one ", "5: two"});
    CHECK(read("a {\"prompt\": 1}\n{\n") == Texts{"1:a {\"prompt\": 1}", "2:{"});
    CHECK(read("{\"prompt\": \"a\\nb\", \"text\": \"c\"}\n\n {\"text\": \"\"}\n", "prompts.jsonl") ==
          Texts{"1:a\nb", "3:"});
    // by the content, whatever the name
    const std::string objects = "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n";
    for (const char* name : {"prompts.txt", "prompts"}) CHECK(read(objects, name) == Texts{"1:a", "2:b"});
    const auto packed = [&](const std::string& content, const std::string& program) {
        write_file(folder / "content", content);
        CHECK(run_shell(program + " -c '" + (folder / "content").string() + "' > '" +
                        (folder / "packed").string() + "'")
                  .exit_code == 0);
        return read_file(folder / "packed");
    };
    for (const char* name : {"p.jsonl.gz", "p.gz", "p.txt"})
        CHECK(read(packed(objects, "gzip"), name) == Texts{"1:a", "2:b"});
    CHECK(read(packed("{\"text\": \"\"}\n", "gzip"), "p.jsonl.gz") == Texts{"1:"});
    CHECK(read(packed("one\ntwo", "gzip"), "plain.txt.gz") == Texts{"1:one", "2:two"});
    CHECK(read("{\"a\": 1}\n{\"b\": 2}\n", "prompts.txt") == Texts{"1:{\"a\": 1}", "2:{\"b\": 2}"});
    for (const char* name : {"array.json", "array.txt"})
        CHECK_THROWS_WITH(read("[{\"prompt\": \"a\"}]\n", name),
                          Contains("is an array or an object over several lines; each line must be an object "
                                   "with \"prompt\" or \"text\" (jq -c '.[]' FILE"));
    CHECK_THROWS_WITH(read("PK\x03\x04 zip", "prompts.zip"), Contains("prompts.zip is"));
    const auto error = [&](const std::string& content, const std::string& message) {
        const std::string name = "prompts.jsonl";
        CHECK_THROWS_WITH(read(content, name), Contains((folder / name).string()) && Contains(message));
        CHECK_THROWS_AS(read(content, name), ConfigError);
    };
    error("", "contains no prompts: every line is empty");
    error(" \n\r\n", "contains no prompts: every line is empty");
    error("{\"prompt\": \"a\"}\nplain\n", "prompts.jsonl, line 2");
    error("{\"prompt\": \"a\"}\n[1]\n",
          "line 2: the top level must be an object with \"prompt\" or \"text\"");
    error("{\"promt\": \"a\"}\n", "line 1: has neither \"prompt\" nor \"text\"");
    error("{\"prompt\": 7}\n", "line 1: prompt must be a string");
    CHECK_THROWS_WITH(read_prompts(folder / "none"), Contains("none: this file does not exist"));
}

namespace {

// A tokenizer of single bytes, and a model with initial weights whose vocabulary has a few more ids.
class Desk {
public:
    Desk() {
        write_file(folder_ / "text", "ab");
        train_tokenizer(Corpus({folder_ / "text"}), 258, folder_ / "tokenizer", 1);
        tokenizer_.emplace(folder_ / "tokenizer");
        config_.vocab = tokenizer_->vocab_size() + 3;
    }

    std::vector<Written> write(const std::vector<std::string>& prompts, const TextWriterOptions& options,
                               int64_t sequences, int64_t context = 64) {
        std::vector<std::vector<int32_t>> ids;
        for (const std::string& prompt : prompts) ids.push_back(tokenizer_->encode(prompt));
        return write(ids, options, sequences, context);
    }
    std::vector<Written> write(const std::vector<std::vector<int32_t>>& prompts,
                               const TextWriterOptions& options, int64_t sequences, int64_t context) {
        Generator generator(config_, dtype_, context, sequences);
        generator.decoder().parameters().initialise(2, 1);
        generator.weights_changed();
        std::vector<Written> all(prompts.size());
        std::vector<std::string> pieces(prompts.size());
        TextWriter(generator, *tokenizer_, options)
            .write(
                prompts, [&](size_t number, const std::string& piece) { pieces.at(number) += piece; },
                [&](size_t number, const Written& written) {
                    CHECK(all.at(number).finish == nullptr);  // only once
                    all[number] = written;
                });
        for (size_t i = 0; i < all.size(); ++i) {
            REQUIRE(all[i].finish != nullptr);
            CHECK(all[i].text == pieces[i]);
        }
        return all;
    }
    const Tokenizer& tokenizer() const { return *tokenizer_; }
    void compute_in(Dtype dtype) { dtype_ = dtype; }

private:
    TemporaryFolder folder_;
    std::optional<Tokenizer> tokenizer_;
    DecoderConfig config_ = tiny_config();
    Dtype dtype_ = Dtype::f64;
};

std::vector<std::string> texts(const std::vector<Written>& all) {
    std::vector<std::string> out;
    for (const Written& written : all) out.push_back(written.text);
    return out;
}

}  // namespace

TEST_CASE("writer: batches of any size give the same texts") {
    Desk desk;
    std::vector<std::string> prompts;
    for (int i = 0; i < 9; ++i) prompts.push_back(std::string(size_t(1 + i * i % 23), char('a' + i)));
    for (const double temperature : {0.0, 1.0}) {
        const TextWriterOptions options = {.sampling = {.temperature = temperature, .seed = 5}, .length = 24};
        const auto one_by_one = desk.write(prompts, options, 1);
        for (const Written& written : one_by_one) {
            CHECK(written.ids.size() <= 24);
            CHECK((written.ids.size() == 24) == (std::string(written.finish) == "length"));
        }
        for (const int64_t sequences : {2, 4, 9})
            CHECK(texts(desk.write(prompts, options, sequences)) == texts(one_by_one));
        // texts do not share random numbers
        auto all = texts(desk.write({"x", "x", "x"}, options, 3));
        CHECK((all[0] == all[1] && all[1] == all[2]) == (temperature == 0));
    }
}

TEST_CASE("writer: forty prompts in one batch equal forty single ones, in every type") {
    Desk desk;
    std::vector<std::string> prompts;
    for (int i = 0; i < 40; ++i) prompts.push_back(std::string(size_t(1 + i * i % 19), char('A' + i)));
    const TextWriterOptions greedy = {.sampling = {.temperature = 0}, .length = 12, .ignore_eos = true},
                            drawn = {.sampling = {.temperature = 1, .seed = 3}, .length = 12};
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
        CAPTURE(name_of(dtype));
        desk.compute_in(dtype);
        std::vector<std::string> single;
        for (const std::string& prompt : prompts)
            single.push_back(desk.write(std::vector<std::string>{prompt}, greedy, 1).front().text);
        const std::vector<std::string> drawn_alone = texts(desk.write(prompts, drawn, 1));
        for (const int64_t sequences : {16, 17, 40}) {
            CHECK(texts(desk.write(prompts, greedy, sequences)) == single);
            CHECK(texts(desk.write(prompts, drawn, sequences)) == drawn_alone);
        }
    }
}

TEST_CASE("writer: the end of a text") {
    Desk desk;
    const TextWriterOptions plain = {
        .sampling = {.temperature = 1, .seed = 1}, .length = 400, .ignore_eos = true};
    const Written whole = desk.write({"abc"}, plain, 1).front();
    CHECK(whole.ids.size() == 400);
    CHECK(std::string(whole.finish) == "length");

    TextWriterOptions eos = plain;  // one of 258 tokens: one of 16 texts ends this way
    eos.ignore_eos = false;
    const auto many = desk.write(std::vector<std::string>(16, "abc"), eos, 8);
    CHECK(std::any_of(many.begin(), many.end(),
                      [](const Written& w) { return std::string(w.finish) == "eos"; }));
    for (const Written& written : many) CHECK(written.text.find("<|end_of_text|>") == std::string::npos);

    // a printable byte that occurs in the text
    const size_t at = whole.text.find_first_of("abcdefghijklmnopqrstuvwxyz", 20);
    REQUIRE(at != std::string::npos);
    TextWriterOptions stop = plain;
    stop.stops = {"never comes", whole.text.substr(at, 1)};
    const Written stopped = desk.write({"abc"}, stop, 1).front();
    CHECK(std::string(stopped.finish) == "stop");
    CHECK(stopped.text == whole.text.substr(0, whole.text.find(stop.stops[1])));
    // a special token as a stop text is not found, even if EOS is ignored
    stop.stops = {"<|end_of_text|>"};
    const auto special = desk.write(std::vector<std::string>(16, "abc"), stop, 8);
    CHECK(texts(special) == texts(many));

    stop.stops = {""};
    CHECK_THROWS_WITH(desk.write({"a"}, stop, 1), Contains("--stop is empty"));
    stop.stops = {"a\xff"};
    CHECK_THROWS_WITH(desk.write({"a"}, stop, 1),
                      Contains("the tokenizer cannot represent this text; it would become \"a\uFFFD\""));
}

TEST_CASE("writer: a text longer than the context continues from its most recent half") {
    Desk desk;
    const auto greedy = [](int64_t length) {
        return TextWriterOptions{.sampling = {.temperature = 0}, .length = length, .ignore_eos = true};
    };
    std::vector<std::vector<int32_t>> prompts, newest_half;
    for (int32_t i = 0; i < 5; ++i) prompts.push_back({i, 7 * i % 5, 40 + i, 9});
    // a context of 6 holds 4 tokens and two more; the third is still drawn, and the fourth follows the last 3
    const auto three = desk.write(prompts, greedy(3), 5, 64), four = desk.write(prompts, greedy(4), 2, 6);
    for (const Written& written : three) newest_half.push_back(written.ids);
    const auto next = desk.write(newest_half, greedy(1), 5, 64);
    for (size_t i = 0; i < prompts.size(); ++i) {
        std::vector<int32_t> should = three[i].ids;
        should.push_back(next[i].ids.at(0));
        CHECK(four[i].ids == should);
    }
    // a context of one: every token depends only on the one before
    CHECK(desk.write({"a"}, greedy(7), 1, 1).front().ids.size() == 7);
}
