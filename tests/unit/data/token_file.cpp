// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/token_file.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "token_files.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

const TemporaryFolder& folder() {
    static const TemporaryFolder all;
    return all;
}

// The message about a file that `fill` wrote, without the folder.
std::string problem(const std::function<void(hdf5::File&)>& fill) {
    const auto path = folder() / "bad.h5";
    make_hdf5(path, fill);
    try {
        TokenFile file(path);
        return "none";
    } catch (const ConfigError& error) {
        return std::string(error.what()).substr(folder().path().string().size() + 1);
    }
}

template <class T>
void put(hdf5::File& file, const std::string& name, const std::vector<T>& values) {
    file.create_dataset(name, hdf5::type_of<T>(), {int64_t(values.size())}).write(std::span<const T>(values));
}

using U16 = std::vector<uint16_t>;
using U64 = std::vector<uint64_t>;

}  // namespace

TEST_CASE("token file: the four lines of h5py in the documentation are enough") {
    const auto path = folder() / "plain.h5";
    make_hdf5(path, [](hdf5::File& file) { put(file, "tokens", U16{5, 65535, 0, 7}); });
    TokenFile file(path);
    CHECK(file.num_tokens() == 4);
    CHECK(file.num_documents() == 1);
    CHECK_FALSE(file.has_loss_mask());
    CHECK(file.is_label(2));
    CHECK(file.token(1) == 65535);
    CHECK(file.max_token(2) == 65535);
    CHECK(file.tokenizer_hash().empty());
    CHECK(file.document_of(3) == 0);
    CHECK(file.document_begin(0) == 0);
    CHECK(file.document_begin(1) == 4);
    std::vector<int32_t> out(2);
    file.read(2, out);
    CHECK(out == std::vector<int32_t>{0, 7});
    CHECK_THROWS_AS(file.read(3, out), LogicError);
    CHECK(is_token_file(path));
}

TEST_CASE("token file: 32 bits, documents, mask") {
    const auto path = folder() / "wide.h5";
    make_hdf5(path, [](hdf5::File& file) {
        put(file, "tokens", std::vector<uint32_t>{1, 2, 200000, 4, 5});
        put(file, "documents", U64{0, 2, 2, 3, 5});
        put(file, "loss_mask", std::vector<uint8_t>{1, 0, 1, 1, 0});
        file.set_attribute("tokenizer", std::string("00ff"));
    });
    TokenFile file(path);
    CHECK(file.num_documents() == 4);
    CHECK(file.max_token() == 200000);
    CHECK(file.tokenizer_hash() == "00ff");
    const std::vector<int64_t> expected = {0, 0, 2, 3, 3};  // document 1 is empty
    for (int64_t i = 0; i < 5; ++i) CHECK(file.document_of(i) == expected[size_t(i)]);
    CHECK_FALSE(file.is_label(1));
    CHECK(file.is_label(2));
}

TEST_CASE("token file: one process checks a file, another maps it with the results") {
    const auto path = folder() / "layout.h5";
    make_hdf5(path, [](hdf5::File& file) {
        put(file, "tokens", std::vector<uint32_t>{5, 6, 70000, 8});
        put(file, "documents", U64{0, 3, 4});
        put(file, "loss_mask", std::vector<uint8_t>{1, 0, 1, 1});
    });
    TokenFile file(path);
    file.max_token(1);
    const TokenFile::Layout layout = TokenFile::Layout::of_text(file.layout().text());
    TokenFile other(path, layout);
    CHECK(other.num_tokens() == 4);
    CHECK(other.num_documents() == 2);
    CHECK(other.token(2) == 70000);
    CHECK(other.document_of(3) == 1);
    CHECK_FALSE(other.is_label(1));
    CHECK(other.max_token() == 70000);
    CHECK(other.tokenizer_hash().empty());
    TokenFile::Layout named = layout;
    named.tokenizer_hash = "two words";
    named.max_token.reset();
    CHECK(TokenFile::Layout::of_text(named.text()).tokenizer_hash == "two words");
    CHECK_FALSE(TokenFile::Layout::of_text(named.text()).max_token);
    std::filesystem::resize_file(path, uintmax_t(layout.tokens.offset + 8));
    CHECK_THROWS_WITH(TokenFile(path, layout), Contains("fewer than on rank 0"));
}

TEST_CASE("token file: a token outside the vocabulary is named with its position") {
    U16 tokens(10'000'000, 3);
    tokens[9'000'001] = 900;
    tokens[9'500'000] = 1000;
    const auto path = folder() / "range.h5";
    make_hdf5(path, [&](hdf5::File& file) { put(file, "tokens", tokens); });
    TokenFile file(path);
    CHECK_NOTHROW(file.check_vocabulary(1001, 3));
    CHECK_THROWS_WITH(file.check_vocabulary(900, 3),
                      path.string() +
                          ": token 900 at position 9000001 is not in the model's vocabulary of 900; "
                          "model.vocab_size must be at least 1001");
}

TEST_CASE("token file: wrong files") {
    CHECK_THROWS_WITH(TokenFile("/nowhere/x.h5"), "/nowhere/x.h5: this file does not exist");
    write_file(folder() / "text.h5", "plain text");
    CHECK_THROWS_WITH(TokenFile(folder() / "text.h5"), Contains("text.h5 is not an HDF5 file"));
    CHECK_FALSE(is_token_file(folder() / "text.h5"));
    CHECK_FALSE(is_token_file(folder() / "absent"));

    CHECK_THAT(problem([](hdf5::File& file) { put(file, "token", U16{1}); }),
               Contains("bad.h5 has no dataset /tokens") && Contains("/token"));
    CHECK(problem([](hdf5::File& file) {
              put(file, "tokens", std::vector<int64_t>{1, 2});
          }) ==
          "bad.h5: /tokens must be a 1-D array of uint16 or uint32, but is [2] int64; with h5py: "
          "f.create_dataset(\"tokens\", data=....astype(\"uint16\"))");
    CHECK_THAT(problem([](hdf5::File& file) {
                   file.create_dataset("tokens", hdf5::Type::u16, {2, 1})
                       .write(std::span<const uint16_t>(U16{1, 2}));
               }),
               Contains("is [2, 1] uint16"));
    CHECK(problem([](hdf5::File& file) { file.create_dataset("tokens", hdf5::Type::u16, {0}); }) ==
          "bad.h5: /tokens is empty");
    const auto documents = [](const U64& offsets) {
        return problem([&](hdf5::File& file) {
            put(file, "tokens", U16{1, 2, 3});
            put(file, "documents", offsets);
        });
    };
    const std::string rule = ": offsets must ascend from 0 to the number of tokens, 3";
    CHECK(documents({0, 2, 3}) == "none");
    CHECK(documents({1, 3}) == "bad.h5: /documents[0] is 1" + rule);
    CHECK(documents({0, 2, 1, 3}) == "bad.h5: /documents[2] is 1" + rule);
    CHECK(documents({0, 4}) == "bad.h5: /documents[1] is 4" + rule);
    CHECK(documents({0, 2}) ==
          "bad.h5: the last entry of /documents must be the number of tokens, 3, but is 2");
    CHECK(problem([](hdf5::File& file) {
              put(file, "tokens", U16{1, 2, 3});
              put(file, "loss_mask", std::vector<uint8_t>{1});
          }) == "bad.h5: /loss_mask has 1 entries for 3 tokens, but must have one per token");
}

TEST_CASE("token file: truncated") {
    const auto path = folder() / "whole.h5";
    make_hdf5(path, [](hdf5::File& file) { put(file, "tokens", U16(100'000, 1)); });
    const std::string whole = read_file(path);
    for (const size_t bytes : {whole.size() - 1, whole.size() / 2}) {
        write_file(folder() / "cut.h5", whole.substr(0, bytes));
        CHECK_THROWS_WITH(TokenFile(folder() / "cut.h5"), Contains("cut.h5 is truncated"));
    }
}

TEST_CASE("token file: chunked arrays are refused with the command that repairs the file") {
    const auto path = folder() / "contiguous.h5";
    make_hdf5(path, [](hdf5::File& file) { put(file, "tokens", U16(1000, 1)); });
    const std::string chunked = (folder() / "chunked.h5").string();
    const Outcome repacked = run_shell("h5repack -l tokens:CHUNK=100 " + path.string() + " " + chunked);
    if (repacked.exit_code == 127) return skip("there is no h5repack (Debian: hdf5-tools)");
    INFO(repacked.output);
    REQUIRE(repacked.exit_code == 0);
    CHECK_THROWS_WITH(TokenFile(chunked),
                      chunked +
                          ": /tokens must be contiguous, without chunks or compression, so that "
                          "it can be memory-mapped; with h5py: f.create_dataset(\"tokens\", "
                          "data=...) without further options");
}
