// SPDX-License-Identifier: Apache-2.0
// Token files back to text, and tokens as text for people.
#include "coeus/data/detokenize.hpp"

#include "coeus/base/error.hpp"
#include "coeus/data/bpe_training.hpp"
#include "coeus/data/describe_tokens.hpp"
#include "coeus/data/tokenize.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "token_files.hpp"

#include <filesystem>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// A tokenizer with two special tokens, and a token file of four documents.
struct Chat {
    TemporaryFolder folder;
    Tokenizer tokenizer;
    TokenFile file;

    static const std::filesystem::path& prepared(const TemporaryFolder& folder) {
        write_file(folder / "t.txt", "the cat sat on the mat\n");
        train_tokenizer(Corpus({folder / "t.txt"}), 266, folder.path(), 1, {"<|im_start|>", "<|im_end|>"});
        write_file(
            folder / "x.jsonl",
            "{\"text\": \"the cat\"}\n{\"text\": \"<|im_start|>the mat<|im_end|>\\n\"}\n"
            "{\"text\": \"a \\\"b\\\" \\\\ \\u00e9\\t\\u6771\"}\n{\"text\": \"<|begin_of_text|>cat\"}\n");
        tokenize(Corpus({folder / "x.jsonl"}), Tokenizer(folder.path()), folder / "x.h5");
        return folder.path();
    }
    Chat() : tokenizer(prepared(folder)), file(folder / "x.h5") {}

    std::string lines(const DetokenizeOptions& options, Detokenized* done = nullptr) const {
        std::string all;
        const Detokenized result =
            detokenize(file, tokenizer, options, [&](std::string_view lines) { all += lines; });
        if (done) *done = result;
        return all;
    }
};

}  // namespace

TEST_CASE("detokenize: documents become lines, without their BOS and EOS") {
    const Chat chat;
    Detokenized done;
    const std::string with_special = chat.lines({.special = true, .threads = 2}, &done);
    CHECK(done.documents == 4);
    CHECK(done.special_left_out == 0);
    CHECK(with_special ==
          "{\"text\":\"the cat\"}\n{\"text\":\"<|im_start|>the mat<|im_end|>\\n\"}\n"
          "{\"text\":\"a \\\"b\\\" \\\\ é\\t東\"}\n{\"text\":\"<|begin_of_text|>cat\"}\n");
    write_file(chat.folder / "y.jsonl", with_special);
    tokenize(Corpus({chat.folder / "y.jsonl"}), chat.tokenizer, chat.folder / "y.h5");
    const TokenFile again(chat.folder / "y.h5");
    REQUIRE(again.num_tokens() == chat.file.num_tokens());
    for (int64_t i = 0; i < again.num_tokens(); ++i) CHECK(again.token(i) == chat.file.token(i));

    CHECK(chat.lines({.first = 1, .last = 1}, &done) == "{\"text\":\"the mat\\n\"}\n");
    CHECK(done.special_left_out == 2);
    CHECK(chat.lines({.first = 3}) == "{\"text\":\"cat\"}\n");
    CHECK_THROWS_WITH(chat.lines({.first = 2, .last = 4}),
                      Contains("x.h5: has documents 0 to 3, but 2 to 4 are asked for"));
}

TEST_CASE("detokenize: the tokenizer must be the one that made the file") {
    const Chat chat;
    const TemporaryFolder folder;
    write_file(folder / "t.txt", "the dog sat on the log\n");
    train_tokenizer(Corpus({folder / "t.txt"}), 266, folder.path(), 1);
    const Tokenizer other(folder.path());
    CHECK_THROWS_WITH(detokenize(chat.file, other, {}, [](std::string_view) {}),
                      Contains("x.h5: was made with the tokenizer " + chat.tokenizer.hash() +
                               ", but that in " + folder.path().string() + " is " + other.hash() +
                               "; give the one that made it with --tokenizer"));
    // a file without a hash passes, but not with ids that the tokenizer does not have
    const auto path = counting_file(folder / "c.h5", 300, {10});
    const TokenFile counting(path);
    std::string all;
    detokenize(counting, other, {.last = 0}, [&](std::string_view lines) { all += lines; });
    CHECK(count_of("\n", all) == 1);
    CHECK_THROWS_WITH(
        detokenize(counting, other, {}, [](std::string_view) {}),
        Contains("c.h5: document 1: the tokenizer in ") && Contains("has no token with the id 2"));
}

TEST_CASE("describe tokens: tokens, documents and masked labels as text") {
    const Chat chat;
    const int64_t count = chat.file.document_begin(2);
    ShownTokens shown{.first = 0, .ids = std::vector<int32_t>(size_t(count))};
    chat.file.read(0, shown.ids);
    CHECK(text_of(shown, chat.file, chat.tokenizer, {}) ==
          "<|begin_of_text|>the cat<|end_of_text|>\n--- document 1 ---\n"
          "<|begin_of_text|><|im_start|>the mat<|im_end|>\n<|end_of_text|>");
    shown.masked.assign(size_t(count), false);
    for (size_t t = 1; t < 4; ++t) shown.masked[t] = true;
    CHECK_THAT(text_of(shown, chat.file, chat.tokenizer, {}),
               Catch::StartsWith("<|begin_of_text|>[the cat]<|end"));
    CHECK_THAT(text_of(shown, chat.file, chat.tokenizer, {.colors = true}),
               Catch::StartsWith("<|begin_of_text|>\x1b[90mthe cat\x1b[0m<|end"));

    // a part that begins inside a document, with a character of three tokens and an unknown id
    const int64_t from = chat.file.document_begin(3) - 5;
    ShownTokens part{.first = from, .ids = std::vector<int32_t>(6)};
    chat.file.read(from, part.ids);
    CHECK(text_of(part, chat.file, chat.tokenizer, {.divides = true}) ==
          "\t|\\xe6|\\x9d|\\xb1|<|end_of_text|>\n--- document 3 ---\n<|begin_of_text|>");
    part.ids[0] = 5000;
    CHECK_THAT(text_of(part, chat.file, chat.tokenizer, {}), Catch::StartsWith("<id 5000>東<|end_of_text|>"));
}
