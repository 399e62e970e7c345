// SPDX-License-Identifier: Apache-2.0
// Runs in 8 bits before they start: recipes of a deck, rules for model, mesh and GPU, and what a dry run
// prints.
#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/models/flux_config.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/setup/precision_checks.hpp"
#include "coeus/setup/run_options.hpp"
#include "coeus/train/preflight.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cstdlib>

using namespace coeus;
using Catch::Contains;

namespace {

Words operator+(Words a, const Words& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

const Words small = {"--dry_run", "--model.flavor=debugmodel", "--training.seq_len=256"},
            float8 = {"--model.converters=quantize.linear.float8"},
            mx = {"--model.converters=quantize.linear.mx"},
            with_experts = {"--model.name=qwen3", "--model.flavor=debugmodel_moe"};

Words experts(const std::string& kind) {
    return {"--model.converters=quantize.grouped_mm." + kind,
            "--quantize.grouped_mm." + kind + ".fqns=experts"};
}

Precision precision_of(const Words& arguments) {
    const Config config = parse_command_line(small + arguments).config;
    const DecoderConfig model = model_from_deck(config);
    return planned_options(config, model, mesh_shape(config, 1), 0).types.precision;
}

// All lines of a dry run, or its error.
std::string planned(const Words& arguments, int ranks = 1) {
    std::string text;
    try {
        for (const Finding& line : preflight(parse_command_line(small + arguments), ranks))
            text += line.line() + "\n";
    } catch (const ConfigError& error) {
        return error.what();
    }
    return text;
}

}  // namespace

TEST_CASE("precision options: the recipes of decks") {
    const auto linear = [](const Words& arguments) { return precision_of(arguments).linear; };
    CHECK_FALSE(precision_of({}).any());
    CHECK_FALSE(precision_of({"--float8.emulate", "--mx.recipe_name=mxfp8_emulated"}).emulate);
    CHECK(linear(float8) == Recipe::tensorwise);
    CHECK(linear(float8 + Words{"--float8.recipe_name=none"}) == Recipe::tensorwise);
    CHECK(linear(float8 + Words{"--float8.recipe_name=rowwise"}) == Recipe::rowwise);
    CHECK(linear(float8 + Words{"--float8.recipe_name=rowwise_with_gw_hp"}) == Recipe::rowwise_with_gw_hp);
    for (const char* floor : {"mxfp8", "mxfp8_cublas", "mxfp8_emulated"})
        CHECK(linear(mx + Words{std::string("--mx.recipe_name=") + floor}) == Recipe::mx_floor);
    for (const char* up : {"mxfp8_rceil", "mxfp8_cublas_rceil", "mxfp8_emulated_rceil"})
        CHECK(linear(mx + Words{std::string("--mx.recipe_name=") + up}) == Recipe::mx_rceil);
    const Precision both = precision_of(
        {"--model.converters=float8,quantize.grouped_mm.mx", "--float8.enable_fsdp_float8_all_gather",
         "--float8.filter_fqns=output,wk", "--quantize.grouped_mm.mx.fqns=experts",
         "--quantize.linear.mx.fqns=x", "--model.name=qwen3", "--model.flavor=debugmodel_moe"});
    CHECK(both.linear == Recipe::tensorwise);
    CHECK(both.experts == Recipe::mx_rceil);
    CHECK(both.gather_in_8_bits);
    CHECK_FALSE(both.emulate);
    CHECK(both.filter_fqns == Words{"output", "wk"});
    CHECK(both.fqns.empty());
    CHECK(both.expert_fqns == Words{"experts"});
    const Precision blocks = precision_of(mx + Words{"--mx.fqns=attention"});
    CHECK(blocks.filter_fqns == Words{"output"});
    CHECK(blocks.fqns == Words{"attention"});
    CHECK_FALSE(blocks.gather_in_8_bits);
    CHECK(precision_of(with_experts + experts("float8")).experts == Recipe::rowwise);
    // software
    CHECK(precision_of(float8 + Words{"--float8.emulate"}).emulate);
    CHECK(precision_of(mx + Words{"--mx.recipe_name=mxfp8_emulated_rceil"}).emulate);
    // of linear layers only
    CHECK_FALSE(precision_of(with_experts + experts("float8") + Words{"--float8.emulate"}).emulate);
    CHECK_FALSE(precision_of({"--model.converters=float8,quantize.grouped_mm.mx", "--model.name=qwen3",
                              "--model.flavor=debugmodel_moe", "--quantize.grouped_mm.mx.fqns=experts",
                              "--quantize.grouped_mm.mx.recipe_name=mxfp8_emulated"})
                    .emulate);
}

TEST_CASE("precision options: GPUs without the products are refused, with the setting that emulates them") {
    const Words a100 = {"--gpu=a100"}, h100 = {"--gpu=h100"};
    CHECK(planned(float8 + a100) ==
          "NVIDIA A100 (sm_80) has no 8-bit products (sm_89 has); set quantize.linear.float8.emulate = true");
    CHECK_THAT(planned(float8 + h100), Contains("In 8 bits: ") && !Contains("software"));
    CHECK_THAT(planned(float8 + Words{"--gpu=l40s"}), Contains("In 8 bits: "));
    CHECK_THAT(planned(float8 + a100 + Words{"--float8.emulate"}),
               Contains("Products of linear layers are emulated: they are computed exactly, in software"));
    CHECK(planned(mx + h100) ==
          "NVIDIA H100 (sm_90) has no MXFP8 products (sm_100 has); set quantize.linear.mx.recipe_name = "
          "\"mxfp8_emulated\"");
    CHECK_THAT(planned(mx + h100 + Words{"--mx.recipe_name=mxfp8_rceil"}),
               Contains("set quantize.linear.mx.recipe_name = \"mxfp8_emulated_rceil\""));
    CHECK_THAT(planned(mx + Words{"--gpu=b200"}), Contains("In 8 bits: "));
    // not known
    CHECK_THAT(planned(mx + Words{"--device=cuda", "--memory=80GiB"}), Contains("In 8 bits: "));
}

TEST_CASE("precision options: a line says whether a GPU multiplies the 8-bit numbers of experts") {
    const std::string in_bfloat16 =
        "\nProducts of experts are computed in bfloat16 from 8-bit numbers on this GPU\n";
    const std::string in_8_bits = "\nProducts of experts multiply 8-bit numbers on this GPU\n";
    const auto planned_on = [](const std::string& kind, const std::string& gpu, const Words& more = {}) {
        return planned(with_experts + experts(kind) + Words{"--gpu=" + gpu} + more);
    };
    for (const std::string gpu : {"l40s", "b200"})
        CHECK_THAT(planned_on("float8", gpu), Contains(in_8_bits) && !Contains(in_bfloat16));
    for (const std::string gpu : {"a100", "h100"})
        CHECK_THAT(planned_on("float8", gpu), Contains(in_bfloat16) && !Contains(in_8_bits));
    for (const std::string gpu : {"a100", "h100", "b200"})
        CHECK_THAT(planned_on("mx", gpu), Contains(in_bfloat16) && !Contains("software"));
    const Words decoded = {"--kernels.experts_in_8_bits=false"}, codes = {"--kernels.experts_in_8_bits"};
    CHECK_THAT(planned_on("float8", "b200", decoded), Contains(in_bfloat16) && !Contains(in_8_bits));
    CHECK_THAT(planned_on("float8", "h100", codes), Contains(in_8_bits) && !Contains(in_bfloat16));
    CHECK_THAT(planned_on("float8", "a100", codes), Contains(in_bfloat16) && !Contains(in_8_bits));
    const std::string any = "\nProducts of experts";
    CHECK_THAT(planned(with_experts + experts("mx")), !Contains(any));
    CHECK_THAT(planned(float8 + Words{"--gpu=h100"}), !Contains(any));
    // linear layers keep their products
    CHECK_THAT(planned(with_experts + experts("mx") +
                       Words{"--model.converters=float8,quantize.grouped_mm.mx", "--gpu=h100"}),
               Contains(in_bfloat16) && !Contains("emulated"));
}

TEST_CASE("precision options: experts are converted only in a model that has some") {
    CHECK(planned(experts("float8")) ==
          "model.converters: quantize.grouped_mm.float8 converts experts, but llama3 debugmodel has no "
          "experts; remove it");
    // the option of 2025 that adds this converter
    CHECK(planned(float8 + Words{"--float8.moe_fqns_prototype=experts"}) ==
          "model.converters: quantize.grouped_mm.float8 converts experts, but llama3 debugmodel has no "
          "experts; remove it, or float8.moe_fqns_prototype, which adds it to quantize.linear.float8");
    CHECK_THAT(planned(float8 + Words{"--float8.moe_fqns_prototype="}), Contains("In 8 bits: "));
}

TEST_CASE("precision options: tensor parallelism leaves multiples of 16 on GPUs, and of 32 with MX") {
    const auto tp = [](int degree) {
        return Words{"--parallelism.tensor_parallel_degree=" + std::to_string(degree)};
    };
    const Words narrow = {"--model.n_heads=32", "--model.n_kv_heads=16", "--model.head_dim=8"},
                h100 = {"--gpu=h100"};
    CHECK(planned(float8 + narrow + h100 + tp(16), 16) ==
          "layers.0.attention.wk [128, 256]: parallelism.tensor_parallel_degree = 16 leaves 8 rows, 8-bit "
          "products need multiples of 16; the largest degree is 8, or add \"attention.wk\" to "
          "quantize.linear.float8.filter_fqns");
    CHECK_THAT(planned(float8 + narrow + h100 + tp(8), 8), Contains("In 8 bits: "));
    CHECK_THAT(planned(float8 + narrow + h100 + tp(16) + Words{"--float8.filter_fqns=wk,wv"}, 16),
               Contains("In 8 bits: "));
    // software has no such rule
    CHECK_THAT(planned(float8 + narrow + h100 + tp(16) + Words{"--float8.emulate"}, 16),
               Contains("In 8 bits: "));
    CHECK_THAT(planned(float8 + narrow + tp(16), 16), Contains("In 8 bits: "));
    // MX: also on CPUs
    CHECK(planned(mx + tp(16), 16) ==
          "layers.0.attention.wq [256, 256]: parallelism.tensor_parallel_degree = 16 leaves 16 rows, MXFP8 "
          "products need multiples of 32; the largest degree is 8, or add \"attention.wq\" to "
          "quantize.linear.mx.filter_fqns");
    CHECK_THAT(
        planned(mx + tp(16) + Words{"--mx.filter_fqns=attention.w,output,w1,w3"}, 16),
        Contains("layers.0.feed_forward.w2 [256, 768]: parallelism.tensor_parallel_degree = 16 leaves 48 "
                 "columns, MXFP8"));
    CHECK_THAT(planned(mx + tp(8), 8), Contains("In 8 bits: "));
    CHECK_THAT(
        planned(with_experts + experts("mx") + tp(8) + Words{"--model.moe.hidden=192"}, 8),
        Contains("layers.0.moe.experts.w1 [192, 256]: parallelism.tensor_parallel_degree = 8 leaves 24 "
                 "rows, MXFP8 products need multiples of 32; the largest degree is 2, or remove "
                 "quantize.grouped_mm.mx from model.converters"));
    // GPUs do not multiply experts in 8 bits
    CHECK_THAT(planned(with_experts + experts("float8") + h100 + tp(8) + Words{"--model.moe.hidden=64"}, 8),
               Contains("In 8 bits: "));
    // ranks that divide the experts do not divide each of them
    CHECK_THAT(planned(with_experts + experts("mx") + tp(8) +
                           Words{"--model.moe.hidden=192", "--parallelism.expert_parallel_degree=8"},
                       8),
               Contains("In 8 bits: "));
}

TEST_CASE("precision options: tokens of a micro-batch are a multiple of 16 on GPUs, and of 32 with MX") {
    const Words h100 = {"--gpu=h100"};
    const auto tokens = [](int sequences, int seq_len, int cp = 1, int tp = 1) {
        return Words{fmt::format("--training.local_batch_size={}", sequences),
                     fmt::format("--training.seq_len={}", seq_len),
                     fmt::format("--parallelism.context_parallel_degree={}", cp),
                     fmt::format("--parallelism.tensor_parallel_degree={}", tp)};
    };
    CHECK(planned(float8 + h100 + tokens(2, 44)) ==
          "training.seq_len = 44: quantize.linear.float8 on GPUs needs multiples of 16 tokens of a "
          "micro-batch (2 "
          "x seq_len) on each rank; the nearest valid value is 40");
    CHECK_THAT(planned(float8 + h100 + tokens(2, 40)), Contains("In 8 bits: "));
    CHECK_THAT(planned(float8 + h100 + tokens(4, 44)), Contains("In 8 bits: "));
    CHECK_THAT(planned(float8 + h100 + tokens(2, 40, 2), 2), Contains("the nearest valid value is 32"));
    CHECK_THAT(planned(float8 + tokens(1, 7)), Contains("In 8 bits: "));  // CPUs
    CHECK_THAT(planned(float8 + h100 + tokens(1, 7) + Words{"--float8.emulate"}), Contains("In 8 bits: "));
    // the output and the gradient of the input have a row for each token
    CHECK_THAT(planned(float8 + h100 + tokens(1, 7) + Words{"--float8.recipe_name=rowwise_with_gw_hp"}),
               Contains("the nearest valid value is 16"));
    // a rank writes the rows of its own tokens
    CHECK_THAT(planned(float8 + h100 + tokens(1, 48, 1, 2), 2), Contains("the nearest valid value is 32"));
    CHECK_THAT(planned(float8 + h100 + tokens(1, 64, 1, 2), 2), Contains("In 8 bits: "));
    CHECK_THAT(planned(with_experts + h100 + tokens(1, 7) +
                       Words{"--model.converters=quantize.grouped_mm.float8,quantize.linear.float8",
                             "--quantize.grouped_mm.float8.fqns=experts"}),
               Contains("training.seq_len = 7: quantize.linear.float8 on GPUs needs"));
    CHECK_THAT(planned(with_experts + experts("float8") + h100 + tokens(1, 7)), Contains("In 8 bits: "));
    // a pipeline's micro-batch has one sequence
    CHECK_THAT(planned(float8 + h100 + tokens(4, 44) + Words{"--parallelism.pipeline_parallel_degree=2"}, 2),
               Contains("(1 x seq_len)"));
    // MX: each tensor-parallel rank's tokens, and each run of a sequence
    CHECK(planned(mx + tokens(2, 72)) ==
          "training.seq_len = 72: MXFP8 needs multiples of 32 tokens of a micro-batch (2 x seq_len) on each "
          "rank; "
          "the nearest valid value is 64");
    CHECK_THAT(planned(mx + tokens(4, 72)), Contains("In 8 bits: "));
    CHECK_THAT(planned(mx + tokens(4, 72, 1, 2), 2), Contains("the nearest valid value is 64"));
    CHECK(planned(mx + tokens(4, 96, 2), 2) ==
          "training.seq_len = 96: MXFP8 needs multiples of 32 tokens of a micro-batch (4 x seq_len) on each "
          "rank, "
          "and in each part of a sequence; the nearest valid value is 128");
    CHECK_THAT(planned(mx + tokens(4, 128, 2), 2), Contains("In 8 bits: "));
    CHECK_THAT(planned(mx + tokens(4, 64, 2) + Words{"--parallelism.context_parallel_load_balancer=none"}, 2),
               Contains("In 8 bits: "));
}

TEST_CASE("precision options: outputs that GPUs cannot write as results of 8-bit products are noticed") {
    const Words rows_of_264 = {"--model.n_heads=64", "--model.n_kv_heads=1", "--model.head_dim=4"},
                rows_of_272 = {"--model.n_heads=32", "--model.n_kv_heads=1", "--model.head_dim=8"},
                h100 = {"--gpu=h100"};
    const std::string notice = "\nNotice: GPUs compute the outputs of these layers in bfloat16";
    CHECK_THAT(
        planned(float8 + rows_of_264 + h100),
        Contains(notice + ", since they share rows with other outputs, and the length of a row is not a "
                          "multiple of 16: layers.0-5.attention.wq [256, 256]\n"));
    CHECK_THAT(planned(float8 + rows_of_272 + h100), Contains("In 8 bits: ") && !Contains(notice));
    CHECK_THAT(planned(float8 + rows_of_264), Contains("In 8 bits: ") && !Contains(notice));
}

TEST_CASE("precision options: a dry run prints the recipe of each layer, or why it stays") {
    const std::string text = planned(float8 + Words{"--float8.filter_fqns=output", "--model.n_layers=2",
                                                    "--model.ffn_hidden=776", "--model.vocab_size=1000"});
    INFO(text);
    CHECK_THAT(text,
               Contains("\nIn 8 bits: 524,288 of 2,229,504 parameters (linear layers tensorwise); MFU is not "
                        "reported\n"));
    CHECK_THAT(
        text, Contains("\nCPUs have no products of 8-bit numbers: they are computed exactly, in software\n"));
    CHECK_THAT(text,
               Contains("\nNotice: linear layers with a side that is not a multiple of 16 stay in bfloat16: "
                        "layers.0-1.feed_forward.w1 [776, 256], layers.0-1.feed_forward.w3 [776, 256], "
                        "layers.0-1.feed_forward.w2 [256, 776]\n"));
    CHECK_THAT(
        text,
        Contains("\nLinear layers:\n"
                 "  tok_embeddings              [1000, 256]  bfloat16 (never in 8 bits)\n"
                 "  layers.0-1.attention.wq     [256, 256]   tensorwise\n"
                 "  layers.0-1.attention.wk     [256, 256]   tensorwise\n"
                 "  layers.0-1.attention.wv     [256, 256]   tensorwise\n"
                 "  layers.0-1.attention.wo     [256, 256]   tensorwise\n"
                 "  layers.0-1.feed_forward.w1  [776, 256]   bfloat16 (a side is not a multiple of 16)\n"
                 "  layers.0-1.feed_forward.w3  [776, 256]   bfloat16 (a side is not a multiple of 16)\n"
                 "  layers.0-1.feed_forward.w2  [256, 776]   bfloat16 (a side is not a multiple of 16)\n"
                 "  output                      [1000, 256]  bfloat16 (filter_fqns has \"output\")\n"));
    // once, also if the run itself prints it
    const std::string printed = planned(float8 + Words{"--model.print_after_conversion"});
    CHECK(printed.find("Linear layers:") == printed.rfind("Linear layers:"));
    CHECK_THAT(planned({"--model.print_after_conversion"}),
               !Contains("Linear layers:") && !Contains("8 bits"));
    const std::string moe =
        planned(with_experts + mx +
                Words{"--model.converters=mx,quantize.grouped_mm.float8",
                      "--quantize.grouped_mm.float8.fqns=layers.0.", "--model.num_mtp_layers=1",
                      "--mx.fqns=wo,router,eh_proj,output", "--model.tied_embeddings=true"});
    INFO(moe);
    CHECK_THAT(moe, Contains("(linear layers MXFP8 (floor), experts rowwise)"));
    CHECK_THAT(moe,
               Contains("\n  tok_embeddings                [2048, 256]  bfloat16 (never in 8 bits)\n"
                        "  layers.0-7.attention.wq       [2048, 256]  bfloat16 (fqns does not name it)\n"));
    CHECK_THAT(moe, Contains("\n  layers.0-7.attention.wo       [256, 2048]  MXFP8 (floor)\n"
                             "  layers.0-7.moe.router.gate    [64, 256]    bfloat16 (never in 8 bits)\n"
                             "  layers.0.moe.experts.w1       [768, 256]   rowwise\n"));
    CHECK_THAT(moe,
               Contains("\n  layers.1-7.moe.experts.w1     [768, 256]   bfloat16 (fqns does not name it)\n"));
    CHECK_THAT(moe, Contains("\n  mtp_layers.0.eh_proj          [256, 512]   bfloat16 (never in 8 bits)\n"));
    CHECK_THAT(moe, Contains("\n  output                        [2048, 256]  bfloat16 (never in 8 bits)\n"));
    CHECK_THAT(moe, !Contains("Notice: quantize"));
    CHECK_THAT(
        planned(with_experts + experts("float8") + Words{"--model.moe.hidden=40"}),
        Contains("Notice: experts with a side that is not a multiple of 16 stay in bfloat16: "
                 "layers.0-7.moe.experts.w1 [40, 256], layers.0-7.moe.experts.w3 [40, 256], "
                 "layers.0-7.moe.experts.w2 [256, 40]\n") &&
            Contains("layers.0-7.attention.wo     [256, 2048]  bfloat16 (no converter of linear layers)"));
}

TEST_CASE(
    "precision options: names that no layer has are noticed, and converters that convert nothing are "
    "warnings") {
    CHECK_THAT(
        planned(float8 + Words{"--float8.filter_fqns=outptu,auto_filter_small_kn,attention"}),
        Contains("\nNotice: quantize.linear.float8.filter_fqns: no layer's name has \"outptu\"; did you mean "
                 "\"output\"?\n") &&
            !Contains("no layer's name has \"a"));
    CHECK_THAT(planned(mx + Words{"--mx.fqns=zzzzzz,attention"}),
               Contains("\nNotice: quantize.linear.mx.fqns: no layer's name has \"zzzzzz\"\n"));
    const auto warnings = [](const Words& arguments) {
        Words found;
        for (const Finding& line : preflight(parse_command_line(small + arguments), 1))
            if (line.severity == Finding::Severity::warning) found.push_back(line.text);
        return found;
    };
    CHECK(warnings(float8).empty());
    CHECK(warnings({}).empty());
    const Words all_filtered = float8 + Words{"--float8.filter_fqns=auto_filter_small_kn,output"};
    CHECK_THAT(planned(all_filtered), !Contains("In 8 bits") && !Contains("MFU"));
    CHECK(warnings(all_filtered) ==
          Words{"quantize.linear.float8 converts nothing: all linear layers stay in bfloat16 "
                "(model.print_after_conversion prints why)"});
    CHECK(warnings(with_experts + experts("mx") + Words{"--quantize.grouped_mm.mx.fqns=expert_s"}) ==
          Words{"quantize.grouped_mm.mx converts nothing: all experts stay in bfloat16 "
                "(model.print_after_conversion prints why)"});
}

TEST_CASE("precision options: streams with matrices of their own have multiples of 16 or 32 tokens each") {
    FluxConfig flux = find_flux_flavor("flux-debug");
    flux.text_tokens = 24;  // and 256 patches
    const auto error_of = [&](int64_t samples, Recipe recipe, Backend backend, int cp, int micro_batches) {
        EngineOptions options = {.training = {samples, flux.sizes().tokens()}, .mesh = {.cp = cp}};
        options.types.precision.linear = recipe;
        options.machine.backend = backend;
        options.pipeline.timetable.microbatches = micro_batches;
        try {
            require_precision_fits({}, flux_model(flux), options);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(error_of(3, Recipe::mx_floor, Backend::cpu, 1, 1) ==
          "training.local_batch_size = 3: MXFP8 needs multiples of 32 tokens of each stream in a "
          "micro-batch, and a "
          "sample has 24 and 256 on each rank; the nearest valid value is 4");
    CHECK(error_of(4, Recipe::mx_floor, Backend::cpu, 1, 1).empty());
    CHECK_THAT(error_of(4, Recipe::mx_floor, Backend::cpu, 1, 2), Contains("the nearest valid value is 8"));
    CHECK(error_of(3, Recipe::rowwise, Backend::cpu, 1, 1).empty());
    CHECK_THAT(error_of(1, Recipe::rowwise, Backend::cuda, 1, 1), Contains("the nearest valid value is 2"));
    CHECK(error_of(2, Recipe::rowwise, Backend::cuda, 1, 1).empty());
    CHECK(error_of(4, Recipe::rowwise, Backend::cuda, 2, 1).empty());
    CHECK(error_of(8, Recipe::mx_floor, Backend::cpu, 2, 1) ==
          "parallelism.context_parallel_degree = 2: leaves 12 and 128 tokens of a sample's streams on each "
          "rank, and "
          "MXFP8 needs multiples of 32; set it to 1");
    flux.text_tokens = 64;
    CHECK(error_of(1, Recipe::mx_floor, Backend::cpu, 2, 1).empty());
    CHECK(error_of(3, Recipe::none, Backend::cuda, 2, 1).empty());
}
