// SPDX-License-Identifier: Apache-2.0
// The kind of tokenizer in a folder or file, and the message if there is none or it is damaged.
#include "../../../src/data/tokenizer/characters.hpp"
#include "../../../src/data/tokenizer/pre_tokenizer.hpp"
#include "coeus/base/error.hpp"
#include "coeus/data/bpe_training.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/file/hash.hpp"
#include "coeus/file/json.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <array>
#include <set>
#include <span>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using Ids = std::vector<int32_t>;

namespace {

std::string base64(const std::string& bytes) {
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t bits = 0;
        for (size_t j = i; j < i + 3; ++j) bits = (bits << 8) | (j < bytes.size() ? uint8_t(bytes[j]) : 0u);
        for (size_t j = 0; j < 4; ++j)
            text += i + j > bytes.size() ? '=' : digits[(bits >> (18 - 6 * j)) & 63];
    }
    return text;
}

// All bytes in order, then `more`.
std::string ranks(const std::vector<std::string>& more) {
    std::string text;
    for (int b = 0; b < 256; ++b) text += base64(std::string(1, char(b))) + " " + std::to_string(b) + "\n";
    for (size_t i = 0; i < more.size(); ++i) text += base64(more[i]) + " " + std::to_string(256 + i) + "\n";
    return text;
}

std::string problem(const std::filesystem::path& place) {
    try {
        Tokenizer tokenizer(place);
        return "none";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

Json added(const std::string& content, bool special) {
    return Json::object().set("content", content).set("special", special);
}

}  // namespace

TEST_CASE("tiktoken: merges by rank, from the left, and special tokens only in prompts") {
    const TemporaryFolder folder;
    write_file(folder / "tokenizer.model", ranks({"ab", "bc", "abc", "aa", "aaa", "xyz"}));
    write_file(folder / "tokenizer_config.json", R"({"tiktoken": "llama3"})");
    const Tokenizer tokenizer(folder.path());
    CHECK(tokenizer.vocab_size() == 262 + 256);
    CHECK(tokenizer.bos_id() == 262);
    CHECK(tokenizer.eos_id() == 263);
    CHECK(tokenizer.document_ends().before == Ids{262});
    CHECK(tokenizer.document_ends().after == Ids{263});
    CHECK(tokenizer.own_ends().before.empty());
    CHECK(tokenizer.encode("abcb") == Ids{258, 'b'});
    CHECK(tokenizer.encode("bcab") == Ids{257, 256});
    // five letters become aa aa a, then the leftmost of aa+a and a+aa is merged
    CHECK(tokenizer.encode("aaaaa") == Ids{259, 260});
    // no merges make it: it is used only for a whole piece
    CHECK(tokenizer.encode("xyz") == Ids{261});
    CHECK(tokenizer.encode("xyzx") == Ids{'x', 'y', 'z', 'x'});
    const std::string text = "<|eot_id|>";
    CHECK(tokenizer.encode(text).size() == text.size());
    CHECK(tokenizer.encode_prompt(text + "ab") == Ids{262 + 9, 256});
    CHECK(tokenizer.decode(Ids{262, 256, 263}) == "<|begin_of_text|>ab<|end_of_text|>");
    CHECK(tokenizer.decode(Ids{262, 256, 263}, true) == "ab");
    CHECK(tokenizer.bytes_of(262 + 255) == "<|reserved_special_token_245|>");
    CHECK(tokenizer.kind() == "byte-level BPE (tiktoken)");
    CHECK(tokenizer.special_ids().size() == 256);
    CHECK(tokenizer.special_ids().front() == 262);
    CHECK(tokenizer.can_encode_parts());
}

TEST_CASE("tiktoken: o200k and its special tokens are recognised by the number of ranks") {
    const TemporaryFolder folder;
    std::vector<std::string> more;
    for (int i = 256; i < 199998; ++i) more.push_back("tok" + std::to_string(i));
    write_file(folder / "o200k_base.tiktoken", ranks(more));
    const Tokenizer tokenizer(folder.path());
    CHECK(tokenizer.vocab_size() == 200019);
    CHECK_FALSE(tokenizer.bos_id());
    CHECK(tokenizer.eos_id() == 199999);
    CHECK(tokenizer.encode_prompt("<|endofprompt|>") == Ids{200018});
    // words are divided before a capital
    CHECK(tokenizer.encode("tok256").size() == 6);
    CHECK_THROWS_WITH(tokenizer.bytes_of(199998), Contains("has no token with the id 199998"));
}

TEST_CASE("tiktoken: Llama 4's 2048 special tokens are recognised by the number of ranks") {
    const TemporaryFolder folder;
    std::vector<std::string> more;
    for (int i = 256; i < 200000; ++i) more.push_back("tok" + std::to_string(i));
    write_file(folder / "tokenizer.model", ranks(more));
    const Tokenizer tokenizer(folder.path());
    CHECK(tokenizer.vocab_size() == 202048);
    CHECK(tokenizer.bos_id() == 200000);
    CHECK(tokenizer.eos_id() == 200001);
    // the ids in the comments of the published program, and the ends of its groups
    const std::pair<int32_t, const char*> known[] = {
        {200005, "<|header_start|>"},
        {200008, "<|eot|>"},
        {200016, "<|python_start|>"},
        {200018, "<|finetune_right_pad|>"},
        {200079, "<|text_post_train_reserved_special_token_68|>"},
        {200080, "<|image_start|>"},
        {200090, "<|image|>"},
        {200092, "<|patch|>"},
        {201133, "<|vision_reserved_special_token_1047|>"},
        {201134, "<|reasoning_reserved_special_token_0|>"},
        {201143, "<|reasoning_thinking_end|>"},
        {201144, "<|reserved_special_token_0|>"},
        {202047, "<|reserved_special_token_903|>"}};
    for (const auto& [id, name] : known) {
        CAPTURE(id);
        CHECK(tokenizer.bytes_of(id) == name);
    }
    CHECK(tokenizer.encode("tok256").size() == 6);  // words are divided before a capital
}

TEST_CASE("tiktoken: the kind must be known, and lines must be complete") {
    const TemporaryFolder folder;
    write_file(folder / "tokenizer.model", ranks({"ab"}));
    CHECK_THAT(
        problem(folder.path()),
        Contains(
            "tokenizer.model: a tiktoken file contains no regular expression and no special tokens. Coeus "
            "knows those of llama3 (128,000 ranks), llama4 (200,000 ranks) and o200k (199,998 ranks), but "
            "this "
            "file has 257. Choose one of them in tokenizer_config.json in the same folder: {\"tiktoken\": "
            "\"llama3\"}"));
    write_file(folder / "tokenizer_config.json", R"({"tiktoken": "llama2"})");
    CHECK_THAT(problem(folder.path()), Contains("tokenizer_config.json in the same folder has \"tiktoken\": "
                                                "\"llama2\"; it must be one of llama3, llama4, o200k"));
    write_file(folder / "tokenizer_config.json", R"({"tiktoken": "o200k"})");
    CHECK(problem(folder.path()) == "none");
    CHECK(Tokenizer(folder.path()).eos_id() == 258);
    for (const std::string line :
         {"YWI", "YWI 300", "YW=I 300", "Y!I= 300", "YWI= -1", "YWI= 99999999", "YWI= 3x"}) {
        write_file(folder / "tokenizer.model", ranks({"ab"}) + line + "\n");
        CHECK_THAT(problem(folder.path()),
                   Contains("line 258 must be a token in base64 and its rank, but is \"" + line + "\""));
    }
    // a file with the user's own tokens and the line ends of another system
    write_file(folder / "tokenizer.model", ranks({"ab"}) + "eHk= 257\r\n\r\n");
    write_file(folder / "tokenizer_config.json",
               Json::object()
                   .set("tiktoken", "o200k")
                   .set("eos_token", "<end>")
                   .set("added_tokens_decoder", Json::object().set("300", added("<end>", true)))
                   .text());
    const Tokenizer own(folder.path());
    CHECK(own.eos_id() == 300);
    CHECK_FALSE(own.bos_id());
    CHECK(own.encode("xy") == Ids{257});
    write_file(folder / "tokenizer_config.json", R"({"tiktoken": "o200k", "eos_token": "<no>"})");
    CHECK_THAT(problem(folder.path()),
               Contains("eos_token of tokenizer_config.json is \"<no>\", which is not a token"));
    write_file(folder / "tokenizer_config.json",
               R"({"tiktoken": "o200k", "added_tokens_decoder": {"-1": {"content": "x"}}})");
    CHECK_THAT(problem(folder.path()), Contains("must be an id from 0 to 2^22 - 1, is -1"));
}

TEST_CASE("vocab.json and merges.txt") {
    const TemporaryFolder folder;
    const auto write = [&](const std::string& vocab, const std::string& merges, const std::string& config) {
        write_file(folder / "vocab.json", vocab);
        write_file(folder / "merges.txt", merges);
        write_file(folder / "tokenizer_config.json", config);
    };
    const std::string vocab = R"({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "1": 4, "11": 5, "<end>": 6})";
    const std::string merges = "#version: 0.2\na b\r\n1 1\n\n";
    write(vocab, merges, R"({"eos_token": "<end>"})");
    const Tokenizer tokenizer(folder.path());
    CHECK(tokenizer.encode("ab 11<end>c") == Ids{2, 3, 5, 6});
    CHECK(tokenizer.eos_id() == 6);
    CHECK(tokenizer.decode(Ids{2, 6}, true) == "ab");
    CHECK(Tokenizer(folder / "merges.txt").hash() == tokenizer.hash());
    CHECK(Tokenizer(folder / "vocab.json").encode("ab") == Ids{2});
    // Qwen divides text differently: every digit is a piece
    write(vocab, merges, R"({"eos_token": "<end>", "tokenizer_class": "Qwen2TokenizerFast"})");
    CHECK(Tokenizer(folder.path()).encode("ab 11") == Ids{2, 3, 4, 4});
    CHECK(Tokenizer(folder.path()).hash() != tokenizer.hash());

    write(R"({"a": 0, "b</w>": 1})", "", "{}");
    CHECK_THAT(problem(folder.path()), Contains("vocab.json: the token \"b</w>\" marks the end of a word"));
    for (const std::string line : {"ab", "a b c"}) {
        write(vocab, "a b\n" + line + "\n", "{}");
        CHECK_THAT(problem(folder.path()),
                   Contains("merges.txt: line 2 must be two symbols and a space between them, but is \"" +
                            line + "\""));
    }
    write(vocab, "a 1\n", "{}");
    CHECK_THAT(problem(folder.path()),
               Contains("\"a\" + \"1\": both tokens and the result must be in the vocabulary"));
    write("{}", "", "{}");
    CHECK_THAT(problem(folder.path()), Contains("the vocabulary is empty"));
    std::filesystem::remove(folder / "merges.txt");
    CHECK_FALSE(Tokenizer::is_at(folder.path()));
    CHECK_THAT(problem(folder / "vocab.json"), Contains("merges.txt: cannot be read"));
}

TEST_CASE(
    "the hash of a tokenizer changes with everything in tokenizer_config.json that affects ids, and nothing "
    "else") {
    const TemporaryFolder folder;
    write_file(folder / "vocab.json", R"({"a": 0, "b": 1, "<end>": 2, "<x>": 3})");
    write_file(folder / "merges.txt", "");
    const auto hash = [&](const std::string& more) {
        write_file(folder / "tokenizer_config.json", R"({"eos_token": "<end>")" + more + "}");
        return Tokenizer(folder.path()).hash();
    };
    const auto added = [](const std::string& more) {
        return R"(, "added_tokens_decoder": {"3": {"content": "<x>")" + more + "}}";
    };
    const std::vector<std::string> all = {
        "",
        R"(, "tokenizer_class": "Qwen2Tokenizer")",
        added(""),
        added(R"(, "special": true)"),
        added(R"(, "normalized": true)"),
        added(R"(, "lstrip": true)"),
        added(R"(, "rstrip": true)"),
        added(R"(, "single_word": true)"),
        R"(, "added_tokens_decoder": {"4": {"content": "<y>"}})",
        R"(, "added_tokens_decoder": {"5": {"content": "<y>"}})",
        R"(, "bos_token": "<x>")",
    };
    std::set<std::string> hashes;
    for (const std::string& more : all) {
        CAPTURE(more);
        CHECK(hashes.insert(hash(more)).second);
    }
    CHECK(hash(R"(, "model_max_length": 2048)") == hash(""));

    write_file(folder / "tokenizer.model", ranks({"ab"}));
    const auto tiktoken_hash = [&](const std::string& kind) {
        write_file(folder / "tokenizer_config.json",
                   R"({"tiktoken": ")" + kind +
                       R"(", "eos_token": "<end>", "added_tokens_decoder": {"300": {"content": "<end>"}}})");
        return Tokenizer(folder / "tokenizer.model").hash();
    };
    CHECK(tiktoken_hash("llama3") != tiktoken_hash("o200k"));
}

TEST_CASE("a damaged tokenizer.json is reported, even next to a tokenizer.model") {
    const TemporaryFolder folder;
    write_file(folder / "tokenizer.model", ranks({"ab"}));
    for (const std::string json : {R"({"model": {"byte_fallback")", R"({"model": {"byte_fallback": )",
                                   R"({"model": {"byte_fallback": tr)"}) {
        write_file(folder / "tokenizer.json", json);
        CHECK_THAT(problem(folder.path()), Contains((folder / "tokenizer.json").string()));
    }
}

TEST_CASE("a folder with a tokenizer of another kind names its files") {
    const TemporaryFolder folder;
    write_file(folder / "vocab.txt", "[UNK]\n");
    write_file(folder / "tokenizer_config.json", "{}");
    CHECK_THAT(
        problem(folder.path()),
        Contains("there is no tokenizer in this folder that Coeus reads, but vocab.txt (the vocabulary of a "
                 "WordPiece), tokenizer_config.json (read only with a tokenizer); a tokenizer is "
                 "tokenizer.json"));
    write_file(folder / "tokenization_own.py", "");
    CHECK_THAT(problem(folder.path()), Contains("tokenization_own.py (a program of Python)"));
}

TEST_CASE("added_tokens.json of earlier versions of transformers counts, without added_tokens_decoder") {
    const TemporaryFolder folder;
    write_file(folder / "vocab.json", R"({"a": 0, "b": 1, "<end>": 2})");
    write_file(folder / "merges.txt", "");
    write_file(folder / "tokenizer_config.json", R"({"eos_token": "<end>"})");
    const std::string before = Tokenizer(folder.path()).hash();
    write_file(folder / "added_tokens.json", R"({"<end>": 2, "<pad>": 3})");
    const Tokenizer joined(folder.path());
    CHECK(joined.encode("a<pad>b") == Ids{0, 3, 1});
    CHECK(joined.vocab_size() == 4);
    CHECK(joined.hash() != before);
    write_file(folder / "added_tokens.json", R"({"<end>": 2})");
    CHECK(Tokenizer(folder.path()).hash() == before);
    write_file(folder / "added_tokens.json", R"({"<pad>": 3})");
    write_file(folder / "tokenizer_config.json",
               R"({"eos_token": "<end>", "added_tokens_decoder": {"2": {"content": "<end>"}}})");
    CHECK(Tokenizer(folder.path()).vocab_size() == 3);
}

TEST_CASE("a token file of a version without its own table of Unicode is of the same tokenizer") {
    const TemporaryFolder folder;
    write_file(folder / "vocab.json", R"({"a": 0, "b": 1, "<end>": 2})");
    write_file(folder / "merges.txt", "");
    write_file(folder / "tokenizer_config.json", R"({"eos_token": "<end>"})");
    const Tokenizer tokenizer(folder.path());
    CHECK(tokenizer.hash() != tokenizer.earlier_hash());
    CHECK(tokenizer.earlier_hash() == "789619e2f1ae1d71");  // of version 0.2
    CHECK(tokenizer.has_hash(tokenizer.hash()));
    CHECK(tokenizer.has_hash(tokenizer.earlier_hash()));
    CHECK_FALSE(tokenizer.has_hash("0123456789abcdef"));
}

TEST_CASE("the hash of a tokenizer has the version of utf8proc's tables if a normalizer uses them") {
    const TemporaryFolder folder;
    const std::string vocab = R"({"a": 0, "b": 1, "<end>": 2})";
    write_file(folder / "vocab.json", vocab);
    write_file(folder / "merges.txt", "");
    for (const bool normalizes : {false, true}) {
        write_file(folder / "tokenizer_config.json",
                   fmt::format(R"({{"eos_token": "<end>", "tokenizer_class": "{}"}})",
                               normalizes ? "Qwen2Tokenizer" : "GPT2Tokenizer"));
        const Tokenizer tokenizer(folder.path());
        Hasher hasher;
        hasher.update(vocab).update(normalizes ? "nfc;" : ";");
        hasher.update(normalizes ? qwen_pattern : gpt2_pattern).update(";");
        hasher.update("2 5 <end> false false false true false;");
        const std::array<int32_t, 2> ends = {-1, 2};
        hasher.update(std::as_bytes(std::span(ends))).update(";;;");
        CHECK(tokenizer.earlier_hash() == hash_text(hasher.digest()));
        hasher.update(fmt::format("Unicode {};", unicode_version));
        if (normalizes)
            hasher.update(fmt::format("utf8proc with Unicode {};", unicode_version_of_utf8proc()));
        CHECK(tokenizer.hash() == hash_text(hasher.digest()));
    }
}

TEST_CASE("a tokenizer is looked for in a folder, or is the file itself") {
    const TemporaryFolder folder;
    CHECK_THAT(problem(folder.path()),
               Contains("no tokenizer in this folder; a tokenizer is tokenizer.json"));
    CHECK_FALSE(Tokenizer::is_at(folder.path()));
    CHECK_FALSE(Tokenizer::is_at(folder / "absent"));
    write_file(folder / "a.model", ranks({"ab"}));
    CHECK(Tokenizer::is_at(folder.path()));
    write_file(folder / "tokenizer_config.json", R"({"tiktoken": "llama3"})");
    CHECK(Tokenizer(folder.path()).vocab_size() == 257 + 256);
    write_file(folder / "b.tiktoken", ranks({"ab", "cd"}));
    CHECK_FALSE(Tokenizer::is_at(folder.path()));
    CHECK_THAT(problem(folder.path()),
               Contains("contains a.model and b.tiktoken: give the path of one of these files"));
    CHECK(Tokenizer(folder / "b.tiktoken").vocab_size() == 258 + 256);
    write_file(folder / "tokenizer.model", ranks({}));
    CHECK(Tokenizer(folder.path()).vocab_size() == 256 + 256);
    write_file(folder / "text.txt", "some text");
    train_tokenizer(Corpus({folder / "text.txt"}), 258, folder.path(), 1);
    CHECK(Tokenizer(folder.path()).vocab_size() == 258);
    CHECK(Tokenizer(folder / "tokenizer.json").hash() == Tokenizer(folder.path()).hash());
    write_file(folder / "tokenizer.model", "neither of them");
    CHECK_THAT(problem(folder / "tokenizer.model"),
               Contains("tokenizer.model: is not a tokenizer: it is neither a tokenizer.json, nor a tiktoken "
                        "file, nor a SentencePiece model"));
    write_file(folder / "tokenizer.model", "");
    CHECK_THAT(problem(folder / "tokenizer.model"), Contains("neither a tokenizer.json"));
}
