// SPDX-License-Identifier: Apache-2.0
// A generated model goes through coeus convert and back, bit for bit, with little memory whatever its size:
// 10^6 parameters here, 10^9 in make soak.
#include "coeus/base/text.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cstring>
#include <regex>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

constexpr int64_t memory_of_a_rank = int64_t(256) << 20;
constexpr int64_t file_bytes = 1'000'000'000;

const DecoderConfig million = {.family = "llama3",
                               .flavor = "",
                               .dim = 128,
                               .layers = 4,
                               .vocab = 1000,
                               .attention = GroupedAttentionConfig{.heads = 8, .kv_heads = 4, .head_dim = 16},
                               .feed_forward = {.hidden = 352},
                               .tied = false,
                               .max_seq_len = 512};
// the shapes of Llama 3.2 1B
const DecoderConfig billion = {
    .family = "llama3",
    .flavor = "",
    .dim = 2048,
    .layers = 16,
    .vocab = 128256,
    .attention = GroupedAttentionConfig{.heads = 32, .kv_heads = 8, .head_dim = 64},
    .feed_forward = {.hidden = 8192},
    .tied = true,
    .max_seq_len = 4096};

/// Finite numbers of random bits (all except the highest bit of the exponent), 8 bytes at a time.
void fill(std::vector<uint64_t>& words, uint64_t& state, Dtype dtype) {
    const uint64_t finite = dtype == Dtype::f32 ? 0xbfffffffbfffffff : 0xbfffbfffbfffbfff;
    for (uint64_t& word : words) {
        state += 0x9e3779b97f4a7c15;
        const uint64_t mixed = (state ^ (state >> 32)) * 0xd6e8feb86659fd93;
        word = (mixed ^ (mixed >> 29)) & finite;
    }
}

/// Writes a folder whose files have at most file_bytes, or a single larger tensor.
void generate(const fs::path& folder, const DecoderConfig& model, Dtype dtype) {
    fs::create_directories(folder);
    write_hub_config(folder.string(), hub_config_of(model), dtype, {});
    std::vector<std::vector<SafetensorsEntry>> files(1);
    int64_t in_file = 0;
    for (const HubTensor& tensor : hub_tensors(model)) {
        const int64_t bytes = tensor.shape.count() * size_of(dtype);
        if (in_file > 0 && in_file + bytes > file_bytes) {
            files.emplace_back();
            in_file = 0;
        }
        files.back().push_back({tensor.places.front().name, dtype, tensor.shape});
        in_file += bytes;
    }
    Json map = Json::object();
    uint64_t state = 1;
    std::vector<uint64_t> words(1 << 17);
    for (size_t f = 0; f < files.size(); ++f) {
        const std::string name = fmt::format("part{}.safetensors", f);
        RawFile file = RawFile::create((folder / name).string());
        const std::string header = safetensors_header(files[f]);
        file.write(header.data(), int64_t(header.size()), 0);
        auto position = int64_t(header.size());
        for (const auto& [tensor, type, shape] : files[f]) {
            map.set(tensor, name);
            for (int64_t left = shape.count() * size_of(type); left > 0;) {
                fill(words, state, dtype);
                const int64_t bytes = std::min(left, int64_t(words.size() * sizeof(uint64_t)));
                file.write(words.data(), bytes, position);
                position += bytes;
                left -= bytes;
            }
        }
    }
    write_json(Json::object().set("weight_map", std::move(map)), folder / "model.safetensors.index.json");
}

int64_t differing(const fs::path& a, const fs::path& b) {
    const Safetensors first = Safetensors::open(a.string()), second = Safetensors::open(b.string());
    CHECK(first.names() == second.names());
    int64_t differ = 0;
    for (const std::string& name : first.names()) {
        const auto &x = first.entry(name), &y = second.entry(name);
        differ += x.dtype != y.dtype || x.shape != y.shape ||
                  std::memcmp(x.data, y.data, size_t(x.shape.count() * size_of(x.dtype))) != 0;
        first.release();
        second.release();
    }
    return differ;
}

void convert_in_little_memory(const fs::path& source, const fs::path& target, int ranks,
                              const Arguments& more = {}) {
    const Outcome run = run_coeus(Arguments{"convert", source.string(), target.string()} + more, ranks);
    INFO(run.output);
    REQUIRE(run.exit_code == 0);
    std::smatch found;
    REQUIRE(std::regex_search(run.output, found, std::regex("peak memory ([0-9.]+) ([KMG]iB)")));
    CHECK(parse_bytes(found[1].str() + found[2].str()).value_or(INT64_MAX) <= memory_of_a_rank);
    fmt::print("{}", run.output);
}

void there_and_back(const DecoderConfig& model, Dtype dtype) {
    for (const int ranks : {1, 2}) {
        CAPTURE(name_of(dtype), ranks);
        const TemporaryFolder folder;
        const fs::path source = folder / "source", weights = folder / "weights.h5", back = folder / "back";
        generate(source, model, dtype);
        convert_in_little_memory(source, weights, ranks);
        convert_in_little_memory(weights, back, ranks, {"--max_shard_size", "1GB"});
        CHECK(differing(source, back) == 0);
        const Outcome compared = run_coeus({"info", source.string(), "--diff", weights.string()});
        CHECK_THAT(compared.output, Contains("none differ"));
        const Outcome verified = run_coeus({"info", weights.string(), "--verify"});
        CHECK_THAT(verified.output, Contains("match their checksum"));
    }
}

}  // namespace

TEST_CASE("a model of a million parameters goes through convert and back bit for bit") {
    there_and_back(million, Dtype::f32);
    there_and_back(million, Dtype::bf16);
}

TEST_CASE("soak: a model of a billion parameters goes through convert and back bit for bit", "[.soak]") {
    there_and_back(billion, Dtype::bf16);
    there_and_back(billion, Dtype::f32);
}
