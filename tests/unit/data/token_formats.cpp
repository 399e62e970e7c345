// SPDX-License-Identifier: Apache-2.0
// Token files of llm.c and NumPy, and the ids that divide their documents.
#include "coeus/base/error.hpp"
#include "coeus/data/bpe_training.hpp"
#include "coeus/data/sampler.hpp"
#include "coeus/data/separator.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/data/tokenizer.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

const TemporaryFolder& formats() {
    static const TemporaryFolder all;
    return all;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string llm_c(int32_t magic, int32_t version, int32_t count, const std::string& ids) {
    std::vector<int32_t> header(256);
    header[0] = magic;
    header[1] = version;
    header[2] = count;
    return bytes_of(header) + ids;
}

std::string numpy(const std::string& type, const std::string& shape, const std::string& ids, int major = 1) {
    std::string dictionary = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
    const size_t before = major == 1 ? 10 : 12;
    dictionary.append(63 - (before + dictionary.size()) % 64, ' ');
    dictionary += '\n';
    const auto length = uint32_t(dictionary.size());
    std::string header = "\x93NUMPY";
    header += char(major);
    header += '\0';
    header.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
    return header + dictionary + ids;
}

std::filesystem::path put_file(const std::string& name, const std::string& content) {
    write_file(formats() / name, content);
    return formats() / name;
}

std::vector<int32_t> ids_of(const TokenFile& file) {
    std::vector<int32_t> ids(size_t(file.num_tokens()));
    file.read(0, ids);
    return ids;
}

// The message about a file of this content, without the folder.
std::string refusal(const std::string& name, const std::string& content) {
    try {
        TokenFile file(put_file(name, content));
        file.check_vocabulary(100'000, 1);
        return "none";
    } catch (const ConfigError& error) {
        return std::string(error.what()).substr(formats().path().string().size() + 1);
    }
}

const std::vector<uint16_t> few = {5, 50256, 65535, 7};

}  // namespace

TEST_CASE("token formats: llm.c's files of GPT-2 and Llama 3") {
    CHECK(ids_of(TokenFile(put_file("gpt2.bin", llm_c(20240520, 1, 4, bytes_of(few))))) ==
          std::vector<int32_t>{5, 50256, 65535, 7});
    const std::vector<uint32_t> wide = {128000, 1, 65536};
    const TokenFile llama(put_file("llama.bin", llm_c(20240801, 7, 3, bytes_of(wide))));
    CHECK(ids_of(llama) == std::vector<int32_t>{128000, 1, 65536});
    CHECK(llama.layout().format == "llm.c");
    CHECK_FALSE(llama.lists_documents());
    CHECK(llama.num_documents() == 1);
    CHECK(leads_to_tokens(formats() / "llama.bin"));

    CHECK(refusal("a.bin", llm_c(20240520, 7, 4, bytes_of(few))) ==
          "a.bin: is a token file of llm.c of version 7, but with 20240520 only version 1 is read");
    CHECK(refusal("a.bin", llm_c(20240520, 1, 5, bytes_of(few))) ==
          "a.bin: has 1,032 bytes, but its header says 5 tokens of 2 bytes, which need 10 more than the "
          "header's "
          "1024");
    CHECK_THAT(refusal("a.bin", llm_c(20240520, 1, -1, bytes_of(few))), Contains("its header says -1 token"));
    CHECK(refusal("a.bin", llm_c(20240520, 1, 0, "")) == "a.bin: contains no tokens");
    CHECK(refusal("a.bin", llm_c(20240520, 1, 4, "").substr(0, 100)) ==
          "a.bin: ends within its header of 1024 bytes");
    CHECK_THAT(refusal("a.bin", "other bytes"),
               Contains("a.bin: does not begin as token files of llm.c do, and there is no ") &&
                   Contains("a.idx, with which it would be a pair of Megatron-LM"));
}

TEST_CASE("token formats: NumPy's arrays of every integer that ids can be") {
    const auto read = [](const std::string& content) {
        return ids_of(TokenFile(put_file("x.npy", content)));
    };
    const std::vector<int32_t> expected = {5, 50256, 65535, 7};
    CHECK(read(numpy("<u2", "(4,)", bytes_of(few))) == expected);
    CHECK(read(numpy("<u2", "(4,)", bytes_of(few), 2)) == expected);
    CHECK(read(numpy("<u2", "(4,)", bytes_of(few), 3)) == expected);
    CHECK(read(numpy("<u4", "(4,)", bytes_of(std::vector<uint32_t>(few.begin(), few.end())))) == expected);
    CHECK(read(numpy("<i4", "(4,)", bytes_of(std::vector<int32_t>(few.begin(), few.end())))) == expected);
    CHECK(read(numpy("<i8", "(4,)", bytes_of(std::vector<int64_t>(few.begin(), few.end())))) == expected);
    CHECK(read(numpy("<u8", "(4,)", bytes_of(std::vector<uint64_t>(few.begin(), few.end())))) == expected);
    CHECK(read(numpy("|u1", "(2,)", "\x05\xff")) == std::vector<int32_t>{5, 255});

    for (const char* type : {"<i2", ">u2", "<f4", "|b1"})
        CHECK_THAT(refusal("x.npy", numpy(type, "(4,)", bytes_of(few))),
                   Contains("x.npy: its elements are '" + std::string(type) + "'; ids must be uint8"));
    CHECK(refusal("x.npy", numpy("<u2", "(2, 2)", bytes_of(few))) ==
          "x.npy: its shape is (2, 2), but ids must have one dimension: ids.reshape(-1)");
    CHECK_THAT(refusal("x.npy", numpy("<u2", "(5,)", bytes_of(few))), Contains("its header says 5 tokens"));
    CHECK_THAT(refusal("x.npy", numpy("<u2", "(4,)", bytes_of(few) + "x")),
               Contains("its header says 4 tokens"));
    CHECK(refusal("x.npy", numpy("<u2", "(0,)", "")) == "x.npy: contains no tokens");
    CHECK_THAT(refusal("x.npy", "raw"),
               Contains("x.npy: does not begin as NumPy's arrays do; write it with"));
    CHECK(refusal("x.npy", numpy("<u2", "(4,)", "").substr(0, 40)) == "x.npy: ends within its header");
    CHECK_THAT(refusal("x.npy", numpy("<u2", "(4,)", "", 9)), Contains("of an unknown version"));
    CHECK(refusal("x.npy", numpy("<i4", "(2,)", bytes_of(std::vector<int32_t>{1, -3}))) ==
          "x.npy: token -3 at position 1 is negative, which no id is");
    CHECK(refusal("x.npy", numpy("<i8", "(2,)", bytes_of(std::vector<int64_t>{-4, 1}))) ==
          "x.npy: token -4 at position 0 is negative, which no id is");
    CHECK_THAT(refusal("x.npy", numpy("<u8", "(2,)", bytes_of(std::vector<uint64_t>{1, 1ull << 40}))),
               Contains("x.npy: token 1099511627776 at position 1 is not in the model's vocabulary"));
}

TEST_CASE("token formats: an id divides documents, at their beginning or their end") {
    //                                   0  1  2  3  4  5  6  7
    const std::vector<uint16_t> tokens = {9, 1, 2, 9, 9, 3, 4, 9};
    // what a sample's mask gets: windows of 4 tokens
    const auto starts_of = [](const TokenFile& file, int64_t i) {
        std::vector<int32_t> inputs(3), labels(3), starts(3);
        Sampler(file, {.seq_len = 3}).sample(i, inputs, labels, starts);
        return starts;
    };
    TokenFile begins(put_file("d.npy", numpy("<u2", "(8,)", bytes_of(tokens)))), ends(formats() / "d.npy");
    begins.divide_at({9, true});
    ends.divide_at({9, false});
    CHECK(starts_of(ends, 1) == std::vector<int32_t>{0, 1, 1});  // before they are counted
    CHECK_THROWS_AS(ends.num_documents(), LogicError);
    begins.count_documents(2);
    ends.count_documents(2);
    CHECK(begins.num_documents() == 4);
    CHECK(begins.document_bounds(0, 3) == std::vector<int64_t>{0, 3, 4, 7, 8});
    CHECK(ends.num_documents() == 4);
    CHECK(ends.document_bounds(0, 3) == std::vector<int64_t>{0, 1, 4, 5, 8});
    CHECK(ends.document_bounds(1, 2) == std::vector<int64_t>{1, 4, 5});
    for (const TokenFile* file : {&begins, &ends}) {
        const std::vector<int64_t> bounds = file->document_bounds(0, 3);
        for (int64_t d = 0; d <= 4; ++d) CHECK(file->document_begin(d) == bounds[size_t(d)]);
        for (int64_t at = 0, d = 0; at < 8; ++at) {
            while (bounds[size_t(d + 1)] <= at) ++d;
            CHECK(file->document_of(at) == d);
        }
        // the other ranks know the same
        const TokenFile other(formats() / "d.npy", TokenFile::Layout::of_text(file->layout().text()));
        CHECK(other.num_documents() == 4);
        CHECK(other.document_bounds(0, 3) == bounds);
    }
    CHECK(starts_of(begins, 0) == std::vector<int32_t>{0, 0, 0});
    CHECK(starts_of(begins, 1) == std::vector<int32_t>{0, 0, 0});
    CHECK(starts_of(ends, 0) == std::vector<int32_t>{0, 1, 1});
    CHECK(starts_of(ends, 1) == std::vector<int32_t>{0, 1, 1});
}

TEST_CASE("token formats: the id that divides documents is given, or that of the tokenizer") {
    const TemporaryFolder tokenizer;
    write_file(tokenizer / "text.txt", "the cat sat on the mat\n");
    train_tokenizer(Corpus({tokenizer / "text.txt"}), 260, tokenizer.path(), 1);
    const Tokenizer known(tokenizer.path());
    const auto bos = uint16_t(*known.bos_id()), eos = uint16_t(*known.eos_id());
    const std::vector<uint16_t> tokens = {bos, 1, eos, bos, 2, 3, eos};
    const auto path = put_file("s.npy", numpy("<u2", "(7,)", bytes_of(tokens)));
    const auto divided = [&](const GivenSeparator& given, const std::string& place) {
        TokenFile file(path);
        const std::string line = divide_documents(file, given, place);
        CHECK_THAT(line, Contains("s.npy: a token file of NumPy with 7 tokens in ") &&
                             Contains("; it does not say which tokenizer made it"));
        return line.substr(line.find(" in ") + 4, line.find(';') - line.find(" in ") - 4);
    };
    CHECK(divided({}, "/no/such/place") == "1 document, since neither bos_id nor eos_id is given");
    CHECK(divided({.bos_id = bos}, "") == fmt::format("2 documents, which begin with {} (bos_id)", bos));
    CHECK(divided({.eos_id = 1}, "") == "2 documents, which end with 1 (eos_id)");
    CHECK(divided({}, tokenizer.path().string()) ==
          fmt::format("2 documents, which begin with {} (BOS of the tokenizer in {})", bos,
                      tokenizer.path().string()));

    // without BOS: EOS, after the documents unless the file begins with it
    std::string config = read_file(tokenizer / "tokenizer_config.json");
    write_file(tokenizer / "tokenizer_config.json",
               "{\"bos_token\": null, \"eos_token\": \"<|end_of_text|>\"}");
    CHECK(divided({}, tokenizer.path().string()) ==
          fmt::format("2 documents, which end with {} (EOS of the tokenizer in {})", eos,
                      tokenizer.path().string()));
    const auto c = put_file("s.bin", llm_c(20240520, 1, 7, bytes_of(tokens)));
    TokenFile of_llm_c(c);
    CHECK_THAT(divide_documents(of_llm_c, {}, tokenizer.path().string()),
               Contains(fmt::format("in 3 documents, which begin with {} (EOS", eos)));
}
