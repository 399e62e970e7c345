// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/tokenize.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/stop_signals.hpp"
#include "coeus/data/bpe_training.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/file/hash.hpp"
#include "coeus/file/json.hpp"
#include "support/catch.hpp"
#include "support/full_disk.hpp"
#include "support/support.hpp"
#include "token_files.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>
#include <thread>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

const TemporaryFolder& small_tokenizer() {
    static const TemporaryFolder folder;
    static const bool made = [] {
        write_file(folder / "text.txt", "the cat sat on the mat; the dog's log, 1234.\n\nThe end of it.\n");
        train_tokenizer(Corpus({folder / "text.txt"}), 280, folder.path(), 1);
        return true;
    }();
    require(made, "trained");
    return folder;
}

// A tokenizer whose words are whole lines of lower-case letters. Large files are divided at spaces between
// letters, and with this tokenizer no piece ends there.
std::filesystem::path long_pieces() {
    static const TemporaryFolder folder;
    const JsonDocument document = JsonDocument::read(small_tokenizer() / "tokenizer.json");
    Json json = document.root().value();
    std::string text = json.text();
    const std::string pattern = *(*(*json.find("pre_tokenizer")->find("pretokenizers")->as_array())[0]
                                       .find("pattern")
                                       ->as_object())[0]
                                     .second.as_string();
    const std::string quoted = Json(pattern).text();
    text.replace(text.find(quoted), quoted.size(), "\"[a-z ]{1,1000}|.|\\\\n\"");
    write_file(folder / "tokenizer.json", text);
    write_file(folder / "tokenizer_config.json", read_file(small_tokenizer() / "tokenizer_config.json"));
    return folder.path();
}

std::vector<int32_t> tokens_of(const TokenFile& file) {
    std::vector<int32_t> all(static_cast<size_t>(file.num_tokens()));
    file.read(0, all);
    return all;
}

// Tokenizes in a process that the system kills when one of its files grows beyond `bytes`.
int signal_of_run(const Corpus& corpus, const std::filesystem::path& output, rlim_t bytes,
                  const TokenizeOptions& options) {
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        const rlimit limit{bytes, bytes}, no_core{0, 0};
        setrlimit(RLIMIT_FSIZE, &limit);
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGXFSZ, SIG_DFL);
        tokenize(corpus, Tokenizer(small_tokenizer().path()), output, options);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int count_files(const std::filesystem::path& folder) {
    return int(std::distance(std::filesystem::directory_iterator(folder), {}));
}

std::vector<int32_t> document(const Tokenizer& tokenizer, const std::string& text) {
    const auto& [before, after] = tokenizer.document_ends();
    std::vector<int32_t> ids = tokenizer.encode(text);
    ids.insert(ids.begin(), before.begin(), before.end());
    ids.insert(ids.end(), after.begin(), after.end());
    return ids;
}

}  // namespace

TEST_CASE("tokenize: documents between BOS and EOS, in order") {
    const TemporaryFolder folder;
    const Tokenizer tokenizer(small_tokenizer().path());
    write_file(folder / "a.txt", "the cat");
    write_file(folder / "b.jsonl", "{\"text\": \"one dog\"}\n{\"text\": \"\"}\n{\"text\": \"two\\nlogs\"}\n");
    const auto output = folder / "new" / "tokens.h5";
    const Tokenized done =
        tokenize(Corpus({folder / "a.txt", folder / "b.jsonl"}), tokenizer, output, {.threads = 2});
    TokenFile file(output);
    std::vector<int32_t> expected;
    std::vector<int64_t> begins;
    for (const char* text : {"the cat", "one dog", "two\nlogs"}) {
        const auto ids = document(tokenizer, text);
        begins.push_back(int64_t(expected.size()));
        expected.insert(expected.end(), ids.begin(), ids.end());
    }
    CHECK(tokens_of(file) == expected);
    CHECK(done.tokens == int64_t(expected.size()));
    CHECK(done.documents == 3);
    CHECK_FALSE(done.up_to_date);
    REQUIRE(file.num_documents() == 3);
    for (int64_t d = 0; d < 3; ++d) CHECK(file.document_begin(d) == begins[size_t(d)]);
    CHECK(file.tokenizer_hash() == tokenizer.hash());
    CHECK(file.max_token() == 279);
    const auto h5 = hdf5::File::open(output.string());
    CHECK(h5.dataset("tokens").type() == hdf5::Type::u16);
    CHECK(h5.int_attribute("num_tokens") == done.tokens);
    CHECK(h5.int_attribute("num_documents") == 3);
    CHECK(h5.int_attribute("vocab_size") == 280);
    CHECK(h5.int_attribute("bos_id") == 278);
    CHECK(h5.int_attribute("eos_id") == 279);
    CHECK(h5.string_attribute("source") == "a.txt and 1 more");
    // no other file is left in the folder
    CHECK(std::distance(std::filesystem::directory_iterator(folder / "new"), {}) == 1);
}

TEST_CASE("tokenize: a token file of an earlier version is used with a warning, or made again") {
    const TemporaryFolder folder;
    const Tokenizer tokenizer(small_tokenizer().path());
    write_file(folder / "a.txt", "the cat");
    const Corpus corpus({folder / "a.txt"});
    const std::string earlier =
        hash_text(hash_of("tokens 2 " + tokenizer.earlier_hash() + " " + hash_text(corpus.content_hash())));
    const auto output = folder / "tokens.h5";
    const auto run = [&](bool replace) {
        return tokenize(corpus, tokenizer, output, {.threads = 1, .replace = replace});
    };
    CHECK_FALSE(run(false).up_to_date);
    CHECK_FALSE(run(false).earlier);
    const auto make_earlier = [&](const std::filesystem::path& file) {
        const std::string now = hdf5::File::open(file.string()).string_attribute("content");
        std::string bytes = read_file(file);
        const size_t at = bytes.find(now);
        REQUIRE(at != std::string::npos);
        REQUIRE(now.size() == earlier.size());
        write_file(file, bytes.replace(at, now.size(), earlier));
    };
    make_earlier(output);
    CHECK(run(false).up_to_date);
    CHECK(run(false).earlier);
    CHECK_FALSE(run(true).up_to_date);
    CHECK_FALSE(run(true).earlier);
    CHECK_THAT(earlier_tables_warning(output), Catch::Contains("tokens.h5 --force` makes it again"));
    // a cached file is used
    const auto cached = tokenized(Corpus({folder / "a.txt"}), "a", tokenizer, folder / "cache");
    const auto old = folder / "cache" / ("a-" + earlier + ".h5");
    std::filesystem::rename(cached, old);
    make_earlier(old);
    CHECK(tokenized(Corpus({folder / "a.txt"}), "a", tokenizer, folder / "cache") == old);
    CHECK(hdf5::File::open(old.string()).string_attribute("content") == earlier);
}

TEST_CASE("tokenize: only once for the same text and tokenizer") {
    const TemporaryFolder folder;
    const Tokenizer tokenizer(small_tokenizer().path());
    write_file(folder / "a.txt", "the cat");
    const auto output = folder / "tokens.h5";
    const auto run = [&] { return tokenize(Corpus({folder / "a.txt"}), tokenizer, output, {.threads = 1}); };
    CHECK_FALSE(run().up_to_date);
    const std::string first = read_file(output);
    const Tokenized again = run();
    CHECK(again.up_to_date);
    CHECK(again.documents == 1);
    CHECK(again.tokens == TokenFile(output).num_tokens());
    write_file(folder / "a.txt", "the dog");
    CHECK_FALSE(run().up_to_date);
    CHECK(tokens_of(TokenFile(output)) == document(tokenizer, "the dog"));
    write_file(folder / "a.txt", "the cat");
    CHECK_FALSE(run().up_to_date);
    CHECK((read_file(output) == first));

    const auto cached = tokenized(Corpus({folder / "a.txt"}), "a", tokenizer, folder / "cache");
    CHECK(cached == tokenized(Corpus({folder / "a.txt"}), "a", tokenizer, folder / "cache"));
    CHECK(cached.filename().string().starts_with("a-"));
    write_file(folder / "a.txt", "other");
    CHECK(cached != tokenized(Corpus({folder / "a.txt"}), "a", tokenizer, folder / "cache"));
    CHECK(std::distance(std::filesystem::directory_iterator(folder / "cache"), {}) == 2);
}

TEST_CASE("tokenize: a large text gives the same tokens, however it is divided") {
    const TemporaryFolder folder;
    std::string lines, words;
    for (int i = 0; lines.size() < (2 << 20); ++i)
        lines += "The cat sat " + std::to_string(i * 7919) + " times  \n" + (i % 5 ? "" : "\n  naïve é東\n");
    for (int i = 0; words.size() < (2 << 20); ++i) words += i % 50 ? "words without ends " : "and 12, ";
    write_file(folder / "a.txt", lines);
    write_file(folder / "b.txt", words);
    const Corpus corpus({folder / "a.txt", folder / "b.txt"});
    for (const auto& tokenizer_folder : {small_tokenizer().path(), long_pieces()}) {
        const Tokenizer tokenizer(tokenizer_folder);
        REQUIRE(tokenizer.can_encode_parts());
        auto expected = document(tokenizer, lines);
        const auto second = document(tokenizer, words);
        expected.insert(expected.end(), second.begin(), second.end());
        for (const int threads : {1, 3}) {
            const auto output = folder / ("tokens" + std::to_string(threads) + ".h5");
            std::filesystem::remove(output);
            tokenize(corpus, tokenizer, output, {.threads = threads});
            CHECK((tokens_of(TokenFile(output)) == expected));
        }
        CHECK((read_file(folder / "tokens1.h5") == read_file(folder / "tokens3.h5")));
    }
}

TEST_CASE("tokenize: a vocabulary above 65536 is stored with 32 bits") {
    const TemporaryFolder folder;
    const JsonDocument document = JsonDocument::read(small_tokenizer() / "tokenizer.json");
    Json json = document.root().value(), added = *json.find("added_tokens");
    added.push(Json::object().set("id", 70000).set("content", "<far>"));
    json.set("added_tokens", added);
    write_json(json, folder / "tokenizer.json");
    write_file(folder / "a.txt", "the<far>cat");
    const Tokenizer tokenizer(folder.path());
    tokenize(Corpus({folder / "a.txt"}), tokenizer, folder / "tokens.h5", {.threads = 1});
    TokenFile file(folder / "tokens.h5");
    CHECK(file.max_token() == 70000);
    // without tokenizer_config.json there is no EOS, only the BOS of the tokenizer's own template
    CHECK(tokens_of(file) == ::document(tokenizer, "the<far>cat"));
    CHECK(tokenizer.document_ends().before == std::vector<int32_t>{278});
    CHECK(tokenizer.document_ends().after.empty());
    CHECK(hdf5::File::open((folder / "tokens.h5").string()).dataset("tokens").type() == hdf5::Type::u32);
}

TEST_CASE("tokenize: a text is not divided if the expression looks back, and the tokens are the same") {
    const TemporaryFolder folder;
    std::string text = read_file(small_tokenizer() / "tokenizer.json");
    const size_t at = text.find("\"(?i:");
    REQUIRE(at != std::string::npos);
    text.insert(at + 1, "(?<=1)xx|");
    write_file(folder / "tokenizer.json", text);
    std::string words;
    while (words.size() < (2 << 20)) words += "some words\nand 1xx lines ";
    write_file(folder / "a.txt", words);
    const Tokenizer tokenizer(folder.path());
    REQUIRE_FALSE(tokenizer.can_encode_parts());
    tokenize(Corpus({folder / "a.txt"}), tokenizer, folder / "tokens.h5", {.threads = 2});
    CHECK((tokens_of(TokenFile(folder / "tokens.h5")) == document(tokenizer, words)));
}

TEST_CASE("tokenize: bad input") {
    const TemporaryFolder folder;
    const Tokenizer tokenizer(small_tokenizer().path());
    write_file(folder / "a.txt", "the cat");
    write_file(folder / "none.jsonl", "\n  \n{\"text\": \"\"}\n");
    const Corpus corpus({folder / "a.txt"});
    CHECK_THROWS_WITH(tokenize(Corpus({folder / "none.jsonl"}), tokenizer, folder / "x.h5", {.threads = 1}),
                      "none.jsonl: contains no text");
    CHECK_THROWS_WITH(tokenize(corpus, tokenizer, folder / "a.txt", {.threads = 1}),
                      (folder / "a.txt").string() +
                          " already exists and is not a token file; choose another name, or remove it");
    make_hdf5(folder / "other.h5", [](hdf5::File& file) { file.create_group("model"); });
    CHECK_THROWS_WITH(tokenize(corpus, tokenizer, folder / "other.h5", {.threads = 1}),
                      Contains("already exists and is an HDF5 file, but not a token file"));
    CHECK_THROWS_WITH(tokenize(corpus, tokenizer, folder / "a.txt" / "x.h5", {.threads = 1}),
                      Contains("this folder cannot be created"));
    write_file(folder / "bad.jsonl", "{\"text\": \"a\"}\n{\"txt\": 1}\n");
    CHECK_THROWS_WITH(tokenize(Corpus({folder / "bad.jsonl"}), tokenizer, folder / "x.h5", {.threads = 2}),
                      Contains("bad.jsonl: line 2: has no field \"text\", only \"txt\"; --field NAME "
                               "(in a deck, training.text_field) reads the field of that name"));
    CHECK_FALSE(std::filesystem::exists(folder / "x.h5"));
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
        CHECK(entry.path().extension() != ".part");
}

TEST_CASE("tokenize: after a full disk the next start can continue") {
    const TemporaryFolder folder;
    const Tokenizer tokenizer(small_tokenizer().path());
    std::string text;
    for (int i = 0; text.size() < 20000; ++i) text += "The cat sat " + std::to_string(i * 7919) + " times\n";
    write_file(folder / "a.txt", text);
    const Corpus corpus({folder / "a.txt"});
    const std::filesystem::path output = folder / "out" / "x.h5";
    const auto expected = tokenize(corpus, tokenizer, folder / "whole.h5", {.threads = 1});
    for (const rlim_t bytes :
         // the disk is full for the temporary file, or for the HDF5 file
         {rlim_t(100), rlim_t(expected.tokens * 2 + 10)}) {
        const FullDisk full(bytes);
        CHECK_THROWS_AS(tokenize(corpus, tokenizer, output, {.threads = 1}), SystemError);
        CHECK(files_in(output.parent_path()).empty());
    }
    CHECK(tokenize(corpus, tokenizer, output, {.threads = 1}).tokens == expected.tokens);
}

TEST_CASE("tokenize: a word of more than 16 MiB is refused, and the file is named") {
    const TemporaryFolder folder;
    const Tokenizer tokenizer(small_tokenizer().path());
    write_file(folder / "a.txt", "the cat " + std::string((16 << 20) + 1, 'a') + " sat");
    CHECK_THROWS_WITH(tokenize(Corpus({folder / "a.txt"}), tokenizer, folder / "x.h5", {.threads = 1}),
                      Contains("a.txt: a word that the tokenizer does not split has 167772") &&
                          Contains(" bytes, but the maximum is 16 MiB"));
    CHECK_FALSE(std::filesystem::exists(folder / "x.h5.tokens.part"));
}

TEST_CASE("tokenize: a killed run continues where it stopped") {
    const TemporaryFolder folder, texts;
    std::string words, json;
    int64_t in_json = 0;  // bytes of its texts
    for (int i = 0; words.size() < (5 << 20); ++i)
        words += i % 50 ? "the cat sat on the mat " : "the dog\xff\n";
    for (int i = 0; json.size() < (4 << 20); ++i) {
        const std::string text = "the log " + std::to_string(i) + " of the dog";
        json += "{\"text\": \"" + text + "\"}\n";
        in_json += int64_t(text.size());
    }
    write_file(texts / "a.txt", words);
    write_file(texts / "b.jsonl", json);
    REQUIRE(run_shell("gzip -c " + (texts / "b.jsonl").string() + " > " + (texts / "c.jsonl.gz").string())
                .exit_code == 0);
    const Corpus corpus({texts.path()});
    const Tokenizer tokenizer(small_tokenizer().path());
    const Tokenized whole = tokenize(corpus, tokenizer, folder / "whole.h5", {.threads = 2});
    CHECK(whole.resumed_tokens == 0);
    CHECK(whole.text_bytes == int64_t(words.size() + 2 * json.size()) +
                                  2 * int64_t(std::count(words.begin(), words.end(), '\xff')));
    CHECK(TokenFile(folder / "whole.h5").document_bytes() ==
          whole.text_bytes - 2 * int64_t(json.size()) + 2 * in_json);

    const auto output = folder / "new" / "tokens.h5";
    const TokenizeOptions options = {.threads = 2, .block_bytes = 1, .save_seconds = 0};
    for (const rlim_t bytes :
         {rlim_t(whole.tokens / 3), rlim_t(whole.tokens), rlim_t(whole.tokens * 19 / 10)}) {
        CHECK(signal_of_run(corpus, output, bytes, options) == SIGXFSZ);
        CHECK_FALSE(std::filesystem::exists(output));
        CHECK(std::filesystem::exists(output.string() + ".resume.json"));
    }
    const Tokenized done = tokenize(corpus, tokenizer, output, options);
    CHECK(done.resumed_tokens > whole.tokens * 2 / 3);
    CHECK(done.resumed_tokens < whole.tokens);
    CHECK(done.tokens == whole.tokens);
    CHECK(done.documents == whole.documents);
    CHECK(done.text_bytes == whole.text_bytes);
    CHECK((read_file(output) == read_file(folder / "whole.h5")));
    CHECK(count_files(folder / "new") == 1);

    // files left by a run over another text, and damaged files, are not used
    std::filesystem::remove(output);
    CHECK(signal_of_run(corpus, output, rlim_t(whole.tokens), options) == SIGXFSZ);
    const auto copy_folder = [](const std::filesystem::path& from, const std::filesystem::path& to) {
        std::filesystem::remove_all(to);
        std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
    };
    copy_folder(folder / "new", folder / "killed");
    const auto starts_again = [&](const char* what, const std::function<void()>& damage) {
        INFO(what);
        copy_folder(folder / "killed", folder / "new");
        damage();
        CHECK(tokenize(corpus, tokenizer, output, options).resumed_tokens == 0);
        CHECK((read_file(output) == read_file(folder / "whole.h5")));
        CHECK(count_files(folder / "new") == 1);
    };
    starts_again("a damaged record", [&] { write_file(output.string() + ".resume.json", "{\"content\": "); });
    starts_again("a file that lost its end",
                 [&] { std::filesystem::resize_file(output.string() + ".tokens.part", 1000); });

    copy_folder(folder / "killed", folder / "new");
    write_file(texts / "a.txt", "the dog");
    const Tokenized other = tokenize(Corpus({texts / "a.txt"}), tokenizer, output, options);
    CHECK(other.resumed_tokens == 0);
    CHECK(tokens_of(TokenFile(output)) == document(tokenizer, "the dog"));
    CHECK(count_files(folder / "new") == 1);
}

TEST_CASE("tokenize: a run that is asked to stop keeps its progress") {
    const TemporaryFolder folder, texts;
    std::string words;
    while (words.size() < (3 << 20)) words += "the cat sat on the mat\n";
    write_file(texts / "a.txt", words);
    const Corpus corpus({texts.path()});
    const Tokenizer tokenizer(small_tokenizer().path());
    const auto output = folder / "tokens.h5";
    const TokenizeOptions options = {.block_bytes = 1, .save_seconds = 1e9};
    {
        const StopSignals signals;
        raise(SIGUSR1);
        CHECK_THROWS_WITH(tokenize(corpus, tokenizer, output, options),
                          Catch::StartsWith("Stopped by SIGUSR1: the tokens so far are saved"));
    }
    CHECK_FALSE(std::filesystem::exists(output));
    const Tokenized done = tokenize(corpus, tokenizer, output, options);
    CHECK(done.resumed_tokens > 0);
    CHECK(done.resumed_tokens < done.tokens);
    CHECK(done.tokens == tokenize(corpus, tokenizer, folder / "whole.h5").tokens);
    CHECK((read_file(output) == read_file(folder / "whole.h5")));
}

TEST_CASE("tokenize: two runs that make the same file wait for each other") {
    const TemporaryFolder folder;
    std::string words;
    while (words.size() < (3 << 20)) words += "the cat sat on the mat\n";
    write_file(folder / "a.txt", words);
    const Corpus corpus({folder / "a.txt"});
    const Tokenizer tokenizer(small_tokenizer().path());
    std::atomic<int> made = 0;
    {
        std::vector<std::jthread> runs;
        for (int i = 0; i < 3; ++i)
            runs.emplace_back([&] {
                if (!tokenize(corpus, tokenizer, folder / "out" / "x.h5", {.threads = 1}).up_to_date) ++made;
            });
    }
    CHECK(made == 1);
    CHECK(count_files(folder / "out") == 1);
}

TEST_CASE("tokenize: compressed text gives the same tokens") {
    const TemporaryFolder folder;
    std::string words;
    for (int i = 0; words.size() < (4 << 20); ++i)
        words += "the cat " + std::to_string(i) + " é sat\nthe dog";
    write_file(folder / "a.txt", words);
    REQUIRE(run_shell("gzip -k " + (folder / "a.txt").string()).exit_code == 0);
    const Tokenizer tokenizer(small_tokenizer().path());
    for (const char* name : {"a.txt", "a.txt.gz"})
        tokenize(Corpus({folder / name}), tokenizer, folder / (std::string(name) + ".h5"),
                 {.threads = 2, .block_bytes = 1 << 20});
    CHECK((tokens_of(TokenFile(folder / "a.txt.h5")) == tokens_of(TokenFile(folder / "a.txt.gz.h5"))));
    CHECK((tokens_of(TokenFile(folder / "a.txt.h5")) == document(tokenizer, words)));
    const std::string packed = read_file(folder / "a.txt.gz");
    write_file(folder / "a.txt.gz", packed.substr(0, packed.size() / 2));
    CHECK_THROWS_WITH(tokenize(Corpus({folder / "a.txt.gz"}), tokenizer, folder / "out" / "x.h5"),
                      Contains("a.txt.gz is truncated: its gzip data is incomplete"));
    CHECK(count_files(folder / "out") == 0);
}

TEST_CASE("tokenize: another field than text has other tokens and another hash") {
    const TemporaryFolder folder;
    const Tokenizer tokenizer(small_tokenizer().path());
    write_file(folder / "x.jsonl", "{\"text\": \"the cat\", \"body\": \"the mat\"}\n");
    write_file(folder / "x.json", "[{\"body\": \"the mat\"}, {\"text\": 5, \"body\": \"the end\"}]");
    write_file(folder / "part-0", "{\"body\": \"the mat\"}\n{\"body\": \"a\"}\n");
    const auto corpus = [&](const char* name, const std::string& field) {
        return Corpus({folder / name}, BadLines::stop, {}, field);
    };
    CHECK(corpus("x.jsonl", "text").content_hash() == Corpus({folder / "x.jsonl"}).content_hash());
    CHECK(corpus("x.jsonl", "body").content_hash() != corpus("x.jsonl", "text").content_hash());
    const auto made = [&](const char* name, const std::string& field) {
        tokenize(corpus(name, field), tokenizer, folder / (field + name + ".h5"));
        return tokens_of(TokenFile(folder / (field + name + ".h5")));
    };
    CHECK(made("x.jsonl", "text") == document(tokenizer, "the cat"));
    CHECK(made("x.jsonl", "body") == document(tokenizer, "the mat"));
    std::vector<int32_t> two = document(tokenizer, "the mat"), more = document(tokenizer, "the end");
    two.insert(two.end(), more.begin(), more.end());
    CHECK(made("x.json", "body") == two);
    CHECK(TokenFile(folder / "bodyx.json.h5").num_documents() == 2);
    made("part-0", "body");  // known as JSON Lines by its content
    CHECK(TokenFile(folder / "bodypart-0.h5").num_documents() == 2);
    CHECK_THROWS_WITH(made("x.jsonl", "nothing"),
                      Contains("has no field \"nothing\", only \"text\", \"body\"; --field text (in a deck"));
}

TEST_CASE("tokenize: special tokens of a trained tokenizer follow EOS and are mapped in texts") {
    const TemporaryFolder folder;
    write_file(folder / "t.txt", "the cat sat on the mat\n");
    const Corpus corpus({folder / "t.txt"});
    const auto train = [&](int64_t size, const std::vector<std::string>& special) {
        return train_tokenizer(corpus, size, folder / "tok", 1, special).vocab_size;
    };
    CHECK(train(264, {"<|im_start|>", "<|im_end|>"}) == 264);
    const Tokenizer tokenizer(folder / "tok");
    CHECK(*tokenizer.bos_id() == 260);
    CHECK(*tokenizer.eos_id() == 261);
    CHECK(tokenizer.special_ids() == std::vector<int32_t>{260, 261, 262, 263});
    CHECK(tokenizer.encode("<|im_end|><|im_start|>") == std::vector<int32_t>{263, 262});
    CHECK_THROWS_WITH(
        train(259, {"<|a|>", "<|b|>"}),
        "--vocab_size must be from 260 (256 bytes, BOS, EOS and 2 special tokens) to 4,194,304, but "
        "is 259");
    CHECK_THROWS_WITH(train(264, {"<|a|>", "<|a|>"}), "--special \"<|a|>\": is given twice");
    CHECK_THROWS_WITH(train(264, {"<|end_of_text|>"}),
                      Contains("is a token of every tokenizer that is made here"));
    CHECK_THROWS_WITH(train(264, {"x"}), Contains("--special \"x\": must be a text of two or more bytes"));
    CHECK_THROWS_WITH(train(300, {"at"}),
                      Contains("--special \"at\": is a word of this text, which became a token; choose"));
}
