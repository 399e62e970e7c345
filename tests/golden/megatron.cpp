// SPDX-License-Identifier: Apache-2.0
// Pairs of .bin and .idx as Megatron-LM wrote them: tokens and documents; broken pairs and why they are
// refused; and what is written is what Megatron-LM wrote.
#include "coeus/base/error.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/data/write_tokens.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <vector>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// The pairs of a folder, without their endings.
std::vector<fs::path> pairs_in(const fs::path& folder) {
    std::vector<fs::path> pairs;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
        if (entry.path().extension() == ".idx") pairs.push_back(fs::path(entry.path()).replace_extension());
    return pairs;
}

std::vector<int32_t> all_tokens(const TokenFile& file) {
    std::vector<int32_t> tokens(size_t(file.num_tokens()));
    file.read(0, tokens);
    return tokens;
}

// The whole content as golden values.
void check_pair(const TokenFile& file, const fs::path& pair) {
    const Safetensors expected = Safetensors::open(pair.string() + ".safetensors");
    const auto tokens = expected.read_all<int64_t>("tokens");
    const auto starts = expected.read_all<int64_t>("document_starts");
    CHECK(all_tokens(file) == std::vector<int32_t>(tokens.begin(), tokens.end()));
    REQUIRE(file.num_documents() + 1 == int64_t(starts.size()));
    CHECK(file.document_bounds(0, file.num_documents() - 1) == starts);
    for (size_t d = 0; d < starts.size(); ++d) REQUIRE(file.document_begin(int64_t(d)) == starts[d]);
    // as the sampler asks for them
    std::vector<int32_t> from(size_t(file.num_tokens() - 1));
    file.document_starts(1, from);
    size_t document = 0;
    for (size_t t = 0; t < from.size(); ++t) {
        while (document + 2 < starts.size() && starts[document + 1] <= int64_t(t + 1)) ++document;
        REQUIRE(from[t] == int32_t(std::max<int64_t>(0, starts[document] - 1)));
    }
}

}  // namespace

TEST_CASE("golden: pairs of Megatron-LM are read and written as it does") {
    const fs::path folder = golden("megatron");
    if (folder.empty()) return;
    const std::vector<fs::path> pairs = pairs_in(folder);
    REQUIRE_FALSE(pairs.empty());
    for (const fs::path& pair : pairs) {
        CAPTURE(pair);
        for (const char* ending : {"", ".idx", ".bin"}) {
            TokenFile file(pair.string() + ending);
            CHECK(file.max_token(2) < 200'000);
            check_pair(file, pair);
        }
        // another rank opens it by the layout alone
        const TokenFile first(pair);
        check_pair(TokenFile(pair, TokenFile::Layout::of_text(first.layout().text())), pair);

        const TemporaryFolder work;
        TokenFile source(pair);
        write_hdf5_tokens(source, (work / "x.h5").string(), nullptr, [](int64_t) {});
        TokenFile ours(work / "x.h5");
        check_pair(ours, pair);
        write_megatron_pair(ours, (work / "y.idx").string(), [](int64_t) {});
        check_pair(TokenFile(work / "y"), pair);
        // nothing unfinished is left
        CHECK(std::distance(fs::directory_iterator(work.path()), {}) == 3);
        // with one sequence a document, and the width that the ids need, the bytes are Megatron-LM's own
        const Safetensors expected = Safetensors::open(pair.string() + ".safetensors");
        std::vector<int64_t> lengths = expected.read_all<int64_t>("sequence_lengths"), of_documents;
        for (int64_t d = 0; d < ours.num_documents(); ++d)
            of_documents.push_back(ours.document_begin(d + 1) - ours.document_begin(d));
        const bool one_each = lengths == of_documents && std::ranges::count(lengths, 0) == 0;
        if (one_each && TokenFile(work / "y").layout().tokens.width == source.layout().tokens.width)
            for (const char* ending : {".idx", ".bin"})
                CHECK((read_file(work / ("y" + std::string(ending))) == read_file(pair.string() + ending)));
    }
}

TEST_CASE("golden: broken pairs of Megatron-LM are refused with file and reason") {
    const fs::path folder = golden("megatron/broken");
    if (folder.empty()) return;
    const std::map<std::string, std::string> reasons = {
        {"magic", ".idx: is not an index of Megatron-LM: it does not begin with MMIDIDX"},
        {"version", ".idx: has version 2, but only version 1 is read"},
        {"int64", ".idx: its ids are int64 (type 5); they must be int32 (4) or uint16 (8)"},
        {"float32", ".idx: its ids are float32 (type 7)"},
        {"uint8", ".idx: its ids are uint8 (type 1)"},
        {"int16", ".idx: its ids are int16 (type 3)"},
        {"code_0", ".idx: the type of its ids is 0, which is unknown"},
        {"code_9", ".idx: the type of its ids is 9, which is unknown"},
        {"idx_cut", "of documents: it is truncated"},
        {"idx_header_only", "of documents: it is truncated"},
        {"idx_longer", "after the bounds of the documents; pairs of several modalities are not read"},
        {"bin_cut", ".bin: has "},
        {"bin_longer", ".bin: has "},
        {"offsets_not_sums", ".idx: sequence 2 begins at byte "},
        {"offsets_swapped", ".idx: sequence 1 begins at byte "},
        {"negative_length", "has a length of -3, below 0"},
        {"bounds_descend", ".idx: bound 2 of the documents is 1: bounds must ascend"},
        {"bounds_beyond", ".idx: bound 2 of the documents is 4: bounds must ascend"},
        {"bounds_short",
         ".idx: the last bound of the documents must be the number of sequences, 3, but is 2"},
        {"bounds_first", ".idx: bound 0 of the documents is 1: bounds must ascend from 0"},
        {"counts_huge", "of documents: it is truncated"},
        {"negative_id", ".bin: token -1 at position 7 is negative, which no id is"},
        {"empty", ".idx: contains no documents"},
        {"no_bin", ".bin: does not exist, but its index "},
    };
    const JsonDocument document = JsonDocument::read(folder / "reasons.json");
    for (const auto& [name, reason] : document.root().items()) {
        CAPTURE(name, reason.string());
        std::string message = "none";
        try {
            TokenFile file(folder / (name + ".idx"));
            file.check_vocabulary(200'000, 1);
        } catch (const ConfigError& error) {
            message = error.what();
        }
        const auto expected = reasons.find(name);
        CHECK_THAT(message, Contains((folder / name).string()));
        CHECK_THAT(message, Contains(expected == reasons.end() ? "a reason" : expected->second));
    }
}
