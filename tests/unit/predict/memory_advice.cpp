// SPDX-License-Identifier: Apache-2.0
// Advice on memory: the advised change fits, no cheaper one does, and a deck that follows it needs the memory
// that was announced.
#include "coeus/predict/memory_advice.hpp"

#include "coeus/base/text.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/setup/run_options.hpp"
#include "support/advice.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "support/two_flow_model.hpp"

#include <algorithm>
#include <set>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

const Words deck = {"--dry_run", "--model.flavor=debugmodel", "--training.seq_len=128",
                    "--training.local_batch_size=4", "--parallelism.data_parallel_replicate_degree=4"};

struct Planned {
    DecoderConfig model;
    EngineOptions options;
    int64_t total() const { return Engine(model, options).plan().total(); }
    std::vector<int64_t> of_stages() const {
        std::vector<int64_t> totals;
        for (const MemoryPlan& plan : plans_of_stages(model, options)) totals.push_back(plan.total());
        return totals;
    }
};

Planned planned(const Words& arguments, int ranks) {
    const Config config = parse_command_line(arguments).config;
    const DecoderConfig model = model_from_deck(config);
    return {model, planned_options(config, model, mesh_shape(config, ranks), 0)};
}

Words joined(Words a, const Words& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// Follows an advice given for `words` on `ranks`: the run fits, and needs the announced memory.
void check_followed(const Words& words, int ranks, const std::string& text, int64_t limit) {
    CAPTURE(text);
    const Advice advice(text);
    REQUIRE(!advice.settings.empty());
    const Planned then = planned(joined(words, advice.settings), advice.ranks > 0 ? advice.ranks : ranks);
    const int64_t most = std::ranges::max(then.of_stages());
    CHECK(most <= limit);
    CHECK_THAT(text, Contains(" needs " + bytes_text(double(most))));
}

}  // namespace

TEST_CASE("memory advice: alternatives train the same sequences on the same number of ranks") {
    const Planned now = planned(deck, 4);
    const std::vector<Alternative> all = alternatives(now.model, now.options);
    CHECK(all.size() == 3 * 7 * 3 - 1);  // what is kept, meshes, batches; without the current one
    std::set<Words> different;
    double cost = 0;
    for (const Alternative& alternative : all) {
        const EngineOptions& o = alternative.options;
        CHECK(o.mesh.ranks() == 4);
        CHECK(o.training.sequences * o.mesh.size(axis::dp) * o.accumulation == 16);
        CHECK(o.training.seq_len == 128);
        CHECK(alternative.cost >= cost);
        cost = alternative.cost;
        CHECK(!alternative.says.empty());
        different.insert(alternative.says);
    }
    CHECK(different.size() == all.size());
    CHECK(all.front().says == Words{R"(activation_checkpoint.mode = "selective")",
                                    R"(activation_checkpoint.selective_ac_option = "op")"});
}

TEST_CASE("memory advice: only parameters of a model whose matrices cannot be divided are divided") {
    const ModelConfig two_flows(std::make_shared<TwoFlowDescription>(3, 6, 11));
    EngineOptions options = planned(deck, 4).options;
    options.recompute = {.mode = RecomputeOptions::Mode::blocks};
    options.training.sequences = 1;
    const std::vector<Alternative> all = alternatives(two_flows, options);
    REQUIRE(all.size() == 1);
    CHECK(all[0].says == Words{"parallelism.data_parallel_replicate_degree = 1",
                               "parallelism.data_parallel_shard_degree = 4"});
}

TEST_CASE("memory advice: a deck that follows it fits, and nothing cheaper would") {
    const Planned now = planned(deck, 4);
    std::vector<int64_t> totals;
    for (const Alternative& alternative : alternatives(now.model, now.options))
        totals.push_back(Planned{now.model, alternative.options}.total());
    const int64_t least = *std::min_element(totals.begin(), totals.end()), most = now.total();
    std::set<std::string> given;
    for (int64_t part = 0; part < 20; ++part) {
        const int64_t limit = least + (most - 1 - least) * part / 19;
        const std::string advice = memory_advice(now.model, now.options, limit);
        CAPTURE(limit, advice);
        REQUIRE_THAT(advice, Catch::StartsWith("The cheapest change that fits: "));
        const Planned then = planned(joined(deck, Advice(advice).settings), 4);
        const int64_t total = then.total();
        CHECK(total <= limit);
        CHECK_THAT(advice, Catch::EndsWith(", which needs " + bytes_text(double(total))));
        const auto first =
            std::find_if(totals.begin(), totals.end(), [&](int64_t bytes) { return bytes <= limit; });
        CHECK(*first == total);
        given.insert(advice);
    }
    CHECK(given.size() >= 5);
}

TEST_CASE(
    "memory advice: gradients that are kept until the end of a step may be summed in each local batch") {
    const Words sharded = {"--dry_run",
                           "--model.flavor=debugmodel",
                           "--training.seq_len=128",
                           "--training.local_batch_size=1",
                           "--training.global_batch_size=8",
                           "--parallelism.data_parallel_shard_degree=4"},
                once = joined(sharded, {"--parallelism.fsdp_sum_gradients=step"});
    const Planned now = planned(once, 4), other = planned(sharded, 4);
    REQUIRE(other.total() < now.total());
    const std::string advice = memory_advice(now.model, now.options, now.total() - 1);
    CHECK_THAT(advice,
               Contains(R"(The cheapest change that fits: parallelism.fsdp_sum_gradients = "local_batch",)"));
    check_followed(once, 4, advice, now.total() - 1);
    for (const Alternative& way : alternatives(other.model, other.options))
        CHECK(way.options.gather.gradients == Keep::neighbours);
}

TEST_CASE("memory advice: a setting in use is not advised") {
    const Words least =
        joined(deck, {"--activation_checkpoint.mode=full", "--parallelism.data_parallel_replicate_degree=1",
                      "--training.local_batch_size=1"});
    const Planned now = planned(least, 1);
    CHECK(alternatives(now.model, now.options).empty());
    const std::string advice = memory_advice(now.model, now.options, now.total() / 2);
    CHECK_THAT(advice, Contains(" ranks would do: with "));
    check_followed(least, 1, advice, now.total() / 2);
    CHECK_THAT(memory_advice(now.model, now.options, 1 << 20),
               Contains("No change of the deck makes this model fit") && Contains("model.flavor"));
}

TEST_CASE("memory advice: blocks of MX lie within the tokens of a rank") {
    const Planned now =
        planned({"--dry_run", "--model.flavor=debugmodel", "--training.seq_len=128",
                 "--parallelism.data_parallel_replicate_degree=8", "--model.converters=quantize.linear.mx"},
                8);
    CHECK_THAT(memory_advice(now.model, now.options, 1 << 20), Contains("No change of the deck"));
    for (const Alternative& way : alternatives(now.model, now.options))
        CHECK(way.options.training.seq_len / way.options.mesh.tp / way.options.mesh.cp % scale_block == 0);
}

TEST_CASE("memory advice: memory that a GPU lacks may be on its host") {
    const Words one = joined(
        deck, {"--device=cuda", "--parallelism.data_parallel_replicate_degree=1",
               "--activation_checkpoint.mode=full", "--training.local_batch_size=1", "--model.dim=1024"});
    const Planned now = planned(one, 1);
    const std::vector<Alternative> all = alternatives(now.model, now.options);
    REQUIRE(all.size() == 1);
    const MemoryPlan offloaded = Engine(now.model, all[0].options).plan();
    CHECK(offloaded.total() < now.total());
    const std::string advice =
        memory_advice(now.model, now.options, offloaded.total(), offloaded.total(MemoryPlace::host));
    CHECK(advice == fmt::format("The cheapest change that fits: training.enable_cpu_offload = true, which "
                                "needs {} and {} of host memory",
                                bytes_text(double(offloaded.total())),
                                bytes_text(double(offloaded.total(MemoryPlace::host)))));
    const Planned following = planned(joined(one, Advice(advice).settings), 1);
    CHECK(following.options.types.offload);
    CHECK(following.total() == offloaded.total());
    CHECK(alternatives(following.model, following.options).empty());
    // the host must have that memory; a CPU has no separate host
    CHECK_THAT(
        memory_advice(now.model, now.options, offloaded.total(), offloaded.total(MemoryPlace::host) - 1),
        !Contains("The cheapest change that fits"));
    const Planned on_cpu = planned(joined(one, {"--device=cpu", "--training.enable_cpu_offload"}), 1);
    CHECK_FALSE(on_cpu.options.types.offload);
    CHECK(alternatives(on_cpu.model, on_cpu.options).empty());
}

TEST_CASE("memory advice: how many ranks would be enough") {
    const Words one = joined(deck, {"--parallelism.data_parallel_replicate_degree=1"});
    const Planned now = planned(one, 1);
    const int64_t limit = int64_t(48) << 20;
    const std::string advice = memory_advice(now.model, now.options, limit);
    CAPTURE(advice);
    const int ranks = Advice(advice).ranks;
    REQUIRE(ranks > 1);
    check_followed(one, 1, advice, limit);
    // half as many would not be enough
    const Planned half = planned(
        joined(one, {fmt::format("--parallelism.data_parallel_shard_degree={}", ranks / 2)}), ranks / 2);
    CHECK_THAT(memory_advice(half.model, half.options, limit), Contains(" ranks would do"));
}

TEST_CASE("memory advice: a step that more ranks make larger is named") {
    // an odd sequence cannot be divided among tensor or context parallel ranks, so each rank needs its own
    const Words one = joined(
        deck, {"--parallelism.data_parallel_replicate_degree=1", "--activation_checkpoint.mode=full",
               "--training.local_batch_size=1", "--training.global_batch_size=1", "--training.seq_len=129"});
    const Planned now = planned(one, 1);
    const Planned two = planned(joined(one, {"--training.global_batch_size=2"}), 2);
    const std::string advice = memory_advice(now.model, now.options, two.total());
    CHECK_THAT(advice, Contains("2 ranks would do") && Contains("training.global_batch_size = 2"));
    check_followed(one, 1, advice, two.total());
}

TEST_CASE("memory advice: every pipeline rank fits, whichever asks") {
    const Words piped = joined(
        deck, {"--parallelism.data_parallel_replicate_degree=2", "--parallelism.pipeline_parallel_degree=2",
               "--parallelism.pipeline_parallel_schedule=GPipe"});
    Planned now = planned(piped, 4);
    const std::vector<int64_t> totals = now.of_stages();
    REQUIRE(totals[1] > totals[0]);  // the same number of frames, plus the head
    for (const int64_t limit : {totals[0], totals[0] * 9 / 10, totals[0] * 3 / 4}) {
        const std::string advice = memory_advice(now.model, now.options, limit);
        CAPTURE(limit, advice);
        REQUIRE_THAT(advice, Catch::StartsWith("The cheapest change that fits: "));
        const int64_t most = std::ranges::max(planned(joined(piped, Advice(advice).settings), 4).of_stages());
        CHECK(most <= limit);
        CHECK_THAT(advice, Catch::EndsWith(", which needs " + bytes_text(double(most))));
        Planned other = now;
        other.options.rank = 3;
        CHECK(memory_advice(other.model, other.options, limit) == advice);
    }
}

TEST_CASE("memory advice: how many ranks would be enough for a pipeline") {
    const Words least = joined(
        deck, {"--activation_checkpoint.mode=full", "--training.local_batch_size=2",
               "--parallelism.data_parallel_replicate_degree=1", "--parallelism.pipeline_parallel_degree=2",
               "--parallelism.pipeline_parallel_schedule=GPipe"});
    const int64_t limit = std::ranges::max(planned(least, 8).of_stages());
    Planned now = planned(least, 2);
    const std::string advice = memory_advice(now.model, now.options, limit);
    CHECK(Advice(advice).ranks <= 8);
    check_followed(least, 2, advice, limit);
    now.options.rank = 1;
    CHECK(memory_advice(now.model, now.options, limit) == advice);
}
