// SPDX-License-Identifier: Apache-2.0
// Hugging Face folders that Coeus writes, read by transformers if a Python has it: it takes every tensor, its
// logits equal those of the golden files and those that Coeus computes from the same folder, and both
// continue a text with the same tokens.
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/generate/generator.hpp"
#include "coeus/io/convert_weights.hpp"
#include "coeus/models/config_fields.hpp"
#include "coeus/models/family.hpp"
#include "coeus/models/hub_keys.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "program/python.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/golden.hpp"
#include "support/hub_folder.hpp"
#include "support/model.hpp"
#include "support/paths.hpp"
#include "support/write_safetensors.hpp"

#include <algorithm>
#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

// golden/README.md: the largest absolute difference
constexpr double in_float32 = 5e-5, in_float64 = 1e-10;
constexpr double loss_tolerance = 1e-12;  // relative, as in folder_losses.cpp

constexpr const char* not_there =
    "there is no Python with transformers (doc/checkpoint.md says how to make one)";

/// A folder for transformers to read, with tokens [sequences, length].
struct Question {
    fs::path folder;
    std::vector<int64_t> tokens;
    int64_t sequences;
};
struct Answers {
    std::vector<std::vector<double>> logits;
    std::vector<std::vector<int64_t>> continued;  ///< by `continued_by` tokens, in float64
    std::string printed;
};
constexpr int64_t continued_by = 20;

Answers ask_transformers(const std::string& python, const std::vector<Question>& questions,
                         Dtype dtype = Dtype::f32) {
    const TemporaryFolder folder;
    std::string command = python + " " + paths::source() + "/tests/tools/transformers_logits.py --strict";
    if (dtype == Dtype::f64) command += fmt::format(" --double --continue {}", continued_by);
    for (size_t i = 0; i < questions.size(); ++i) {
        const auto& [model, tokens, sequences] = questions[i];
        std::vector<int64_t> copy = tokens;
        test::write_safetensors(
            folder / fmt::format("{} tokens", i),
            {{"tokens", Tensor(copy.data(), Dtype::i64, {sequences, int64_t(tokens.size()) / sequences})}});
        command += fmt::format(" '{0}' '{1}/{2} tokens' '{1}/{2} logits'", model.string(),
                               folder.path().string(), i);
    }
    // no network, even if the folder lacks files
    const Outcome run = run_shell("HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 " + command + " 2>'" +
                                  (folder / "errors").string() + "'");
    INFO(read_file(folder / "errors"));
    REQUIRE(run.exit_code == 0);
    Answers answers{.logits = {}, .continued = {}, .printed = run.output};
    for (size_t i = 0; i < questions.size(); ++i) {
        const Safetensors answer = Safetensors::open(folder / fmt::format("{} logits", i));
        answers.logits.push_back(answer.read_all<double>("logits"));
        if (dtype == Dtype::f64) answers.continued.push_back(answer.read_all<int64_t>("continued"));
    }
    return answers;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) worst = worse_of(worst, std::fabs(a[i] - b[i]));
    return worst;
}

void convert_for_transformers(const fs::path& source, const fs::path& target, const Arguments& more = {}) {
    const Outcome run = run_coeus(Arguments{"convert", source.string(), target.string()} + more);
    INFO(run.output);
    REQUIRE(run.exit_code == 0);
}

/// The logits that Coeus computes in this type.
std::vector<double> our_logits(const Question& question, Dtype dtype) {
    const int64_t length = int64_t(question.tokens.size()) / question.sequences;
    TestModel model(model_from_hub(question.folder.string()), {dtype, dtype}, {question.sequences, length});
    Pretrained(question.folder).load(model.decoder);
    model.renew_weights();
    TestBatch batch(question.sequences, length, 1);
    std::copy(question.tokens.begin(), question.tokens.end(), batch.tokens.begin());
    const OwnedTensor logits = model.logits(batch);
    return values(logits);
}

int64_t most_likely(const Tensor& logits) {
    const std::vector<double> all = values(logits);
    return std::ranges::max_element(all) - all.begin();
}

/// The most likely tokens after half of the first sequence, in float64, with a cache of keys and values. The
/// rows of RoPE that depends on the length must not grow beyond that length.
std::vector<int64_t> our_continuation(const Question& question) {
    const int64_t length = int64_t(question.tokens.size()) / question.sequences / 2;
    Generator generator(model_from_hub(question.folder.string()), Dtype::f64, length + continued_by, 1);
    Pretrained(question.folder).load(generator.decoder());
    generator.weights_changed();
    const std::vector<int32_t> text(question.tokens.begin(), question.tokens.begin() + length);
    std::vector<int64_t> tokens = {most_likely(generator.read(0, text))};
    while (int64_t(tokens.size()) < continued_by) {
        const Generator::Next next = {0, int32_t(tokens.back())};
        tokens.push_back(most_likely(generator.append({&next, 1})));
    }
    return tokens;
}

/// Mean cross entropy of the next tokens, [sequences, length] of them.
double loss_of(const std::vector<double>& logits, const std::vector<int64_t>& labels) {
    const size_t vocab = logits.size() / labels.size();
    double sum = 0;
    for (size_t t = 0; t < labels.size(); ++t) {
        const double* row = logits.data() + t * vocab;
        double exponentials = 0;
        for (size_t v = 0; v < vocab; ++v) exponentials += std::exp(row[v]);
        sum += std::log(exponentials) - row[size_t(labels[t])];
    }
    return sum / double(labels.size());
}

/// The folders that convert writes for golden models, with their first batches, and the golden logits. Empty
/// if there are no reference files.
struct GoldenQuestions {
    TemporaryFolder folder;
    std::vector<Question> questions;
    std::vector<std::vector<double>> expected;
    std::vector<std::vector<int64_t>> labels;

    GoldenQuestions() {
        std::vector<GoldenCase> cases;
        for (const std::string& name : golden_models()) {
            const fs::path model = golden(name);
            cases.push_back({name, [=] { return left_out(model); }, [this, model] { ask(model); }});
        }
        compare_golden(cases);
    }

private:
    static std::string left_out(const fs::path& model) {
        const std::string documents =
            JsonDocument::read(model / "expected.json").root().string("documents", "none");
        if (documents != "none") return "its batches have several documents in a sequence";
        return unknown_architecture(model);
    }

    void ask(const fs::path& model) {
        const std::string name = model.filename();
        const bool in_parts = fs::exists(model / "model.safetensors.index.json") ||
                              model.parent_path().filename() == "families";
        convert_for_transformers(model, folder / (name + ".h5"));
        convert_for_transformers(folder / (name + ".h5"), folder / name,
                                 in_parts ? Arguments{"--max_shard_size", "60kB"} : Arguments{});
        const Safetensors batches = Safetensors::open((model / "batch.safetensors").string());
        const Shape shape = batches.entry("tokens").shape;  // steps, sequences, length + 1
        const auto windows = batches.read_all<int64_t>("tokens");
        Question& question = questions.emplace_back(Question{folder / name, {}, shape[1]});
        std::vector<int64_t>& next = labels.emplace_back();
        for (int64_t row = 0; row < shape[1]; ++row) {
            const auto begin = windows.begin() + row * shape[2], end = begin + shape[2];
            question.tokens.insert(question.tokens.end(), begin, end - 1);
            next.insert(next.end(), begin + 1, end);
        }
        expected.push_back(
            Safetensors::open((model / "logits.safetensors").string()).read_all<double>("logits"));
    }
};

}  // namespace

TEST_CASE("Coeus computes the golden logits from folders that convert writes") {
    const GoldenQuestions golden;
    for (size_t i = 0; i < golden.questions.size(); ++i) {
        CAPTURE(golden.questions[i].folder);
        CHECK(largest_difference(our_logits(golden.questions[i], Dtype::f64), golden.expected[i]) <=
              in_float64);
        CHECK(largest_difference(our_logits(golden.questions[i], Dtype::f32), golden.expected[i]) <=
              in_float32);
    }
}

TEST_CASE("transformers computes the golden logits from folders that convert writes, and the same texts") {
    const std::string python = python_with("transformers");
    if (python.empty()) return skip(not_there);
    const GoldenQuestions golden;
    if (golden.questions.empty()) return;
    const Answers answers = ask_transformers(python, golden.questions),
                  in_double = ask_transformers(python, golden.questions, Dtype::f64);
    for (size_t i = 0; i < golden.questions.size(); ++i) {
        CAPTURE(golden.questions[i].folder);
        CHECK(largest_difference(answers.logits[i], golden.expected[i]) <= in_float32);
        CHECK(largest_difference(in_double.logits[i], golden.expected[i]) <= in_float64);
        CHECK(relatively_close(loss_of(in_double.logits[i], golden.labels[i]),
                               loss_of(our_logits(golden.questions[i], Dtype::f64), golden.labels[i]),
                               loss_tolerance));
        CHECK(in_double.continued[i] == our_continuation(golden.questions[i]));
    }
}

namespace {

// Models of architectures that no golden folder has.
std::vector<DecoderConfig> other_models() {
    DecoderConfig deepseek_v2 = small_model("deepseek_v3", "16B", 48, 4, 24);
    deepseek_v2.layers = 3;
    LatentAttentionConfig& a = deepseek_v2.latent();
    a.kv_rank = 20;
    a.rope_dim = 8;
    a.value_dim = 12;
    a.latent_norm_eps = 1e-6;
    deepseek_v2.rope.scaling = YarnScaling{
        .factor = 40, .original_positions = 8, .beta_fast = 4, .mscale = 0.7, .mscale_all_dim = 0.7};
    deepseek_v2.feed_forward.hidden = 72;
    deepseek_v2.moe.experts = 6;
    deepseek_v2.moe.top_k = 2;
    deepseek_v2.moe.hidden = 16;
    deepseek_v2.moe.shared_hidden = 32;
    DecoderConfig with_q_latents = deepseek_v2;
    with_q_latents.latent().q_rank = 18;
    with_q_latents.moe.scale = 16;
    DecoderConfig qwen2 = small_model("qwen2", "7B", 48, 2, 12), windowed = qwen2;
    qwen2.feed_forward.hidden = windowed.feed_forward.hidden = 72;
    windowed.layers = 4;
    windowed.grouped().window = 5;
    windowed.windowed = {.first = 2};
    DecoderConfig mistral = small_model("mistral", "7B-v0.1", 48, 2, 16);
    mistral.feed_forward.hidden = 72;
    mistral.grouped().window = 7;
    return {deepseek_v2, with_q_latents, qwen2, windowed, mistral};
}

}  // namespace

TEST_CASE("transformers and Coeus compute the same logits of DeepSeek V2, Qwen 2 and Mistral") {
    const std::string python = python_with("transformers");
    if (python.empty()) return skip(not_there);
    const TemporaryFolder folder;
    std::vector<Question> questions;
    for (const DecoderConfig& model : other_models()) {
        Question& question = questions.emplace_back(
            Question{folder / fmt::format("{} {}", questions.size(), model.family), {}, 2});
        write_random_folder(question.folder, model);
        for (const uint16_t id : learnable_tokens(2 * 24, int(model.vocab))) question.tokens.push_back(id);
    }
    const Answers answers = ask_transformers(python, questions);
    for (size_t i = 0; i < questions.size(); ++i) {
        CAPTURE(questions[i].folder);
        CHECK(largest_difference(answers.logits[i], our_logits(questions[i], Dtype::f64)) <= in_float32);
        CHECK(largest_difference(answers.logits[i], our_logits(questions[i], Dtype::f32)) <= in_float32);
    }
}

namespace {

// GLM-4 and a GLM-4.5 without experts (Team GLM 2024, 2025): RoPE of a part of each head, in both layouts.
// Coeus has no family of GLM-4.
void glm_keys(HubKeys& keys, DecoderConfig& config) {
    keys.usual(config, {.attention = GroupedAttentionConfig{.bias = AttentionBias::qkv}});
    keys.rope_fraction(config);
    keys.rope(config);
    keys.write("attention_bias", true);
    keys.write("pad_token_id", Json());
}

// GLM-4 has gate and up in one tensor.
std::vector<HubPlace> glm_places(const std::string& parameter, const Shape& shape,
                                 const DecoderConfig& config) {
    std::vector<HubPlace> places = usual_hub_places(parameter, shape, config);
    const size_t at = places.front().name.find("gate_proj"), up = places.front().name.find("up_proj");
    if (at == std::string::npos && up == std::string::npos) return places;
    places.front().name.replace(std::min(at, up), std::string::npos, "gate_up_proj.weight");
    places.front().shape = {2 * shape.rows(), shape.cols()};
    if (up != std::string::npos) places.front().offset = shape.count();
    return places;
}

DecoderConfig glm(RopeLayout layout, double rope_fraction) {
    DecoderConfig model = small_model("llama3", "debugmodel", 48, 2, 12);
    model.family = "glm";
    if (layout == RopeLayout::half_split) {
        model.family = "glm4_moe";
        model.moe = find_flavor(find_family("glm4_moe"), "debugmodel").moe;
        model.moe_layers.first = model.layers;
    }
    model.feed_forward.hidden = 72;
    model.ffn_rule.reset();
    model.grouped().bias = AttentionBias::qkv;
    model.grouped().rope_fraction = rope_fraction;
    model.rope = {.theta = 10000, .layout = layout};
    return model;
}

// For this program.
void register_glm() {
    static const bool once = [] {
        register_family({.name = "glm",
                         .flavors = {glm(RopeLayout::interleaved, 0.5)},
                         .architectures = {"GlmForCausalLM"},
                         .model_types = {"glm"},
                         .hub_keys = glm_keys,
                         .hub_places = glm_places,
                         .hub_ignores = usually_ignored_in_hub,
                         .init = usual_init});
        return true;
    }();
    (void)once;
}

// Writes the folder again, from the weights in Coeus's order.
void write_again(const fs::path& from, const fs::path& to) {
    const DecoderConfig model = model_from_hub(from.string());
    const std::vector<HubTensor> tensors = hub_tensors(model);
    const std::vector<std::string> paths = checkpoint_paths(model);
    std::vector<Shape> shapes;
    for (const HubTensor& tensor : tensors) shapes.push_back(tensor.shape);
    HubWriter writer(to.string(), hub_config_of(model), hub_entries(paths, shapes, model), Dtype::f32, {},
                     alone());
    write_hub(writer, arrays_of_hub(from.string(), paths, tensors, hub_ignores(model)), alone());
}

}  // namespace

TEST_CASE("transformers and Coeus rotate the same part of each head, and a folder keeps its bits") {
    register_glm();
    const TemporaryFolder folder;
    std::vector<Question> questions;
    for (const RopeLayout layout : {RopeLayout::interleaved, RopeLayout::half_split})
        for (const double rope_fraction : {0.5, 0.7, 1.0}) {  // of 12: 6, 8 and 12 columns
            const DecoderConfig model = glm(layout, rope_fraction);
            Question& question =
                questions.emplace_back(Question{folder / std::to_string(questions.size()), {}, 2});
            write_random_folder(question.folder, model);
            for (const uint16_t id : learnable_tokens(2 * 24, int(model.vocab)))
                question.tokens.push_back(id);
            DecoderConfig read = model_from_hub(question.folder.string());
            read.flavor = model.flavor;
            CHECK(differences(read, model).empty());
            const fs::path again = question.folder.string() + " again";
            write_again(question.folder, again);
            const Safetensors before = Safetensors::open(question.folder.string()),
                              after = Safetensors::open(again.string());
            CHECK(before.names() == after.names());
            for (const std::string& name : before.names())
                CHECK(before.read_all<double>(name) == after.read_all<double>(name));
        }
    const std::string python = python_with("transformers");
    if (python.empty()) return skip(not_there);
    const Answers answers = ask_transformers(python, questions);
    for (size_t i = 0; i < questions.size(); ++i) {
        CAPTURE(questions[i].folder);
        const std::vector<double> ours = our_logits(questions[i], Dtype::f64);
        CHECK(largest_difference(answers.logits[i], ours) <= in_float32);
        CHECK(largest_difference(our_logits(questions[i], Dtype::f32), ours) <= in_float32);
        // not those of another part
        CHECK(largest_difference(answers.logits[(i + 1) % questions.size()], ours) > 10 * in_float32);
    }
}

TEST_CASE("transformers and Coeus compute the same logits from the folder of a run") {
    const std::string python = python_with("transformers");
    if (python.empty()) return skip(not_there);
    const TemporaryFolder folder;
    const std::vector<uint16_t> stream = learnable_tokens(80 * 17);
    write_token_file(folder / "tokens.h5", {.tokens = stream, .documents = {0, 80 * 17}});
    train_tiny(
        folder / "run", folder / "tokens.h5",
        {"--checkpoint.enable", "--checkpoint.last_save_in_hf", "--parallelism.tensor_parallel_degree=2",
         "--parallelism.pipeline_parallel_degree=2", "--training.local_batch_size=4", steps(4)},
        4);
    Question question{folder / "run/checkpoint/hf-00000004", {}, 4};
    std::vector<int64_t> labels;
    for (size_t row = 0; row < 4; ++row)
        for (size_t t = 0; t < 16; ++t) {
            question.tokens.push_back(stream[row * 17 + t]);
            labels.push_back(stream[row * 17 + t + 1]);
        }
    const Answers answers = ask_transformers(python, {question});
    CHECK(answers.printed == "None None\n");
    CHECK(largest_difference(answers.logits[0], our_logits(question, Dtype::f32)) <= in_float32);

    const Outcome more =
        train_tiny(folder / "more", folder / "tokens.h5",
                   {"--model.flavor=hf", "--checkpoint.initial_load_in_hf", "--training.no_shuffle",
                    "--model.hf_assets_path=" + question.folder.string(), steps(1)});
    const std::vector<double> losses = read_metrics(folder / "more").losses();
    REQUIRE(losses.size() == 1);
    CHECK(relatively_close(losses[0], loss_of(answers.logits[0], labels), 1e-6));
}
