// SPDX-License-Identifier: Apache-2.0
// Folders as other programs write them give the losses that transformers computes in float64. The losses are
// stored here; a Python with transformers, if there is one, computes them again.
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "program/python.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/hub_folder.hpp"
#include "support/model.hpp"
#include "support/paths.hpp"
#include "support/write_safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

constexpr double tolerance = 1e-12;  // of the loss, relative
constexpr int64_t length = 24;

enum class Head { as_described, copy_of_table, own, only_in_index };

struct OtherFolder {
    std::string name;
    DecoderConfig model;
    std::map<std::string, std::string> keys;  ///< of config.json, as text; "" leaves the key out
    double loss;                              ///< of transformers 5.24 in float64
    Head head = Head::as_described;
    bool in_bf16 = false;  ///< all but the biases that choose experts
};

DecoderConfig small(const std::string& family, const std::string& flavor, bool tied = false) {
    DecoderConfig model = small_model(family, flavor, 32, 2, 8);
    model.feed_forward.hidden = 48;
    model.ffn_rule.reset();
    model.tied = tied;
    return model;
}

DecoderConfig small_experts() {
    DecoderConfig model = small_model("deepseek_v3", "16B", 32, 4, 12);
    LatentAttentionConfig& a = model.latent();
    a.kv_rank = 20;
    a.rope_dim = 4;
    a.value_dim = 8;
    a.latent_norm_eps = 1e-6;
    model.feed_forward.hidden = 48;
    model.moe.score = ScoreFunction::sigmoid;
    model.moe.keeps_bias = true;
    model.moe.experts = 8;
    model.moe.top_k = 2;
    model.moe.hidden = 16;
    model.moe.shared_hidden = 16;
    return model;
}

const std::string yarn =
    R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 5e5})";

std::vector<OtherFolder> other_folders() {
    const DecoderConfig llama = small("llama3", "debugmodel"), tied = small("llama3", "debugmodel", true),
                        qwen = small("qwen3", "debugmodel"), experts = small_experts();
    return {{"a tied model with a copy of its table", tied, {}, 5.6908059813756244, Head::copy_of_table},
            {"a tied model whose own head is used",
             tied,
             {{"tie_word_embeddings", "false"}},
             5.6045319179581954,
             Head::own},
            {"both forms of YaRN",
             qwen,
             {{"rope_scaling", yarn}, {"rope_parameters", yarn}, {"rope_theta", "5e5"}},
             5.6714819319918854},
            {"theta in rope_scaling",
             qwen,
             {{"rope_scaling", yarn}, {"rope_parameters", ""}, {"rope_theta", ""}},
             5.6714819319918854},
            {"the original length beside rope_scaling",
             llama,
             {{"rope_scaling",
               R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0})"},
              {"rope_parameters", ""},
              {"original_max_position_embeddings", "16"},
              {"max_position_embeddings", "128"},
              {"rope_theta", "5e5"}},
             5.6044869182674004},
            {"YaRN by the quotient of the lengths",
             qwen,
             {{"rope_scaling", ""},
              {"rope_parameters", R"({"rope_type": "yarn", "factor": null, "rope_theta": 5e5,
            "original_max_position_embeddings": 16})"},
              {"rope_theta", ""},
              {"max_position_embeddings", "64"}},
             5.6714819319918854},
            {"a head that only the index names", tied, {}, 5.6660919831575525, Head::only_in_index},
            {"architectures null", llama, {{"architectures", "null"}}, 5.6045319179581954},
            {"layers of multi-token prediction that are not there",
             experts,
             {{"num_nextn_predict_layers", "1"}},
             5.6902523415609778},
            {"biases of experts in float32 beside bfloat16",
             experts,
             {},
             5.6902523415609778,
             Head::as_described,
             true},
            {"swish", llama, {{"hidden_act", "\"swish\""}}, 5.6045319179581954},
            {"numbers that are not finite",
             qwen,
             {{"initializer_range", "NaN"}, {"attention_dropout", "0.0"}},
             5.6714527050487442}};
}

std::string config_text(const OtherFolder& other) {
    std::map<std::string, std::string> keys = other.keys;
    const Json config = hub_config_of(other.model);
    for (const auto& [key, value] : *config.as_object()) keys.emplace(key, value.text());
    std::string text;
    for (const auto& [key, value] : keys)
        if (!value.empty()) text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", key, value);
    return "{" + text + "}";
}

// Random numbers, each tensor's own. bfloat16 does not hold those of the biases that choose experts.
void write_folder(const fs::path& folder, const OtherFolder& other) {
    const std::string head = "lm_head.weight", table = "model.embed_tokens.weight";
    std::map<std::string, Shape> shapes = folder_shapes(other.model);
    if (other.head == Head::copy_of_table || other.head == Head::own) shapes.emplace(head, shapes.at(table));
    FolderTensors tensors;
    for (const auto& [name, shape] : shapes) {
        const bool is_bias = name.ends_with("e_score_correction_bias"),
                   is_copy = name == head && other.head == Head::copy_of_table;
        Numbers random(unsigned(std::distance(shapes.begin(), shapes.find(is_copy ? table : name))));
        const Tensor tensor = tensors.add(name, other.in_bf16 && !is_bias ? Dtype::bf16 : Dtype::f32, shape);
        for (int64_t i = 0; i < shape.count(); ++i)
            set_element(tensor, i, small_number(random) / (is_bias ? 3 : 1));
    }
    tensors.write(folder, Json::object());
    write_file(folder / "config.json", config_text(other));
    if (other.head != Head::only_in_index) return;
    Json map = Json::object();
    for (const auto& [name, shape] : shapes) map.set(name, "all.safetensors");
    fs::rename(folder / "model.safetensors", folder / "all.safetensors");
    map.set(head, "all.safetensors");
    write_json(Json::object().set("metadata", Json::object()).set("weight_map", std::move(map)),
               folder / "model.safetensors.index.json");
}

/// The tokens of one sequence, and the next one.
std::vector<int64_t> window(int64_t vocab) {
    const std::vector<uint16_t> tokens = learnable_tokens(length + 1, int(vocab));
    return {tokens.begin(), tokens.end()};
}

double loss_of(const std::vector<double>& logits, const std::vector<int64_t>& tokens) {
    const size_t vocab = logits.size() / length;
    double sum = 0;
    for (size_t t = 0; t < size_t(length); ++t) {
        const auto row = std::span(logits).subspan(t * vocab, vocab);
        const double largest = *std::ranges::max_element(row);
        double exponentials = 0;
        for (const double logit : row) exponentials += std::exp(logit - largest);
        sum += largest + std::log(exponentials) - row[size_t(tokens[t + 1])];
    }
    return sum / double(length);
}

double our_loss(const fs::path& folder) {
    DecoderConfig config = model_from_hub(folder.string());
    config.mtp.layers = depths_in(folder.string(), config);
    TestModel model(config, {Dtype::f64, Dtype::f64}, {1, length});
    Pretrained(folder).load(model.decoder);
    model.renew_weights();
    TestBatch batch(1, length, 1);
    const std::vector<int64_t> tokens = window(config.vocab);
    std::copy_n(tokens.begin(), length, batch.tokens.begin());
    return loss_of(values(model.logits(batch)), tokens);
}

std::string file_name(const fs::path& folder, size_t number) {
    return (folder / std::to_string(number)).string();
}

}  // namespace

TEST_CASE("folders of others give the losses of transformers in float64") {
    const TemporaryFolder folder;
    const std::vector<OtherFolder> all = other_folders();
    for (size_t i = 0; i < all.size(); ++i) {
        write_folder(file_name(folder.path(), i), all[i]);
        const double loss = our_loss(file_name(folder.path(), i));
        INFO(fmt::format("{}: {:.17g}", all[i].name, loss));
        CHECK(relatively_close(loss, all[i].loss, tolerance));
    }
}

TEST_CASE("transformers computes the stored losses of folders of others") {
    const std::string python = python_with("transformers");
    if (python.empty())
        return skip("there is no Python with transformers (doc/checkpoint.md says how to make one)");
    const TemporaryFolder folder;
    const std::vector<OtherFolder> all = other_folders();
    // no network, even if the folder lacks files
    std::string command = "HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 " + python + " " + paths::source() +
                          "/tests/tools/transformers_logits.py --double";
    for (size_t i = 0; i < all.size(); ++i) {
        const std::string name = file_name(folder.path(), i);
        write_folder(name, all[i]);
        std::vector<int64_t> tokens = window(all[i].model.vocab);
        write_safetensors(name + " tokens", {{"tokens", Tensor(tokens.data(), Dtype::i64, {1, length})}});
        command += fmt::format(" '{0}' '{0} tokens' '{0} logits'", name);
    }
    const Outcome run = run_shell(command + " 2>'" + (folder / "errors").string() + "'");
    INFO(read_file(folder / "errors"));
    REQUIRE(run.exit_code == 0);
    for (size_t i = 0; i < all.size(); ++i) {
        const double loss =
            loss_of(Safetensors::open(file_name(folder.path(), i) + " logits").read_all<double>("logits"),
                    window(all[i].model.vocab));
        INFO(fmt::format("{}: {:.17g}", all[i].name, loss));
        CHECK(relatively_close(loss, all[i].loss, tolerance));
    }
}
