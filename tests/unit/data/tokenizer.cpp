// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/tokenizer.hpp"

#include "coeus/base/error.hpp"
#include "coeus/data/bpe_training.hpp"
#include "coeus/file/json.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <initializer_list>
#include <numeric>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

using Ids = std::vector<int32_t>;
using Merges = std::vector<std::pair<std::string, std::string>>;

const std::string mixed =
    "It's the cat's 12345 mats:\n\n  don't   stop\r\n\tnaïve café — 東京タワー 🙂🙂 "
    "x1y22\u00a0z\u2028 "
    "end.   ";

// A tokenizer trained on a few sentences, shared by all cases.
const TemporaryFolder& trained() {
    static const TemporaryFolder folder;
    static const bool made = [] {
        std::string text;
        for (int i = 0; i < 40; ++i) text += mixed + "the cat sat on the mat; the dog sat on the log.\n";
        write_file(folder / "text.txt", text);
        train_tokenizer(Corpus({folder / "text.txt"}), 320, folder.path(), 2);
        return true;
    }();
    require(made, "trained");
    return folder;
}

// The trained tokenizer.json with one change, in a separate folder.
class Changed {
public:
    template <class Change>
    explicit Changed(Change change) {
        const JsonDocument document = JsonDocument::read(trained() / "tokenizer.json");
        Json json = document.root().value();
        change(json);
        write_json(json, folder_ / "tokenizer.json");
        write_file(folder_ / "tokenizer_config.json", read_file(trained() / "tokenizer_config.json"));
    }
    Changed(const char* key, Json value) : Changed([&](Json& json) { json.set(key, value); }) {}

    std::string problem() const {
        try {
            Tokenizer tokenizer(folder_.path());
            return "none";
        } catch (const ConfigError& error) {
            std::string text = error.what();
            const std::string folder = folder_.path().string() + "/";
            if (const size_t at = text.find(folder); at != std::string::npos) text.erase(at, folder.size());
            return text;
        }
    }
    const std::filesystem::path& path() const { return folder_.path(); }

private:
    TemporaryFolder folder_;
};

void set_in(Json& json, const std::string& outer, const std::string& key, Json value) {
    Json inner = *json.find(outer);
    inner.set(key, std::move(value));
    json.set(outer, std::move(inner));
}

Json split(const std::string& regex) {
    return Json::object()
        .set("type", "Split")
        .set("pattern", Json::object().set("Regex", regex))
        .set("behavior", "Isolated")
        .set("invert", false);
}

Json byte_level() {
    return Json::object().set("type", "ByteLevel").set("add_prefix_space", false).set("use_regex", false);
}

Json sequence_of(const std::vector<Json>& steps) {
    return Json::object().set("type", "Sequence").set("pretokenizers", steps);
}

Json sequence(const std::string& regex) {
    return sequence_of({split(regex), byte_level()});
}

}  // namespace

TEST_CASE("bpe training: highest count first, ties by ids, words weighted") {
    // pairs: l-o 5+2+6, o-w 5+2, ...; "ne" 6, "ew" 6, "es" 3, "st" 3
    const WordCounts words = {{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}};
    // e-s and s-t have 9 each, and e (68) is below s (82). Then es-t (9), l-o (7), lo-w (7). Then e-w, n-e
    // and w-est have 6 each: e-w, with the smallest left id, is first.
    CHECK(train_bpe(words, 256 + 6) ==
          Merges{{"e", "s"}, {"es", "t"}, {"l", "o"}, {"lo", "w"}, {"e", "w"}, {"n", "ew"}});
    CHECK(train_bpe(words, 256).empty());
    // the words run out of pairs
    CHECK(train_bpe({{"ab", 1}, {"c", 9}}, 1000) == Merges{{"a", "b"}});
    CHECK(train_bpe({{"aaaa", 1}}, 1000) == Merges{{"a", "a"}, {"aa", "aa"}});
    CHECK(train_bpe({{"aaa", 1}}, 1000) == Merges{{"a", "a"}, {"aa", "a"}});
    CHECK(train_bpe({}, 1000).empty());
}

TEST_CASE("bpe training: a space is Ġ, whose id is above those of letters") {
    // " a" and "ab" occur twice each: the smaller left id wins, 'a' before 'Ġ'
    CHECK(train_bpe({{" ab", 2}}, 257) == Merges{{"a", "b"}});
}

TEST_CASE("tokenizer training writes a tokenizer with BOS and EOS at the end") {
    const Tokenizer tokenizer(trained().path());
    CHECK(tokenizer.vocab_size() == 320);
    CHECK(tokenizer.bos_id() == 318);
    CHECK(tokenizer.eos_id() == 319);
    CHECK(tokenizer.hash().size() == 16);
    CHECK(tokenizer.encode(" the cat").size() == 2);
    const auto ids = tokenizer.encode(mixed);
    CHECK(tokenizer.decode(ids) == mixed);
    CHECK(ids.size() < mixed.size() / 2);
    CHECK(tokenizer.encode("").empty());
    CHECK(tokenizer.encode("!") == std::vector<int32_t>{0});
    // bytes that the training text did not have, a long run, and invalid UTF-8
    CHECK(tokenizer.decode(tokenizer.encode("\x01\u0416" + std::string(5000, 'q'))) ==
          "\x01\u0416" + std::string(5000, 'q'));
    CHECK(tokenizer.decode(tokenizer.encode("a\xff z")) == "a\uFFFD z");
}

TEST_CASE("tokenizer training: bad vocabulary sizes") {
    const TemporaryFolder folder;
    write_file(folder / "a.txt", "some text");
    const Corpus corpus({folder / "a.txt"});
    CHECK_THROWS_WITH(train_tokenizer(corpus, 257, folder / "out", 1),
                      "--vocab_size must be from 258 (256 bytes, BOS and EOS) to 4,194,304, but is 257");
    CHECK(train_tokenizer(corpus, 258, folder / "out", 1).vocab_size == 258);
    CHECK(train_tokenizer(corpus, 100000, folder / "out", 1).vocab_size < 270);
    CHECK_THROWS_WITH(train_tokenizer(corpus, 300, folder / "a.txt" / "x", 1),
                      Contains("--output") && Contains("this folder cannot be created"));
}

TEST_CASE("tokenizer training: threads, JSON lines and plain lines give the same words") {
    const TemporaryFolder folder;
    write_file(folder / "a.txt", "one two\nthree one\n");
    write_file(folder / "a.jsonl", "{\"text\": \"one two\\nthree one\\n\"}\n");
    const auto sorted = [](WordCounts words) {
        std::sort(words.begin(), words.end());
        return words;
    };
    const WordCounts expected = {{"\n", 2}, {" one", 1}, {" two", 1}, {"one", 1}, {"three", 1}};
    CHECK(sorted(count_words(Corpus({folder / "a.txt"}), 3)) == expected);
    CHECK(sorted(count_words(Corpus({folder / "a.jsonl"}), 1)) == expected);
    WordCounts twice = expected;
    for (auto& [word, count] : twice) count *= 2;
    CHECK(sorted(count_words(Corpus({folder / "a.txt", folder / "a.jsonl"}), 2)) == twice);
}

TEST_CASE("tokenizer training: U+180E is not white space, U+3000 is") {
    const TemporaryFolder folder;
    const auto pieces = [&](const std::string& text) {
        write_file(folder / "a.txt", text);
        WordCounts words = count_words(Corpus({folder / "a.txt"}), 1);
        std::sort(words.begin(), words.end());
        return words;
    };
    CHECK(pieces("a\u180e!") == WordCounts{{"a", 1}, {"\u180e!", 1}});
    CHECK(pieces("a\u3000!") == WordCounts{{"!", 1}, {"a", 1}, {"\u3000", 1}});
}

TEST_CASE("tokenizer: added tokens in the text, leftmost and longest") {
    const Tokenizer tokenizer(trained().path());
    const auto ids = tokenizer.encode("the<|end_of_text|><|begin_of_text|>");
    CHECK(std::vector<int32_t>(ids.end() - 2, ids.end()) == std::vector<int32_t>{319, 318});
    CHECK(tokenizer.decode(ids) == "the<|end_of_text|><|begin_of_text|>");
    CHECK(tokenizer.decode(ids, true) == "the");
    CHECK(tokenizer.decode(tokenizer.encode("<|end_of_tex|>")) == "<|end_of_tex|>");
    const Changed longer([](Json& json) {
        Json added = *json.find("added_tokens");
        for (const char* content : {"<|end_of_text|>x", "<|end"})
            added.push(Json::object().set("id", 320 + added.as_array()->size()).set("content", content));
        json.set("added_tokens", added);
    });
    const Tokenizer t(longer.path());
    CHECK(t.vocab_size() == 324);
    CHECK(t.encode("<|end_of_text|>x<|end_of_text|><|end") == std::vector<int32_t>{322, 319, 323});
}

TEST_CASE("tokenizer: flags of added tokens, and normal form C between them") {
    const Changed changed([](Json& json) {
        Json added = Json::array();
        const auto add = [&](const char* content, std::initializer_list<const char*> flags) {
            Json token = Json::object().set("id", 400 + added.as_array()->size()).set("content", content);
            for (const char* flag : flags) token.set(flag, true);
            added.push(token);
        };
        add("<left>", {"lstrip"});
        add("<right>", {"rstrip"});
        add("word", {"single_word"});
        add("caf\u00e9", {"normalized"});
        add("nai\u0308ve", {"normalized"});
        add("\u00e9t\u00e9", {});
        add("\tx", {"special"});
        json.set("added_tokens", added).set("post_processor", Json());
        json.set("normalizer", Json::object().set("type", "NFC"));
    });
    std::filesystem::remove(changed.path() / "tokenizer_config.json");
    const Tokenizer t(changed.path());
    const int32_t space = t.encode(" ")[0], a = t.encode("a")[0], dot = t.encode(".")[0];
    CHECK(t.encode("a \u3000<left> a") == Ids{a, 400, space, a});
    CHECK(t.encode("a <right> \u00a0a") == Ids{a, space, 401, a});
    // the space between two tokens belongs to the first one
    CHECK(t.encode("<right> <left>") == Ids{401, 400});
    // a token may begin in white space that the token before has taken
    CHECK(t.encode("<right> \txa") == Ids{401, 406, a});
    CHECK(t.encode("word.word") == Ids{402, dot, 402});
    CHECK(t.encode("words").front() != 402);
    CHECK(t.encode("\u00e9word").back() != 402);
    CHECK(t.encode("a_word").back() != 402);
    // added tokens with "normalized" are found in the normal form, others in the original text
    CHECK(t.encode("cafe\u0301") == Ids{403});
    CHECK(t.encode("na\u00efve") == Ids{404});
    CHECK(t.encode("\u00e9t\u00e9") == Ids{405});
    CHECK(t.encode("e\u0301te\u0301").size() > 1);
    CHECK(t.decode(t.encode("xe\u0301 \u1112\u1161\u11ab, \u0301")) == "x\u00e9 \ud55c, \u0301");
    CHECK_FALSE(t.can_encode_parts());
}

TEST_CASE("tokenizer: a space in front of each part between added tokens") {
    const Changed changed([](Json& json) {
        json.set("pre_tokenizer", byte_level().set("add_prefix_space", true).set("use_regex", true));
    });
    const Tokenizer t(changed.path());
    CHECK(t.decode(t.encode("a<|end_of_text|>b c<|end_of_text|> d")) ==
          " a<|end_of_text|> b c<|end_of_text|> d");
    CHECK(t.encode("").empty());
    CHECK_FALSE(t.can_encode_parts());
}

TEST_CASE("tokenizer: a template's tokens, and BOS and EOS if the template does not add them") {
    const auto ends = [](const char* bos, const char* eos, bool template_adds_bos) {
        const Changed changed([&](Json& json) {
            if (!template_adds_bos) json.set("post_processor", Json());
        });
        write_json(Json::object().set("bos_token", bos).set("eos_token", eos),
                   changed.path() / "tokenizer_config.json");
        const Tokenizer tokenizer(changed.path());
        const auto& [before, after] = tokenizer.document_ends();
        return std::pair(before, after);
    };
    const char *const begin = "<|begin_of_text|>", *const end = "<|end_of_text|>";
    CHECK(ends(begin, end, true) == std::pair(Ids{318}, Ids{319}));
    CHECK(ends(begin, end, false) == std::pair(Ids{318}, Ids{319}));
    // another BOS is put in front of the tokens that the template adds
    CHECK(ends("a", end, true).first.size() == 2);
    CHECK(ends("a", end, true).first.back() == 318);
    // if both are the same token, it begins documents, and nothing ends them
    CHECK(ends(end, end, false) == std::pair(Ids{319}, Ids{}));
}

TEST_CASE("tokenizer: tokens outside the vocabulary are refused") {
    const Tokenizer tokenizer(trained().path());
    for (const int32_t id : {-1, 320}) {
        CHECK_THROWS_WITH(tokenizer.decode(std::vector<int32_t>{id}),
                          Contains("has no token with the id " + std::to_string(id)));
        CHECK_THROWS_AS(tokenizer.bytes_of(id), ConfigError);
    }
}

TEST_CASE("tokenizer: a stream returns whole characters as soon as they are complete") {
    const Tokenizer tokenizer(trained().path());
    const std::string text = "é東🙂a<|end_of_text|>b";
    Tokenizer::Stream stream(tokenizer);
    std::string streamed;
    for (const int32_t id : tokenizer.encode(text)) {
        const std::string part = stream.push(id);
        CHECK_THAT(part, !Contains("\uFFFD"));
        streamed += part;
    }
    CHECK(streamed + stream.finish() == "é東🙂ab");
    // a character that never becomes complete
    std::vector<int32_t> bytes;
    for (const unsigned char byte : std::string("\xe6\x9d")) {
        for (int32_t id = 0; id < 256; ++id)
            if (tokenizer.bytes_of(id) == std::string(1, char(byte))) bytes.push_back(id);
    }
    REQUIRE(bytes.size() == 2);
    CHECK(stream.push(bytes[0]).empty());
    CHECK(stream.push(bytes[1]).empty());
    CHECK(stream.push(tokenizer.encode("a")[0]) == "\uFFFDa");
    stream.push(bytes[0]);
    CHECK(stream.finish() == "\uFFFD");
    CHECK(stream.finish().empty());
}

TEST_CASE("tokenizer: encoding in parts gives the ids of the whole text") {
    const Tokenizer tokenizer(trained().path());
    REQUIRE(tokenizer.can_encode_parts());
    Tokenizer::Encoder encoder(tokenizer);
    const std::string text =
        mixed + "<|end_of_text|>" + std::string(700, 'a') + mixed + std::string(900, ' ') + "b";
    const auto whole = tokenizer.encode(text);
    for (const size_t step : {1, 2, 7, 50, 1000}) {
        std::vector<int32_t> ids;
        size_t at = 0;
        for (size_t end = step; at < text.size(); end += step) {
            while (end < text.size() && (uint8_t(text[end]) & 0xc0) == 0x80) ++end;
            if (end > at) at = encoder.encode_part(text, at, std::min(end, text.size()), ids);
        }
        CHECK(at == text.size());
        CHECK(ids == whole);
    }
}

TEST_CASE("tokenizer: ignore_merges takes whole pieces from the vocabulary") {
    const auto change = [](bool ignore) {
        return Changed([&](Json& json) {
            Json model = *json.find("model"), vocab = *model.find("vocab");
            vocab.set("xyzzy", 320);  // no merge makes it
            model.set("vocab", vocab).set("ignore_merges", ignore);
            json.set("model", model);
        });
    };
    CHECK(Tokenizer(change(true).path()).encode("xyzzy") == std::vector<int32_t>{320});
    CHECK(Tokenizer(change(false).path()).encode("xyzzy").size() > 1);
}

TEST_CASE("tokenizer: merges as strings, as in files from before 2024") {
    const Changed old([](Json& json) {
        Json merges = Json::array();
        for (const Json& pair : *json.find("model")->find("merges")->as_array())
            merges.push(*(*pair.as_array())[0].as_string() + " " + *(*pair.as_array())[1].as_string());
        set_in(json, "model", "merges", merges);
    });
    CHECK(Tokenizer(old.path()).encode(mixed) == Tokenizer(trained().path()).encode(mixed));
    CHECK(Tokenizer(old.path()).hash() != Tokenizer(trained().path()).hash());
}

TEST_CASE("tokenizer: texts are not divided for several expressions or one that looks back") {
    CHECK_FALSE(Tokenizer(Changed("pre_tokenizer", sequence("(?<=a)b|.")).path()).can_encode_parts());
    CHECK_FALSE(Tokenizer(Changed("pre_tokenizer", sequence("^a|\\bb|.")).path()).can_encode_parts());
    CHECK(Tokenizer(Changed("pre_tokenizer", sequence("[^a]+|a")).path()).can_encode_parts());
    // text between matches is a piece too
    const Tokenizer gaps(Changed("pre_tokenizer", sequence("[0-9]")).path());
    CHECK(gaps.decode(gaps.encode(mixed)) == mixed);
}

TEST_CASE("tokenizer: files that are missing, damaged or of another kind") {
    CHECK_THROWS_WITH(Tokenizer("/nowhere"),
                      Contains("/nowhere: this file or folder does not exist; a tokenizer is "
                               "tokenizer.json (`coeus tokenizer` makes one)"));
    CHECK_THROWS_WITH(Tokenizer("org/a-model"), Contains("`hf download org/a-model --local-dir a-model`"));
    const TemporaryFolder model;
    write_file(model / "config.json", "{}");
    CHECK_THROWS_WITH(Tokenizer(model / "config.json"),
                      Contains("is not a tokenizer; give the folder that it is in"));
    const TemporaryFolder damaged;
    write_file(damaged / "tokenizer.json", read_file(trained() / "tokenizer.json").substr(0, 2000));
    CHECK_THROWS_WITH(Tokenizer(damaged.path()), Contains("tokenizer.json: not valid JSON"));
    write_file(damaged / "tokenizer.json", "{}");
    CHECK_THROWS_WITH(Tokenizer(damaged.path()), Contains("tokenizer.json: model is missing"));

    CHECK(
        Changed("normalizer", Json::object().set("type", "Precompiled")).problem() ==
        "tokenizer.json: normalizer: the normalizer Precompiled is not supported; only NFC, NFD, NFKC, NFKD, "
        "Replace, Prepend, Strip, Lowercase and StripAccents are");
    const std::string known_model =
        " is not supported; only BPE is, without dropout and without affixes of words";
    CHECK(Changed("model", Json::object().set("type", "Unigram")).problem() ==
          "tokenizer.json: model: the model Unigram" + known_model);
    CHECK(Changed([](Json& json) { set_in(json, "model", "end_of_word_suffix", "</w>"); }).problem() ==
          "tokenizer.json: model: end_of_word_suffix" + known_model);
    const auto with_holes = [](bool whole_alphabet, const char* key, const Json& value) {
        return Changed([&](Json& json) {
                   set_in(json, "model", key, value);
                   if (whole_alphabet) return;
                   set_in(json, "model", "vocab", Json::object().set("a", 0));
                   set_in(json, "model", "merges", Json::array());
               })
            .problem();
    };
    CHECK(with_holes(true, "byte_fallback", true) == "none");
    CHECK(with_holes(true, "unk_token", "<unk>") == "none");
    CHECK(with_holes(false, "unk_token", "a") == "none");
    CHECK(with_holes(false, "unk_token", "<unk>") ==
          "tokenizer.json: model.unk_token must be a token of model.vocab, is \"<unk>\"");
    CHECK(with_holes(false, "byte_fallback", true) ==
          "tokenizer.json: model: byte_fallback with the pre-tokenizer ByteLevel and without the symbols of "
          "all "
          "bytes is not supported; it is if there are all 256 symbols");
    CHECK(Changed("decoder", Json::object().set("type", "Metaspace")).problem() ==
          "tokenizer.json: decoder: the decoder Metaspace with the pre-tokenizer ByteLevel is not supported; "
          "only ByteLevel is");
    CHECK(Changed("post_processor", Json::object().set("type", "Other")).problem() ==
          "tokenizer.json: post_processor: the post-processor Other is not supported; only "
          "TemplateProcessing, RobertaProcessing, BertProcessing and ByteLevel are");
    const auto single_template = [](Json pieces) {
        return Changed("post_processor",
                       Json::object().set("type", "TemplateProcessing").set("single", std::move(pieces)));
    };
    CHECK_THAT(single_template(Json::array()).problem(),
               Contains("post_processor.single must contain the text once, as $A"));
    const Json text = Json::object().set("Sequence", Json::object().set("id", "A"));
    CHECK_THAT(single_template(Json::array().push(text).push(text)).problem(),
               Contains("post_processor.single must contain the text once, as $A"));
    CHECK(single_template(Json::array().push(text)).problem() == "none");
    const std::string known_cuts =
        " is not supported; only Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation and "
        "CharDelimiterSplit are, and ByteLevel at the end";
    CHECK(Changed("pre_tokenizer", Json::object().set("type", "UnicodeScripts")).problem() ==
          "tokenizer.json: pre_tokenizer: the pre-tokenizer UnicodeScripts" + known_cuts);
    CHECK(Changed("pre_tokenizer", sequence_of({byte_level(), byte_level()})).problem() ==
          "tokenizer.json: pre_tokenizer.pretokenizers[0]: the pre-tokenizer ByteLevel before other steps" +
              known_cuts);
    CHECK(
        Changed("pre_tokenizer", sequence_of({split("a").set("behavior", "Kept"), byte_level()})).problem() ==
        "tokenizer.json: pre_tokenizer.pretokenizers[0].behavior must be Isolated, Removed, Contiguous, "
        "MergedWithPrevious or MergedWithNext, is \"Kept\"");
    CHECK(Changed("pre_tokenizer",
                  sequence_of({split("a").set("pattern", Json::object().set("Text", "a")), byte_level()}))
              .problem() == "tokenizer.json: pre_tokenizer.pretokenizers[0].pattern.Regex is missing");
    for (const auto& [expression, what] :
         {std::pair("[a&&b]", "an intersection (&&)"), std::pair("[a[bc]]", "a class inside of a class")})
        CHECK(Changed("pre_tokenizer", sequence(expression)).problem() ==
              fmt::format("tokenizer.json: the regular expression \"{}\" has {}, which is not supported",
                          expression, what));
    CHECK(Changed("pre_tokenizer", sequence("(a")).problem() ==
          "tokenizer.json: PCRE2 does not understand the regular expression \"(a\": missing closing "
          "parenthesis");
    CHECK(Changed([](Json& json) {
              set_in(json, "model", "merges", Json::array().push(Json::array().push("a").push("ĠĠĠĠĠĠq")));
          }).problem() ==
          "tokenizer.json: model.merges[0]: \"a\" + \"ĠĠĠĠĠĠq\": both tokens and the result must be in the "
          "vocabulary");
    CHECK(Changed([](Json& json) { set_in(json, "model", "merges", Json::array().push("ab")); }).problem() ==
          "tokenizer.json: model.merges[0] must be two symbols and a space between them, is \"ab\"");
    CHECK(Changed([](Json& json) {
              set_in(json, "model", "vocab", Json::object().set("a", -1));
          }).problem() == "tokenizer.json: model.vocab.a must be an id from 0 to 2^22 - 1, is -1");
    CHECK(Changed([](Json& json) {
              set_in(json, "model", "vocab", Json::object().set("a", 4194304));
          }).problem() == "tokenizer.json: model.vocab.a must be an id from 0 to 2^22 - 1, is 4194304");
    CHECK(Changed("added_tokens", Json::array().push(Json::object().set("id", 5).set("content", "")))
              .problem() == "tokenizer.json: added_tokens[0] must have a content, is an object");
    const Changed no_bos("added_tokens", Json::array());
    write_file(no_bos.path() / "tokenizer_config.json", R"({"bos_token": "<|begin_of_text|>"})");
    CHECK(
        no_bos.problem() ==
        "tokenizer.json: bos_token of tokenizer_config.json is \"<|begin_of_text|>\", which is not a token");
}

TEST_CASE("tokenizer: special tokens that only tokenizer_config.json has") {
    const auto tokenizer_with = [](const std::string& config, bool in_added_tokens = false) {
        auto changed = std::make_unique<Changed>([&](Json& json) {
            if (in_added_tokens) return;
            json.set("added_tokens", Json::array()).set("post_processor", Json());
            Json model = *json.find("model"), vocab = Json::object();  // without BOS and EOS
            for (const auto& [content, id] : *model.find("vocab")->as_object())
                if (*id.as_integer() < 318) vocab.set(content, id);
            model.set("vocab", vocab);
            json.set("model", model);
        });
        write_file(changed->path() / "tokenizer_config.json", config);
        return changed;
    };
    const std::string decoder =
        R"("added_tokens_decoder": {"318": {"content": "<s>", "special": true},
                                    "319": {"content": "</s>", "special": true, "rstrip": true}})";
    for (const std::string ends : {R"("bos_token": "<s>", "eos_token": "</s>")",
                                   R"("bos_token": {"__type": "AddedToken", "content": "<s>"},
                                      "eos_token": {"content": "</s>", "lstrip": true})"}) {
        const Tokenizer tokenizer(tokenizer_with("{" + ends + ", " + decoder + "}")->path());
        CHECK(tokenizer.vocab_size() == 320);
        CHECK(tokenizer.bos_id() == 318);
        CHECK(tokenizer.eos_id() == 319);
        CHECK(tokenizer.special_ids() == Ids{318, 319});
        CHECK(tokenizer.document_ends().before == Ids{318});
        CHECK(tokenizer.document_ends().after == Ids{319});
        // the flags are those of added_tokens_decoder
        CHECK(tokenizer.encode("<s></s> \n<s>") == Ids{318, 319, 318});
    }
    CHECK(Tokenizer(tokenizer_with("{" + decoder + R"(, "bos_token": null})")->path())
              .document_ends()
              .before.empty());
    // a BOS from the vocabulary is special too
    const Tokenizer letter(tokenizer_with(R"({"bos_token": "a"})")->path());
    CHECK(letter.special_ids() == letter.encode("a"));
    // a token in both files is taken once, from tokenizer.json
    const auto with_decoder = [&](const std::string& id, const std::string& content) {
        return tokenizer_with(
                   R"({"added_tokens_decoder": {")" + id + R"(": {"content": ")" + content + R"("}}})", true)
            ->problem();
    };
    CHECK(with_decoder("319", "<|end_of_text|>") == "none");
    CHECK(with_decoder("320", "<|end_of_text|>") ==
          "tokenizer_config.json: added_tokens_decoder.320: \"<|end_of_text|>\" has the id 320 here, but the "
          "id 319 before");
    CHECK(with_decoder("319", "<|eot|>") ==
          "tokenizer.json: two tokens have the id 319: \"<|end_of_text|>\" and \"<|eot|>\"");
    CHECK(with_decoder("500", "<|eot|>") == "none");
    CHECK(tokenizer_with(R"({"bos_token": {"lstrip": true}})", true)->problem() ==
          "tokenizer_config.json: bos_token.content is missing");
    CHECK(tokenizer_with(R"({"bos_token": ["<s>"]})", true)->problem() ==
          "tokenizer_config.json: bos_token must be a string, is an array");
}

TEST_CASE("tokenizer: keys of tokenizer.json that are set, empty or unknown") {
    const Json truncation = Json::object().set("max_length", 4);
    const Changed cut("truncation", truncation);
    const Tokenizer tokenizer(cut.path()), whole(trained().path());
    CHECK(tokenizer.encode(mixed) == whole.encode(mixed));
    CHECK(whole.notice().empty());
    CHECK(tokenizer.notice() ==
          (cut.path() / "tokenizer.json").string() +
              ": truncation is ignored: texts are encoded completely, whatever their length");
    const Changed both(
        [&](Json& json) { json.set("truncation", truncation).set("padding", Json::object()); });
    CHECK_THAT(Tokenizer(both.path()).notice(), Contains("truncation and padding are ignored"));

    CHECK(Changed("pre_tokenizer", Json()).problem() == "none");
    CHECK(Changed("pre_tokenizer", sequence_of({})).problem() == "none");
    CHECK(Changed("decoder", Json()).problem() ==
          "tokenizer.json: decoder: is empty, which is not supported; a tokenizer with the pre-tokenizer "
          "ByteLevel "
          "has the decoder ByteLevel");
    CHECK(Changed("normalizer", Json()).problem() == "none");
    CHECK(Changed("post_processor", Json()).problem() == "none");
    CHECK(Changed("future", 1).problem() ==
          "tokenizer.json: the key future is not supported; supported are version, truncation, padding, "
          "added_tokens, normalizer, pre_tokenizer, post_processor, decoder, model");
    CHECK(Changed("version", "2.0").problem() ==
          "tokenizer.json: version: 2.0 is not supported; only 1.0 is");
    const auto with_dropout = [](double rate) {
        return Changed([&](Json& json) { set_in(json, "model", "dropout", rate); }).problem();
    };
    CHECK(with_dropout(0) == "none");
    CHECK(with_dropout(0.1) ==
          "tokenizer.json: model: dropout is not supported; only BPE is, without dropout and without affixes "
          "of "
          "words");
}

TEST_CASE("tokenizer: ids that are given twice") {
    const auto with_added = [](int id, const char* content) {
        return Changed([&](Json& json) {
                   Json added = *json.find("added_tokens");
                   added.push(Json::object().set("id", id).set("content", content));
                   json.set("added_tokens", added);
               })
            .problem();
    };
    CHECK(with_added(319, "<|eot|>") ==
          "tokenizer.json: two tokens have the id 319: \"<|end_of_text|>\" and \"<|eot|>\"");
    CHECK(with_added(0, "<|eot|>") == "tokenizer.json: two tokens have the id 0: \"!\" and \"<|eot|>\"");
    CHECK(with_added(0, "!") == "none");
    CHECK(with_added(320, "!") ==
          "tokenizer.json: added_tokens[2]: \"!\" has the id 320 here, but the id 0 before");
    CHECK(with_added(320, "<|end_of_text|>") ==
          "tokenizer.json: added_tokens[2]: \"<|end_of_text|>\" has the id 320 here, but the id 319 before");
    CHECK(Changed([](Json& json) {
              Json model = *json.find("model"), vocab = *model.find("vocab");
              json.set("model", model.set("vocab", vocab.set("twice", 7)));
          }).problem() == "tokenizer.json: two tokens have the id 7: \"(\" and \"twice\"");
    const Json ids = Json::object().set("ids", Json::array().push(999));
    const Json special = Json::object().set("SpecialToken", Json::object().set("id", "<s>"));
    const Json text = Json::object().set("Sequence", Json::object().set("id", "A"));
    CHECK(Changed("post_processor", Json::object()
                                        .set("type", "TemplateProcessing")
                                        .set("single", Json::array().push(special).push(text))
                                        .set("special_tokens", Json::object().set("<s>", ids)))
              .problem() ==
          "tokenizer.json: post_processor: its template adds the id 999, which is not a token");
}
