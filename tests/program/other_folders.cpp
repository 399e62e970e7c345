// SPDX-License-Identifier: Apache-2.0
// Hugging Face folders as other programs write them, and what a folder that Coeus writes cannot hold.
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "coeus/models/hub_keys.hpp"
#include "coeus/models/hub_model.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/hub_folder.hpp"
#include "support/packed_folder.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// The tensors of a folder, which may be changed and written again.
struct StoredTensors {
    std::map<std::string, std::pair<Shape, std::vector<float>>> all;

    explicit StoredTensors(const fs::path& folder) {
        const Safetensors files = Safetensors::open(folder.string());
        for (const std::string& name : files.names())
            all[name] = {files.entry(name).shape, files.read_all<float>(name)};
    }
    void write(const fs::path& folder) {
        std::vector<NamedTensor> tensors;
        for (auto& [name, stored] : all)
            tensors.push_back({name, Tensor(stored.second.data(), Dtype::f32, stored.first)});
        write_safetensors((folder / "model.safetensors").string(), tensors);
    }
};

std::string refused(const Outcome& run) {
    INFO(run.output);
    CHECK(run.exit_code == 2);
    CHECK(count_of(" step: ", run.output) == 0);
    return run.output;
}
std::string accepted(const Outcome& run) {
    INFO(run.output);
    CHECK(run.exit_code == 0);
    return run.output;
}

}  // namespace

TEST_CASE("the head of a tied model is dropped if it equals the table, and an error if not") {
    const TemporaryFolder folder;
    DecoderConfig model = small_model("qwen3", "debugmodel", 32, 2, 8);
    model.tied = true;
    const fs::path hub = folder / "hub", data = folder / "tokens.h5";
    write_random_folder(hub, model);
    write_token_file(data, {.tokens = learnable_tokens(40 * 17)});
    StoredTensors tensors(hub);
    tensors.all["lm_head.weight"] = tensors.all.at("model.embed_tokens.weight");
    tensors.all["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{2}, {1, 2}};
    tensors.write(hub);
    const auto converted = [&] { return convert_folder(hub, folder / "a.h5", {"--force"}); };
    CHECK_THAT(accepted(converted()),
               Contains("tensors that no parameter uses are ignored: lm_head.weight and 1 more"));
    tensors.all["lm_head.weight"].second[100] += 1;
    tensors.write(hub);
    const std::string rule =
        "the model has one tensor for 'lm_head.weight' and 'model.embed_tokens.weight', but they differ, "
        "first in "
        "row 3; to use both, set tie_word_embeddings to false in config.json (or, for a run, "
        "model.tied_embeddings = false)";
    CHECK_THAT(refused(converted()), Contains(rule));
    CHECK_THAT(refused(run_coeus(run_from_folder(folder / "run", data, hub, "qwen3"))), Contains(rule));
    CHECK_THAT(refused(run_coeus({"info", hub.string(), "--verify"})), Contains(rule));
    // what the message says
    accepted(
        run_coeus(run_from_folder(folder / "untied", data, hub, "qwen3", {"--model.tied_embeddings=false"})));
}

TEST_CASE("a tensor that only the index names is a notice if the model does not need it") {
    const TemporaryFolder folder;
    DecoderConfig model = small_model("llama3", "debugmodel", 32, 2, 8);
    for (const bool tied : {true, false}) {
        model.tied = tied;
        const fs::path hub = folder / (tied ? "tied" : "untied");
        write_random_folder(hub, model);
        fs::rename(hub / "model.safetensors", hub / "all.safetensors");
        Json map = Json::object();
        for (const auto& [name, shape] : folder_shapes(model)) map.set(name, "all.safetensors");
        map.set(tied ? "lm_head.weight" : "model.layers.0.self_attn.q_norm.weight", "all.safetensors");
        write_json(Json::object().set("weight_map", std::move(map)), hub / "model.safetensors.index.json");
        CHECK_THAT(accepted(convert_folder(hub, folder / "a.h5", {"--force"})),
                   Contains("names in the index that no file has and no parameter uses are ignored: "));
    }
    // one that it needs
    StoredTensors tensors(folder / "untied");
    tensors.all.erase("lm_head.weight");
    tensors.write(folder / "untied");
    fs::rename(folder / "untied/model.safetensors", folder / "untied/all.safetensors");
    CHECK_THAT(refused(convert_folder(folder / "untied", folder / "b.h5")),
               Contains("model.safetensors.index.json names tensor 'lm_head.weight' in ") &&
                   Contains("which does not have it"));
    CHECK_THAT(refused(run_coeus({"info", (folder / "untied").string()})),
               Contains("1 are missing: lm_head"));
}

TEST_CASE("quantized weights that are not finite are named by convert, info --verify and a run") {
    for (const PackedModel& of : packed_models()) {
        if (of.model.family != "gpt_oss") continue;
        const TemporaryFolder folder;
        const fs::path hub = folder / "quantized", file = hub / "model.safetensors";
        write_packed_folder(hub, folder / "decoded", of);
        write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
        std::string bytes = read_file(file);
        {
            const Safetensors files = Safetensors::open(file.string());
            const Safetensors::Entry& scales = files.entry("model.layers.0.mlp.experts.gate_up_proj_scales");
            const std::string_view stored(reinterpret_cast<const char*>(scales.data), 64);
            const size_t at = bytes.find(stored);
            REQUIRE(at != std::string::npos);
            bytes[at + 7] = char(255);
        }
        write_file(file, bytes);
        const std::string rule =
            "tensor 'model.layers.0.mlp.experts.gate_up_proj_blocks' has an element that is "
            "not finite, in block 7 (scale 255 of E8M0)";
        CHECK_THAT(refused(convert_folder(hub, folder / "a.h5")), Contains(rule));
        CHECK_FALSE(fs::exists(folder / "a.h5"));
        CHECK_THAT(refused(run_coeus({"info", hub.string(), "--verify"})), Contains(rule));
        CHECK_THAT(refused(run_coeus(run_from_folder(folder / "run", folder / "tokens.h5", hub, "gpt_oss",
                                                     {"--checkpoint.initial_load_in_hf_quantized"}))),
                   Contains(rule));
    }
}

TEST_CASE("the balancing biases of experts stay in float32, and are not left out of a folder unasked") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5", out = folder / "run", hub = folder / "hub";
    write_token_file(data, {.tokens = learnable_tokens(80 * 17)});
    const Arguments experts = tiny_experts + Arguments{steps(1), "--checkpoint.enable"};
    const Arguments exports = experts + Arguments{"--checkpoint.last_save_in_hf"};
    const auto run_of = [&](const fs::path& to, const Arguments& more) {
        Arguments all = tiny_run(to, data, more);
        std::erase(all, "--model.ffn_hidden=48");  // each layer has experts
        return run_coeus(all);
    };
    // the run keeps its biases, and its checkpoint; only the folder is missing
    for (const bool again : {false, true}) {
        CAPTURE(again);
        const Outcome run = run_of(folder / "kept", exports);
        INFO(run.output);
        CHECK(run.exit_code == 2);
        CHECK(count_of("no place for the biases that balance the experts (model.moe.load_balance_coeff = "
                       "0.001), and without them it would be another model. This run will end without",
                       run.output) == 1);
        CHECK_THAT(run.output, Contains(again ? "nothing to do" : "Training completed at step 1"));
        CHECK_THAT(
            run.output,
            Contains("the run is complete, but ") && Contains("checkpoint/hf-00000001 was not written") &&
                Contains("`coeus convert " + (folder / "kept").string() + " FOLDER --without_biases`"));
        CHECK(fs::exists(folder / "kept" / checkpoint_of(1)));
        CHECK_FALSE(fs::exists(folder / "kept/checkpoint/hf-00000001"));
    }
    accepted(convert_folder(folder / "kept", folder / "kept_hub", {"--without_biases"}));
    // biases that are 0 are not missed
    accepted(run_of(folder / "even", exports + Arguments{"--debug.moe_force_load_balance"}));
    CHECK(fs::exists(folder / "even/checkpoint/hf-00000001/model.safetensors"));
    accepted(run_of(out, experts));
    CHECK_THAT(
        refused(convert_folder(out, hub)),
        Contains("model/layers.0.moe.expert_bias: this Hugging Face folder has no place for these biases") &&
            Contains("add --without_biases to leave them out"));
    CHECK_FALSE(fs::exists(hub));
    accepted(convert_folder(out, hub, {"--without_biases"}));
    // a folder that exists is still there after a refusal
    refused(convert_folder(out, hub, {"--force"}));
    CHECK(fs::exists(hub / "model.safetensors"));
    // without biases there is nothing to refuse
    accepted(run_of(folder / "plain", exports + Arguments{"--model.moe.load_balance_coeff=0"}));
    CHECK(fs::exists(folder / "plain/checkpoint/hf-00000001/model.safetensors"));

    accepted(convert_folder(out, folder / "small.h5", {"--only", "model", "--dtype", "bfloat16"}));
    const hdf5::File small = hdf5::File::open(folder / "small.h5");
    CHECK(small.dataset("model/layers.0.moe.expert_bias").type() == hdf5::Type::f32);
    CHECK(small.dataset("model/layers.0.moe.router.gate.weight").type() == hdf5::Type::bf16);
}

TEST_CASE("a run from a folder without a place for balancing biases is balanced by the folder's loss") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5", hub = folder / "hub", out = folder / "run";
    write_token_file(data, {.tokens = learnable_tokens(80 * 17)});
    DecoderConfig model = small_model("qwen3", "debugmodel_moe", 32, 2, 8);
    model.moe.experts = 4;
    model.moe.top_k = 2;
    model.moe.hidden = 24;
    set_router_aux_loss_coef(model, 0.02);
    write_random_folder(hub, model);
    const auto run = [&](const fs::path& to, const Arguments& more) {
        return run_coeus(run_from_folder(to, data, hub, "qwen3", Arguments{"--checkpoint.enable"} + more));
    };
    const std::string balanced = accepted(run(out, {"--checkpoint.last_save_in_hf"}));
    CHECK(count_of(
              "there are none (model.moe.load_balance_coeff = 0), and a loss does "
              "(model.moe.sequence_balance_coeff = 0.02; for transformers: router_aux_loss_coef = 0.02). A "
              "deck can set both options",
              balanced) == 1);
    CHECK_THAT(balanced, Contains("sequence balance loss: 0.0"));
    CHECK(JsonDocument::read(out / "checkpoint/hf-00000003/config.json")
              .root()
              .number("router_aux_loss_coef") == 0.02);
    CHECK_FALSE(hdf5::File::open(out / checkpoint_of(3)).has("model/layers.0.moe.expert_bias"));

    // a run of an earlier version, which had biases, resumes with the option that the message names
    const fs::path earlier = folder / "earlier";
    CHECK_THAT(accepted(run(earlier, {"--model.moe.load_balance_coeff=0.001"})),
               Contains("Notice: the biases that balance the experts") && !Contains("sequence balance loss"));
    const Outcome refusal = run(earlier, {steps(4)});
    CHECK(refusal.exit_code == 2);
    CHECK_THAT(
        refusal.output,
        Contains("has biases that balance the experts (layers.0.moe.expert_bias), which this model does "
                 "not have: set model.moe.load_balance_coeff to the rate of the run"));
    const Outcome dry = run(earlier, {steps(4), "--dry_run", "--strict"});
    CHECK(dry.exit_code == 2);
    CHECK_THAT(dry.output, Contains("set model.moe.load_balance_coeff"));
    accepted(run(earlier, {steps(4), "--model.moe.load_balance_coeff=0.001"}));

    // a deck with biases starts from weights without them
    accepted(convert_folder(hub, folder / "weights.h5"));
    train_tiny(
        folder / "biases", data,
        tiny_experts + Arguments{steps(1), "--checkpoint.enable", "--model.vocab_size=288",
                                 "--checkpoint.initial_load_path=" + (folder / "weights.h5").string()});
    CHECK(hdf5::File::open(folder / "biases" / checkpoint_of(1)).has("model/layers.0.moe.expert_bias"));
}
