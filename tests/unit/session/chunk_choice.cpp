// SPDX-License-Identifier: Apache-2.0
// The size of the chunks of logits on planned GPUs: the largest with which every rank fits.
#include "coeus/session/chunk_choice.hpp"

#include "coeus/base/text.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/setup/run_options.hpp"
#include "coeus/train/preflight.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

constexpr int64_t chunk_gib = int64_t(1) << 30;

// 8 billion parameters on 8 ranks, each with 8192 tokens of a vocabulary of 128256: 2 GiB of logits.
const Words large_deck = {paths::source() + "/inputs/base/llama3_8b.toml", "--dry_run", "--device=cuda",
                          "--training.seq_len=8192", "--training.local_batch_size=1"};

Words large_deck_with(const Words& more) {
    Words words = large_deck;
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

struct OfChunks {
    DecoderConfig model;
    EngineOptions options;
    // The largest plan of a stage.
    int64_t bytes(int64_t chunk_bytes) const {
        EngineOptions of_size = options;
        of_size.chunk_bytes = chunk_bytes;
        int64_t most = 0;
        for (const MemoryPlan& plan : plans_of_stages(model, of_size)) most = std::max(most, plan.total());
        return most;
    }
    EngineOptions chosen_for(std::optional<int64_t> limit, std::optional<int64_t> of_checkpoint) const {
        return with_largest_chunks(model, options, limit, of_checkpoint);
    }
    int64_t chosen(std::optional<int64_t> limit, std::optional<int64_t> of_checkpoint = {}) const {
        return chosen_for(limit, of_checkpoint).chunk_bytes.value();
    }
};

OfChunks planned_chunks(const Words& words, int ranks) {
    const Config config = parse_command_line(words).config;
    const DecoderConfig model = model_from_deck(config);
    return {model, planned_options(config, model, mesh_shape(config, ranks), 0)};
}

// The memory plan that a dry run prints, and what it says of chunks.
struct SaidOfChunks {
    std::string plan, chunks;
};
SaidOfChunks said_of_chunks(const Words& words, int ranks) {
    SaidOfChunks all;
    for (const Finding& line : preflight(parse_command_line(words), ranks)) {
        if (line.text.starts_with("memory plan per rank")) all.plan = line.text;
        if (line.text.find("chunks") != std::string::npos) all.chunks = line.line();
    }
    return all;
}

}  // namespace

TEST_CASE("chunks of logits: 1 GiB if every stage's plan fits, else 256 MiB") {
    for (const Words& more : {Words{}, Words{"--parallelism.pipeline_parallel_degree=2",
                                             "--parallelism.pipeline_parallel_microbatch_size=1",
                                             "--training.local_batch_size=2"}}) {
        const OfChunks p = planned_chunks(large_deck_with(more), 8);
        CHECK(!p.options.chunk_bytes);
        CHECK(Engine(p.model, p.options).options().chunk_bytes == chunk_gib / 4);
        const int64_t large = p.bytes(chunk_gib), small = p.bytes(chunk_gib / 4);
        CHECK(large >= small);  // the head may be on a smaller stage
        CHECK(p.chosen(large) == chunk_gib);
        CHECK(p.chosen(large - 1) == chunk_gib / 4);
        CHECK(p.chosen(small - 1) == chunk_gib / 4);  // the run is refused
        CHECK(p.chosen(std::nullopt) == chunk_gib);
    }
    const OfChunks on_cpus = planned_chunks(large_deck_with({"--device=cpu"}), 8);
    const EngineOptions unchanged = on_cpus.chosen_for(int64_t(1) << 50, chunk_gib);
    CHECK(!unchanged.chunk_bytes);
    CHECK(Engine(on_cpus.model, unchanged).options().chunk_bytes == cpu_chunk_bytes);
}

TEST_CASE("chunks of logits: those of the checkpoint are kept if every stage's plan fits with them") {
    const OfChunks p = planned_chunks(large_deck, 8);
    const int64_t large = p.bytes(chunk_gib), small = p.bytes(chunk_gib / 4), much = int64_t(1) << 50;
    REQUIRE(large > small);
    CHECK(p.chosen(much, chunk_gib / 4) == chunk_gib / 4);
    CHECK(p.chosen(much, chunk_gib / 64) == chunk_gib / 64);
    CHECK(p.chosen(0, chunk_gib / 64) == chunk_gib / 64);  // the run is refused
    CHECK(p.chosen(much, 2 * chunk_gib) == 2 * chunk_gib);
    CHECK(p.chosen(large, chunk_gib) == chunk_gib);
    CHECK(p.chosen(large - 1, chunk_gib) == chunk_gib / 4);
    CHECK(p.chosen(large - 1, 2 * chunk_gib) == chunk_gib / 4);
    CHECK(p.chosen(std::nullopt, chunk_gib / 4) == chunk_gib / 4);
    // the deck's own size is not changed
    const OfChunks given = planned_chunks(large_deck_with({"--kernels.logits_chunk_mib=96"}), 8);
    for (const int64_t limit : {int64_t(0), much}) CHECK(given.chosen(limit, chunk_gib) == 96 << 20);
    const OfChunks on_cpus =
        planned_chunks(large_deck_with({"--device=cpu", "--kernels.logits_chunk_mib=96"}), 8);
    CHECK(on_cpus.chosen(0) == 96 << 20);
}

TEST_CASE("chunks of logits: a notice says why they are smaller") {
    const Config config = parse_command_line(large_deck).config;
    const auto notice = [&](int64_t bytes, std::optional<int64_t> of_checkpoint) {
        EngineOptions options;
        options.machine.backend = Backend::cuda;
        options.chunk_bytes = bytes;
        return notice_on_chunks(config, options, of_checkpoint);
    };
    CHECK(notice(chunk_gib, std::nullopt).empty());
    CHECK(notice(chunk_gib, chunk_gib).empty());
    CHECK(notice(chunk_gib / 4, std::nullopt) ==
          "logits are computed in chunks of 256 MiB; with 1.00 GiB, a rank would not fit into its GPU");
    CHECK(notice(chunk_gib / 4, chunk_gib / 4) ==
          "logits are computed in chunks of 256 MiB, as in the checkpoint (kernels.logits_chunk_mib)");
    CHECK(notice(chunk_gib / 4, chunk_gib) ==
          "logits are computed in chunks of 256 MiB; with the 1.00 GiB of the checkpoint, a rank would "
          "not fit into its GPU. The last bits differ from those of a run that was not interrupted");
    Config given = config;
    given.kernels.logits_chunk_mib = 256;
    EngineOptions options;
    options.machine.backend = Backend::cuda;
    options.chunk_bytes = chunk_gib / 4;
    CHECK(notice_on_chunks(given, options, std::nullopt).empty());
}

TEST_CASE("chunks of logits: a dry run plans 1 GiB on an H200 and 256 MiB on a small card") {
    const OfChunks p = planned_chunks(large_deck, 8);
    const auto total = [&](int64_t chunk_bytes) { return bytes_text(double(p.bytes(chunk_bytes))); };
    REQUIRE(total(chunk_gib) != total(chunk_gib / 4));
    const SaidOfChunks large = said_of_chunks(large_deck_with({"--gpu=h200"}), 8),
                       small = said_of_chunks(
                           large_deck_with({fmt::format("--memory={}MiB", (p.bytes(chunk_gib) - 1) >> 20)}),
                           8);
    CHECK_THAT(large.plan, Contains(total(chunk_gib) + " of "));
    CHECK(large.chunks.empty());
    CHECK_THAT(small.plan, Contains(total(chunk_gib / 4) + " of "));
    CHECK(
        small.chunks ==
        "Notice: logits are computed in chunks of 256 MiB; with 1.00 GiB, a rank would not fit into its GPU");
}
