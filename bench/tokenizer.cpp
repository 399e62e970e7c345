// SPDX-License-Identifier: Apache-2.0
// The speed of encoding text in memory. The text is the file COEUS_BENCH_TEXT, the tokenizer is
// COEUS_BENCH_TOKENIZER. Blocks of 2000 lines are encoded on 1 and 2 threads; each pass begins with empty
// caches.
#include "coeus/data/tokenizer.hpp"

#include <atomic>
#include <benchmark/benchmark.h>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace {

using namespace coeus;

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

std::vector<std::string> blocks_of(const std::string& file) {
    std::ifstream in(file);
    std::vector<std::string> blocks;
    std::string line;
    for (int64_t number = 0; std::getline(in, line); ++number) {
        if (number % 2000 == 0) blocks.emplace_back();
        blocks.back() += line + "\n";
    }
    return blocks;
}

// Encodes all blocks; returns the number of tokens.
int64_t encode_all(const Tokenizer& tokenizer, const std::vector<std::string>& blocks, int threads) {
    std::atomic<size_t> next = 0;
    std::atomic<int64_t> tokens = 0;
    const auto work = [&] {
        Tokenizer::Encoder encoder(tokenizer);
        std::vector<int32_t> ids;
        for (size_t i = next++; i < blocks.size(); i = next++) {
            ids.clear();
            encoder.encode(blocks[i], ids);
            tokens += int64_t(ids.size());
        }
    };
    std::vector<std::jthread> team;
    for (int t = 0; t < threads; ++t) team.emplace_back(work);
    team.clear();
    return tokens;
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::vector<std::string>& blocks) {
    int64_t bytes = 0, tokens = 0;
    for (const std::string& block : blocks) bytes += int64_t(block.size());
    for (auto _ : state) tokens = encode_all(tokenizer, blocks, int(state.range(0)));
    state.SetBytesProcessed(state.iterations() * bytes);
    state.counters["tokens"] = double(tokens);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string text = variable("COEUS_BENCH_TEXT"),
                      tokenizer_place = variable("COEUS_BENCH_TOKENIZER");
    if (text.empty() || tokenizer_place.empty()) {
        std::puts(
            "skipped: needs COEUS_BENCH_TEXT and COEUS_BENCH_TOKENIZER; bench/compare_tokenizers.py sets "
            "them");
        return 0;
    }
    const Tokenizer tokenizer(tokenizer_place);
    const std::vector<std::string> blocks = blocks_of(text);
    benchmark::RegisterBenchmark("encode", [&](benchmark::State& state) { encode(state, tokenizer, blocks); })
        ->ArgName("threads")
        ->Arg(1)
        ->Arg(2)
        ->MeasureProcessCPUTime()
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
