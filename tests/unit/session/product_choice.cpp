// SPDX-License-Identifier: Apache-2.0
// The options of products that a deck asks for, and what the start reports of them.
#include "coeus/session/product_choice.hpp"

#include "coeus/base/user_cache.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/setup/run_options.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

struct PlannedRun {
    Config config;
    MeshShape shape;
    ModelConfig model;
    EngineOptions engine;

    std::vector<std::string> notices() const {
        std::vector<std::string> lines;
        for (const Finding& finding : product_findings(config, shape, model, engine))
            lines.push_back(finding.line());
        return lines;
    }
    ProductOptions options(int rank = 0) const {
        return product_options(config, Mesh::planned(shape, rank), engine, 132);
    }
};

Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

/// A run on so many ranks; on GPUs unless the arguments say something else.
PlannedRun run_with(int ranks, const Words& arguments) {
    const Words all =
        with({"--dry_run", "--device=cuda", "--model.vocab_size=64", "--training.seq_len=32"}, arguments);
    Config config = parse_command_line(all).config;
    const MeshShape shape = mesh_shape(config, ranks);
    const ModelConfig model = model_from_deck(config);
    return {config, shape, model, planned_options(config, model, shape, 0)};
}

std::string only_notice_of(int ranks, const Words& arguments) {
    const std::vector<std::string> notices = run_with(ranks, arguments).notices();
    CAPTURE(notices);
    REQUIRE(notices.size() == 1);
    return notices.front();
}

const Words of_experts = {"--model.name=qwen3", "--model.flavor=debugmodel_moe"};

const std::string compute_in_float32 = "--training.mixed_precision_param=float32";

}  // namespace

TEST_CASE("products: the defaults are not reported") {
    for (const char* device : {"--device=cuda", "--device=cpu"})
        CHECK(run_with(1, {device}).notices().empty());
    const ProductOptions options = run_with(4, {}).options();
    CHECK(options.sm_margin == 0);
    CHECK_FALSE(options.allow_tf32);
    CHECK(options.folder == user_cache("products"));
}

TEST_CASE("products: the margin is for meshes that divide parameters, with NCCL") {
    const std::string margin = "--kernels.sm_margin=16";
    CHECK(run_with(2, {margin}).notices().empty());
    CHECK(run_with(2, {margin}).options().sm_margin == 16);
    CHECK(run_with(2, {margin, "--parallelism.data_parallel_shard_degree=1",
                       "--parallelism.context_parallel_degree=2"})
              .options()
              .sm_margin == 16);
    CHECK(only_notice_of(2, {margin, "--device=cpu"}) ==
          "Notice: kernels.sm_margin has no effect on CPUs: it is for products on GPUs");
    const Words replicas = {margin, "--parallelism.data_parallel_shard_degree=1",
                            "--parallelism.data_parallel_replicate_degree=2"};
    CHECK_THAT(only_notice_of(2, replicas), Contains("has no effect on this mesh: only where parameters are "
                                                     "divided (dp_shard x cp > 1) do products run beside"));
    CHECK(run_with(2, replicas).options().sm_margin == 0);
    CHECK_THAT(only_notice_of(1, {margin}), Contains("has no effect on this mesh"));
    const Words staged = {margin, "--comm.transport=staged"};
    CHECK_THAT(only_notice_of(2, staged),
               Contains("has no effect without NCCL: tensors go through the host"));
    CHECK(run_with(2, staged).options().sm_margin == 0);
}

TEST_CASE("products: a margin that leaves no multiprocessor is refused") {
    CHECK(run_with(2, {"--kernels.sm_margin=131"}).options().sm_margin == 131);
    CHECK_THROWS_WITH(run_with(2, {"--kernels.sm_margin=132"}).options(),
                      "kernels.sm_margin = 132: this GPU has 132 multiprocessors, of which products need at "
                      "least one; give at most 131");
    CHECK_THROWS_WITH(run_with(2, {"--kernels.sm_margin=-1"}),
                      Contains("kernels.sm_margin = -1: must be at least 0"));
}

TEST_CASE("products: TF32 is for operands in float32") {
    const std::string tf32 = "--kernels.allow_tf32";
    CHECK(run_with(1, {tf32, compute_in_float32}).options().allow_tf32);
    CHECK_THAT(
        run_with(1, {tf32, compute_in_float32}).notices().front(),
        Contains("Products use TF32 (kernels.allow_tf32): operands in float32 are rounded to 10 bits"));
    CHECK(only_notice_of(1, {tf32, "--device=cpu"}) ==
          "Notice: kernels.allow_tf32 has no effect on CPUs: they have no TF32");
    CHECK(only_notice_of(1, {tf32}) ==
          "Notice: kernels.allow_tf32 has no effect: all products have operands in bfloat16; it is for "
          "training.mixed_precision_param = \"float32\"");
}

TEST_CASE(
    "products: the deck chooses the kernel of experts' products, and whether they multiply 8-bit numbers") {
    CHECK_FALSE(run_with(1, {}).options().experts);
    for (const ExpertsKernel kernel : experts_kernels) {
        const Words asked = {fmt::format("--kernels.experts={}", name_of(kernel))};
        CHECK(run_with(1, asked).options().experts == kernel);
    }
    CHECK_FALSE(run_with(1, {}).engine.experts_in_8_bits.has_value());
    CHECK(run_with(1, {"--kernels.experts_in_8_bits"}).engine.experts_in_8_bits == true);
    CHECK(run_with(1, {"--kernels.experts_in_8_bits=false"}).engine.experts_in_8_bits == false);
    for (const auto& [option, purpose] : {std::pair{"experts=tma", "products of experts"},
                                          std::pair{"experts_in_8_bits=false", "products of experts"},
                                          std::pair{"stream_priorities=false", "communication"}}) {
        const std::string name = std::string(option).substr(0, std::string(option).find('='));
        CHECK(only_notice_of(1, {"--device=cpu", std::string("--kernels.") + option}) ==
              "Notice: kernels." + name + " has no effect on CPUs: it is for " + purpose + " on GPUs");
    }
}

TEST_CASE("products: options of experts are for models that have some, and those of 8 bits for Float8") {
    const std::string kernel = "--kernels.experts=mma";
    CHECK(only_notice_of(1, {kernel}) ==
          "Notice: kernels.experts has no effect: llama3 debugmodel has no experts");
    CHECK(run_with(1, with(of_experts, {kernel})).notices().empty());
    for (const char* value : {"true", "false"}) {
        const Words asked = {std::string("--kernels.experts_in_8_bits=") + value};
        CHECK(only_notice_of(1, asked) ==
              "Notice: kernels.experts_in_8_bits has no effect: llama3 debugmodel has no experts");
        const auto converted = [&](const std::string& kind) {
            return with(with(of_experts, asked), {"--model.converters=quantize.grouped_mm." + kind,
                                                  "--quantize.grouped_mm." + kind + ".fqns=experts"});
        };
        for (const Words& other : {with(of_experts, asked), converted("mx")})
            CHECK(only_notice_of(1, other) ==
                  "Notice: kernels.experts_in_8_bits has no effect: it is for the converter "
                  "quantize.grouped_mm.float8");
        CHECK(run_with(1, converted("float8")).notices().empty());
    }
}

TEST_CASE("products: attention in float32 on a GPU is reported") {
    CHECK(only_notice_of(1, {compute_in_float32}) ==
          "Notice: attention in float32 runs without tensor cores; training.mixed_precision_param = "
          "\"bfloat16\" would use them");
    CHECK(run_with(1, {compute_in_float32, "--device=cpu"}).notices().empty());
}

TEST_CASE("products: one rank of each stage times kept algorithms again") {
    const std::string all = "--kernels.autotune_recheck";
    CHECK(run_with(1, {}).options().recheck == Recheck::old);
    CHECK(run_with(1, {all}).options().recheck == Recheck::all);
    const PlannedRun mesh = run_with(
        8, {all, "--parallelism.pipeline_parallel_degree=2", "--parallelism.tensor_parallel_degree=2",
            "--parallelism.pipeline_parallel_schedule=GPipe"});
    for (const int rank : {0, 4}) CHECK(mesh.options(rank).recheck == Recheck::all);
    for (const int rank : {1, 2, 3, 5, 6, 7}) CHECK(mesh.options(rank).recheck == Recheck::none);
    CHECK(run_with(1, {"--kernels.autotune=false"}).options().folder.empty());
    CHECK(only_notice_of(1, {all, "--kernels.autotune=false"}) ==
          "Notice: kernels.autotune_recheck has no effect with kernels.autotune = false");
    CHECK(only_notice_of(1, {all, "--device=cpu"}) ==
          "Notice: kernels.autotune_recheck has no effect on CPUs: it is for products on GPUs");
}
