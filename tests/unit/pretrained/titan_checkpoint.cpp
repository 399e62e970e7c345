// SPDX-License-Identifier: Apache-2.0
// Checkpoints of torchtitan under the names of its three generations.
#include "coeus/pretrained/titan_checkpoint.hpp"

#include "coeus/deck/command_line.hpp"
#include "coeus/device/memory.hpp"
#include "support/catch.hpp"
#include "support/dcp_writer.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

Config tiny_deck(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"--dry_run",
                                          "--model.dim=8",
                                          "--model.n_layers=1",
                                          "--model.n_heads=2",
                                          "--model.n_kv_heads=1",
                                          "--model.ffn_hidden=10",
                                          "--model.vocab_size=18",
                                          "--training.seq_len=16",
                                          "--training.local_batch_size=2",
                                          "--parallelism.data_parallel_shard_degree=3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return parse_command_line(arguments).config;
}

enum class Names { of_2024, of_2025, of_2026 };

DcpMade made(const std::string& name, const std::vector<int64_t>& shape) {
    return {.name = name, .shape = shape, .parts = {{std::vector<int64_t>(shape.size(), 0), shape}}};
}

std::vector<DcpMade> tiny_checkpoint(Names names, bool with_moments = true) {
    const std::string group = names == Names::of_2024 ? "model." : "";
    const std::string qkv = names == Names::of_2026 ? "qkv_linear." : "";
    const std::string layer = "layers.0.";
    std::vector<DcpMade> tensors;
    for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
             {"tok_embeddings.weight", {18, 8}},
             {layer + "attention." + qkv + "wq.weight", {8, 8}},
             {layer + "attention." + qkv + "wk.weight", {4, 8}},
             {layer + "attention." + qkv + "wv.weight", {4, 8}},
             {layer + "attention.wo.weight", {8, 8}},
             {layer + "attention_norm.weight", {8}},
             {layer + "ffn_norm.weight", {8}},
             {layer + "feed_forward.w1.weight", {10, 8}},
             {layer + "feed_forward.w2.weight", {8, 10}},
             {layer + "feed_forward.w3.weight", {10, 8}},
             {"norm.weight", {8}},
             {names == Names::of_2026 ? "lm_head.weight" : "output.weight", {18, 8}}}) {
        tensors.push_back(made(group + name, shape));
        if (!with_moments) continue;
        for (const char* moment : {".exp_avg", ".exp_avg_sq", ".step"})
            tensors.push_back(made("optimizer.state." + name + moment,
                                   std::string(moment) == ".step" ? std::vector<int64_t>() : shape));
    }
    tensors.push_back(made("train_state.step", {}));
    return tensors;
}

std::string refusal(const std::vector<DcpMade>& tensors, const Config& deck) {
    const TemporaryFolder folder;
    write_dcp(folder.path(), tensors);
    try {
        read_titan_checkpoint(folder.path().string(), deck, false);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "read without complaint";
}

}  // namespace

TEST_CASE("torchtitan's checkpoints under the names of its generations") {
    for (const Names names : {Names::of_2024, Names::of_2025, Names::of_2026}) {
        CAPTURE(int(names));
        const TemporaryFolder folder;
        std::vector<DcpMade> tensors = tiny_checkpoint(names);
        if (names == Names::of_2024) tensors.push_back(made("model.freqs_cis", {4}));
        write_dcp(folder.path(), tensors);
        const TitanCheckpoint whole = read_titan_checkpoint(folder.path().string(), tiny_deck(), false);
        CHECK(whole.full);
        REQUIRE(whole.arrays.arrays.size() == 36);
        CHECK(whole.record.seed == tiny_deck().debug.seed);
        for (size_t i = 0; i < 36; ++i) {
            const ArraySource::Array& array = whole.arrays.arrays[i];
            CHECK(array.path.starts_with(i < 12   ? "model/"
                                         : i < 24 ? "optimizer/exp_avg/"
                                                  : "optimizer/exp_avg_sq/"));
            const OwnedTensor rows(array.dtype, {array.shape.rows(), array.shape.cols()});
            whole.arrays.read(i, rows, 0);
            CHECK(element(rows, array.shape.count() - 1) == double(array.shape.count()) - 0.5);
        }
        const TitanCheckpoint weights = read_titan_checkpoint(folder.path().string(), tiny_deck(), true);
        CHECK_FALSE(weights.full);
        CHECK(weights.arrays.arrays.size() == 12);
    }
}

TEST_CASE("torchtitan's checkpoints: tensors that are missing or of another model") {
    const std::vector<DcpMade> good = tiny_checkpoint(Names::of_2025);
    CHECK(refusal(good, tiny_deck()) == "read without complaint");
    CHECK(refusal(tiny_checkpoint(Names::of_2025, false), tiny_deck()) == "read without complaint");
    std::vector<DcpMade> other = good;
    other.push_back(made("layers.1.attention.wq.weight", {8, 8}));
    CHECK_THAT(refusal(other, tiny_deck()),
               Contains("it contains 'layers.1.attention.wq.weight', which is not a parameter of the model"));
    // moments of only some parameters, or of another shape
    other = good;
    other[1].name = "optimizer.state.another.weight.exp_avg";
    CHECK_THAT(refusal(other, tiny_deck()),
               Contains("has no tensor 'optimizer.state.tok_embeddings.weight.exp_avg'"));
    CHECK(refusal(other, tiny_deck({"--model.frozen=tok_embeddings"})) == "read without complaint");
    other = good;
    other[1] = made(other[1].name, {8, 18});
    CHECK_THAT(refusal(other, tiny_deck()),
               Contains("exp_avg has the shape [8, 18], but its parameter has [18, 8]"));
    CHECK_THAT(refusal(good, tiny_deck({"--parallelism.data_parallel_shard_degree=-1"})),
               Contains("the deck does not determine how many sequences a step uses"));
    // the folder of a tied model may have the table twice
    CHECK(refusal(good, tiny_deck({"--model.tied_embeddings"})) == "read without complaint");
}

TEST_CASE("torchtitan's checkpoints of experts under the names of 2025 and 2026") {
    using Tensors = std::vector<std::pair<std::string, std::vector<int64_t>>>;
    struct Model {
        std::vector<std::string> options;
        Tensors of_2025, of_2026;  // those of the layer
    };
    const Model gpt_oss = {{"--model.name=gpt_oss", "--model.head_dim=4", "--model.moe.num_experts=3",
                            "--model.moe.top_k=2", "--model.moe.hidden=5"},
                           {{"attention.sinks", {2}},
                            {"attention.wq.weight", {8, 8}},
                            {"attention.wq.bias", {8}},
                            {"attention.wk.weight", {4, 8}},
                            {"attention.wk.bias", {4}},
                            {"attention.wv.weight", {4, 8}},
                            {"attention.wv.bias", {4}},
                            {"attention.wo.weight", {8, 8}},
                            {"attention.wo.bias", {8}},
                            {"moe.experts.mlp1_weight", {3, 10, 8}},
                            {"moe.experts.mlp1_bias", {3, 10}},
                            {"moe.experts.mlp2_weight", {3, 8, 5}},
                            {"moe.experts.mlp2_bias", {3, 8}},
                            {"moe.router.gate.weight", {3, 8}},
                            {"moe.router.gate.bias", {3}},
                            {"moe.expert_bias", {3}},
                            {"moe.tokens_per_expert", {3}}},
                           {{"attention.sinks", {2}},
                            {"attention.qkv_linear.wq.weight", {8, 8}},
                            {"attention.qkv_linear.wq.bias", {8}},
                            {"attention.qkv_linear.wk.weight", {4, 8}},
                            {"attention.qkv_linear.wk.bias", {4}},
                            {"attention.qkv_linear.wv.weight", {4, 8}},
                            {"attention.qkv_linear.wv.bias", {4}},
                            {"attention.wo.weight", {8, 8}},
                            {"attention.wo.bias", {8}},
                            {"moe.routed_experts.inner_experts.mlp1_weight_EGD", {3, 10, 8}},
                            {"moe.routed_experts.inner_experts.mlp1_bias_EG", {3, 10}},
                            {"moe.routed_experts.inner_experts.mlp2_weight_EDF", {3, 8, 5}},
                            {"moe.routed_experts.inner_experts.mlp2_bias_ED", {3, 8}},
                            {"moe.router.gate.weight", {3, 8}},
                            {"moe.router.gate.bias", {3}},
                            {"moe.expert_bias_E", {3}},
                            {"moe.tokens_per_expert_E", {3}}}};
    const Tensors latents = {
        {"attention.wq.weight", {12, 8}},         {"attention.wkv_a.weight", {7, 8}},
        {"attention.kv_norm.weight", {5}},        {"attention.wkv_b.weight", {14, 5}},
        {"attention.wo.weight", {8, 6}},          {"moe.router.gate.weight", {3, 8}},
        {"moe.shared_experts.w1.weight", {5, 8}}, {"moe.shared_experts.w2.weight", {8, 5}},
        {"moe.shared_experts.w3.weight", {5, 8}}};
    Model deepseek = {
        {"--model.name=deepseek_v3", "--model.n_dense_layers=0", "--model.head_dim=6", "--model.v_head_dim=3",
         "--model.kv_lora_rank=5", "--model.qk_rope_head_dim=2", "--model.moe.num_experts=3",
         "--model.moe.top_k=2", "--model.moe.hidden=5", "--model.moe.num_shared_experts=1"},
        latents,
        latents};
    deepseek.options.push_back("--model.n_kv_heads=2");
    for (const auto& [name, shape] : Tensors{{"w1", {3, 5, 8}}, {"w2", {3, 8, 5}}, {"w3", {3, 5, 8}}}) {
        deepseek.of_2025.emplace_back("moe.experts." + name, shape);
        deepseek.of_2026.emplace_back(
            "moe.routed_experts.inner_experts." + name + (name == "w2" ? "_EDF" : "_EFD"), shape);
    }
    for (const auto& [name, shape] : Tensors{{"moe.expert_bias", {3}}, {"moe.tokens_per_expert", {3}}}) {
        deepseek.of_2025.emplace_back(name, shape);
        deepseek.of_2026.emplace_back(name + "_E", shape);
    }
    for (const Model* model : std::initializer_list<const Model*>{&gpt_oss, &deepseek})
        for (const bool of_2026 : {false, true}) {
            CAPTURE(model->options.front(), of_2026);
            std::vector<DcpMade> tensors = {made("tok_embeddings.weight", {18, 8}),
                                            made("layers.0.attention_norm.weight", {8}),
                                            made("layers.0.ffn_norm.weight", {8}),
                                            made("norm.weight", {8}),
                                            made(of_2026 ? "lm_head.weight" : "output.weight", {18, 8}),
                                            made("train_state.step", {})};
            for (const auto& [name, shape] : of_2026 ? model->of_2026 : model->of_2025)
                tensors.push_back(made("layers.0." + name, shape));
            CHECK(refusal(tensors, tiny_deck(model->options)) == "read without complaint");
            tensors[tensors.size() - 2].name += "x";  // the balancing biases
            CHECK(refusal(tensors, tiny_deck(model->options)) != "read without complaint");
        }
}
