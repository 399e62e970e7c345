// SPDX-License-Identifier: Apache-2.0
// Every model of golden/models and golden/families against Hugging Face's: loss, logits, choices of the
// routers, every gradient by name and ten AdamW steps, in float64 and float32 with the tolerances of
// golden/README.md, and in bfloat16 within 1 %. Gradients are compared in the layout of the files. The
// initial values of every model of golden/init are compared with torchtitan's distributions.
#include "coeus/deck/command_line.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/optim/grad_norm.hpp"
#include "coeus/optim/lr_schedule.hpp"
#include "coeus/optim/param_groups.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "hub_weights.hpp"
#include "library_roundings.hpp"
#include "support/catch.hpp"
#include "support/copy_converting.hpp"
#include "support/golden.hpp"
#include "support/model.hpp"
#include "support/part.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

/// golden/README.md, "Suggested tolerances". All are relative except those of logits and router weights,
/// which are absolute.
struct Tolerances {
    double loss, logits, router_weights, all_gradients, each_gradient, run_loss, run_norm, final_l2;
};
constexpr Tolerances in_float32 = {1e-6, 5e-5, 1e-5, 1e-5, 3e-5, 1e-5, 5e-5, 2e-6};
constexpr Tolerances in_float64 = {1e-12, 1e-10, 1e-12, 1e-11, 1e-10, 1e-10, 1e-9, 1e-9};
constexpr double lr_tolerance = 1e-12;

/// One case in memory: its files, our model with its weights, and its batches.
class Case {
public:
    /// `as_stored`: rows of q and k keep the order of the files, and RoPE uses their layout.
    Case(const fs::path& folder, const StateTypes& types, bool as_stored)
        : folder_(folder),
          types_(types),
          as_stored_(as_stored),
          document_(JsonDocument::read(folder / "expected.json")),
          batches_(Safetensors::open((folder / "batch.safetensors").string())),
          shape_{expected()["batch"].integer("sequences"), expected()["batch"].integer("length")},
          model_(config(), types, shape_, 1) {
        load_golden_weights(model_, folder.string());
    }

    JsonView expected() const { return document_.root(); }
    TestModel& model() { return model_; }
    const fs::path& folder() const { return folder_; }
    /// True for a weight whose ten steps follow rounding noise: biases of keys in columns that RoPE does not
    /// rotate have no gradient, and AdamW makes steps of what float32 rounds there.
    bool follows_noise(const std::string& name) const {
        const HeadSizes sizes = model_.decoder.config().head_sizes();
        return types_.master == Dtype::f32 && sizes.rotated_dim < sizes.head_dim &&
               name.ends_with("self_attn.k_proj.bias");
    }

    std::map<std::string, std::vector<double>> stored(Tensor Storage::*kind) const {
        return in_golden_layout(model_, kind);
    }

    /// The batch of step `step` (from 0).
    TestBatch batch(int64_t step) const {
        TestBatch b(shape_.sequences, shape_.seq_len, 1);
        const auto read = [&](const std::string& name, int64_t length) {
            std::vector<int32_t> ids(size_t(shape_.sequences * length));
            batches_.read(name, Tensor(ids.data(), Dtype::i32, {int64_t(ids.size())}),
                          step * int64_t(ids.size()));
            return ids;
        };
        const std::vector<int32_t> windows = read("tokens", shape_.seq_len + 1);
        for (int64_t t = 0; t < shape_.count(); ++t)
            b.tokens[size_t(t)] = windows[size_t(t + t / shape_.seq_len)];
        b.labels = read("labels", shape_.seq_len);
        if (batches_.has("position_ids")) b.positions = read("position_ids", shape_.seq_len);
        if (expected().string("documents").starts_with("masked")) {
            const std::vector<int32_t> ids = read("document_ids", shape_.seq_len);
            for (int64_t t = 0; t < shape_.count(); ++t) {
                const bool first = t % shape_.seq_len == 0 || ids[size_t(t)] != ids[size_t(t - 1)];
                b.document_start.push_back(first ? int32_t(t % shape_.seq_len) : b.document_start.back());
            }
        }
        return b;
    }

private:
    DecoderConfig config() const {
        CHECK(read_hub_model(folder_.string()).unknown_keys == std::vector<std::string>{});
        DecoderConfig c = model_from_hub(folder_.string());
        c.moe.sequence_balance = 0;  // the golden loss is the cross entropy alone
        const auto is_rotated = [](const HubTensor& tensor) {
            return std::ranges::any_of(tensor.places,
                                       [](const HubPlace& place) { return place.rotated_heads > 0; });
        };
        if (as_stored_ && std::ranges::any_of(hub_tensors(c), is_rotated))
            c.rope.layout = RopeLayout::half_split;
        return c;
    }

    fs::path folder_;
    StateTypes types_;
    bool as_stored_;
    JsonDocument document_;
    Safetensors batches_;
    BatchShape shape_;
    TestModel model_;
};

double l2(const std::vector<double>& x) {
    double squares = 0;
    for (const double v : x) squares += v * v;
    return std::sqrt(squares);
}

const OptimizerOptions adam_of_reference = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
constexpr double base_rate = 8e-4, max_norm = 1;

// One step up to the gradient norm; `step` counts from 1.
void measure_step(Case& c, const ParamGroups& adam, int64_t step, double learning_rate) {
    TestModel& model = c.model();
    TestBatch batch = c.batch(step - 1);
    model.scalars = adam.begin_step(uint64_t(step), learning_rate, batch.valid_labels());
    model.zero_gradients();
    model.forward_backward(batch);
    measure_norm(model.exec, cpu_kernels(), model.parameters(), model.scalars, max_norm);
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) worst = worse_of(worst, std::fabs(a[i] - b[i]));
    return worst;
}

/// What a router has chosen for a micro-batch, and from which logits.
class Choices {
public:
    /// `experts` and `weights`: [tokens, k], the experts of a token in any order.
    Choices(size_t tokens, const std::vector<double>& experts, const std::vector<double>& weights,
            std::vector<double> logits)
        : logits_(std::move(logits)) {
        const size_t k = experts.size() / tokens;
        for (size_t i = 0; i < experts.size(); ++i) chosen_[{i / k, experts[i]}] = weights.at(i);
    }

    /// The experts of all tokens, those of a token in ascending order.
    std::vector<double> experts() const {
        std::vector<double> all;
        for (const auto& [place, weight] : chosen_) all.push_back(place.second);
        return all;
    }
    /// In the same order.
    std::vector<double> weights() const {
        std::vector<double> all;
        for (const auto& [place, weight] : chosen_) all.push_back(weight);
        return all;
    }
    const std::vector<double>& logits() const { return logits_; }

private:
    std::map<std::pair<size_t, double>, double> chosen_;  // by token and expert
    std::vector<double> logits_;
};

/// Records what the routers of a model choose, in the order of the layers, while this object exists.
class RouterWatch {
public:
    explicit RouterWatch(TestModel& model) : model_(model) {
        seen_ = &choices_;
        model_.kernels.route = [](Exec& exec, Tensor experts, Tensor weights, Tensor loads, Tensor logits,
                                  Tensor bias, const RouteOptions& options) {
            cpu_kernels().route(exec, experts, weights, loads, logits, bias, options);
            if (logits.cols() == 1) return;  // the gate of a shared expert
            seen_->emplace_back(size_t(logits.rows()), values(experts), values(weights), values(logits));
        };
    }
    ~RouterWatch() {
        model_.kernels.route = cpu_kernels().route;
        seen_ = nullptr;
    }
    RouterWatch(const RouterWatch&) = delete;
    RouterWatch& operator=(const RouterWatch&) = delete;

    const std::vector<Choices>& choices() const { return choices_; }

private:
    static inline std::vector<Choices>* seen_ = nullptr;
    TestModel& model_;
    std::vector<Choices> choices_;
};

void check_routers(const Case& c, const std::vector<Choices>& ours, const Tolerances& tolerance) {
    const fs::path file = c.folder() / "router.safetensors";
    if (!fs::exists(file)) {
        CHECK(ours.empty());
        return;
    }
    const Safetensors golden = Safetensors::open(file.string());
    std::map<int64_t, std::string> layers;  // with experts: their names by number
    for (const std::string& name : golden.names())
        if (const std::string layers_of = "model.layers."; name.ends_with(".experts"))
            layers[std::stoll(name.substr(layers_of.size()))] = name.substr(0, name.rfind('.'));
    REQUIRE(ours.size() == layers.size());
    auto our = ours.begin();
    for (const auto& [number, layer] : layers) {
        INFO(layer);
        const std::vector<int64_t> experts = golden.read_all<int64_t>(layer + ".experts");
        const Choices theirs(size_t(golden.entry(layer + ".experts").shape[0]),
                             {experts.begin(), experts.end()}, golden.read_all<double>(layer + ".weights"),
                             golden.read_all<double>(layer + ".logits"));
        CHECK(largest_difference(our->logits(), theirs.logits()) <= tolerance.logits);
        REQUIRE(our->experts() == theirs.experts());
        CHECK(largest_difference(our->weights(), theirs.weights()) <= tolerance.router_weights);
        ++our;
    }
}

void check_first_batch(Case& c, const Tolerances& tolerance) {
    const JsonView expected = c.expected();
    TestModel& model = c.model();
    TestBatch batch = c.batch(0);
    CHECK(batch.valid_labels() == expected.integer("valid_tokens"));

    const std::vector<double> golden =
        Safetensors::open((c.folder() / "logits.safetensors").string()).read_all<double>("logits");
    {
        const RouterWatch routers(model);
        CHECK(largest_difference(values(model.logits(batch)), golden) <= tolerance.logits);
        check_routers(c, routers.choices(), tolerance);
    }

    measure_step(c, ParamGroups(adam_of_reference), 1, 0);
    CHECK(relatively_close(model.scalars.loss, expected.number("loss"), tolerance.loss));
    CHECK(relatively_close(model.scalars.grad_norm, expected.number("grad_norm"), tolerance.run_norm));

    const fs::path gradient_file = c.folder() / "grads.safetensors";
    const std::map<std::string, std::vector<double>> ours = c.stored(&Storage::g);
    for (const auto& [name, g] : ours) {
        INFO(name);
        CHECK(
            relatively_close(l2(g), expected["parameters"][name].number("grad_l2"), tolerance.each_gradient));
    }
    CHECK(expected["parameters"].size() == ours.size());
    if (!fs::exists(gradient_file)) {  // cases of several files have only the norms
        CHECK(fs::exists(c.folder() / "model.safetensors.index.json"));
        return;
    }
    check_golden_gradients(model, c.folder().string(), tolerance.each_gradient, tolerance.all_gradients);
}

void check_training(Case& c, const Tolerances& tolerance) {
    const LrSchedule schedule({.warmup_steps = 2, .total_steps = 10}, nullptr);
    const ParamGroups adam(adam_of_reference);
    TestModel& model = c.model();
    for (const JsonView& expected : c.expected()["training"]["steps"].elements()) {
        const int64_t step = expected.integer("step");
        INFO("step " << step);
        const double rate = base_rate * schedule.factor(step - 1);
        CHECK(relatively_close(rate, expected.number("lr"), lr_tolerance));
        measure_step(c, adam, step, rate);
        CHECK(c.batch(step - 1).valid_labels() == expected.integer("valid_tokens"));
        CHECK(relatively_close(model.scalars.loss, expected.number("loss"), tolerance.run_loss));
        CHECK(relatively_close(model.scalars.grad_norm, expected.number("grad_norm"), tolerance.run_norm));
        adam.update(model.exec, cpu_kernels(), model.parameters(), model.scalars);
    }
    for (const auto& [name, weights] : c.stored(&Storage::master)) {
        INFO(name);
        if (c.follows_noise(name)) continue;
        CHECK(relatively_close(l2(weights), c.expected()["parameters"][name].number("final_l2"),
                               tolerance.final_l2));
    }
}

// Every case of golden/models, and those of golden/families whose architecture the program has.
void for_each_model(const std::function<void(const fs::path& folder)>& check) {
    std::vector<GoldenCase> cases;
    for (const std::string& name : golden_models()) {
        const fs::path folder = golden(name);
        cases.push_back({name, [=] { return unknown_architecture(folder); }, [=] { check(folder); }});
    }
    compare_golden(cases);
}

void check_all(const StateTypes& types, bool as_stored, const Tolerances& tolerance) {
    for_each_model([&](const fs::path& folder) {
        Case c(folder, types, as_stored);
        check_first_batch(c, tolerance);
        check_training(c, tolerance);
    });
}

}  // namespace

TEST_CASE("golden: models in float64") {
    check_all({Dtype::f64, Dtype::f64}, false, in_float64);
}

TEST_CASE("golden: models in float64, in the stored order of q and k") {
    check_all({Dtype::f64, Dtype::f64}, true, in_float64);
}

TEST_CASE("golden: models in float32") {
    check_all({Dtype::f32, Dtype::f32}, false, in_float32);
}

TEST_CASE("golden: models in bfloat16 with float32 master weights: losses within 1 %") {
    for_each_model([](const fs::path& folder) {
        Case c(folder, {Dtype::f32, Dtype::bf16}, false);
        const LrSchedule schedule({.warmup_steps = 2, .total_steps = 10}, nullptr);
        const ParamGroups adam(adam_of_reference);
        for (const JsonView& expected : c.expected()["training"]["steps"].elements()) {
            const int64_t step = expected.integer("step");
            INFO("step " << step);
            measure_step(c, adam, step, base_rate * schedule.factor(step - 1));
            CHECK(relatively_close(c.model().scalars.loss, expected.number("loss"), 0.01));
            adam.update(c.model().exec, cpu_kernels(), c.model().parameters(), c.model().scalars);
        }
    });
}

namespace {

/// The recipes of golden/float8/training.json, by the names of torchao.
Recipe recipe_of(const std::string& name) {
    for (const auto& [recipe, known] :
         {std::pair(Recipe::none, "none"), std::pair(Recipe::tensorwise, "tensorwise"),
          std::pair(Recipe::rowwise, "rowwise"), std::pair(Recipe::rowwise_with_gw_hp, "rowwise_with_gw_hp")})
        if (name == known) return recipe;
    throw LogicError("the golden values have another recipe: " + name);
}

/// Ten steps of a run of training.json, within the tolerances of golden/README.md, section float8.
void check_training_in_8_bits(const JsonView& file, const std::string& run) {
    const size_t split = run.rfind('_');
    const Dtype compute = run.substr(split + 1) == "f32" ? Dtype::f32 : Dtype::bf16;
    StateTypes types = {Dtype::f32, compute};
    types.precision.linear = recipe_of(run.substr(0, split));
    for (const JsonView& name : file["not_converted"].elements())
        types.precision.filter_fqns.push_back(name.string());
    const bool is_exact = compute == Dtype::f32 && types.precision.linear == Recipe::none;
    Case c(golden("models/" + file.string("model")), types, false);
    if (compute == Dtype::bf16) round_like_the_library(c.model().kernels);
    const LrSchedule schedule({.warmup_steps = 2, .total_steps = 10}, nullptr);
    const ParamGroups adam(adam_of_reference);
    double differences = 0;
    for (const JsonView& expected : file["runs"][run].elements()) {
        const int64_t step = expected.integer("step");
        INFO("step " << step);
        measure_step(c, adam, step, base_rate * schedule.factor(step - 1));
        const double loss = c.model().scalars.loss, should = expected.number("loss");
        CHECK(relatively_close(loss, should, step > 1 ? 1.2e-2 : is_exact ? 1e-6 : 1e-3));
        CHECK(relatively_close(c.model().scalars.grad_norm, expected.number("grad_norm"), 5e-2));
        differences += std::fabs(loss / should - 1) / double(file["runs"][run].size());
        adam.update(c.model().exec, cpu_kernels(), c.model().parameters(), c.model().scalars);
        c.model().renew_weights();
    }
    CHECK(differences <= 5e-3);
}

}  // namespace

TEST_CASE("golden: training in 8 bits") {
    std::vector<GoldenCase> cases;
    std::optional<JsonDocument> document;
    if (fs::exists(golden("float8/training.json"))) {
        document = JsonDocument::read(golden("float8/training.json"));
        for (const auto& [run, steps] : document->root()["runs"].items())
            cases.push_back(
                {"float8/training, " + std::string(run), [] { return std::string(); },
                 [&, name = std::string(run)] { check_training_in_8_bits(document->root(), name); }});
    }
    compare_golden(cases);
}

TEST_CASE("golden: both forms of config.json describe the same model, and so does the one that we write") {
    for_each_model([](const fs::path& folder) {
        const TemporaryFolder older, ours;
        fs::copy_file(folder / "config_4x.json", older / "config.json");
        const DecoderConfig a = model_from_hub(folder.string()), b = model_from_hub(older.path().string());
        CHECK((a == b));
        CHECK(read_hub_model(older.path().string()).unknown_keys == std::vector<std::string>{});
        const JsonDocument document = JsonDocument::read(folder / "config.json");
        const JsonView ropes = document.root()["rope_parameters"];
        const JsonView rope = ropes.find("full_attention").value_or(ropes);  // of layers without a window
        const bool scaled = rope.string("rope_type", "default") != "default";
        CHECK((a.rope.scaling != RopeScaling{}) == scaled);
        write_json(hub_config_of(a), ours / "config.json");
        CHECK((model_from_hub(ours.path().string()) == a));
        CHECK(read_hub_model(ours.path().string()).unknown_keys == std::vector<std::string>{});
    });
}

namespace {

// Our name of the parameter that torchtitan calls `name`, in its versions up to 2026.
std::string our_name(std::string name) {
    if (name == "lm_head.weight") return "output.weight";
    for (const std::string inserted : {"qkv_linear.", "routed_experts.inner_"})
        if (const size_t at = name.find(inserted); at != std::string::npos) name.erase(at, inserted.size());
    // experts.w1_EFD, expert_bias_E: the letters are the extents
    if (const size_t at = name.find_last_of('_'); at != std::string::npos && name.find("_E", at) == at)
        name.erase(at);
    return name;
}

const Param& param_named(const Decoder& decoder, const std::string& name) {
    for (const Storage& storage : decoder.parameters().storages())
        for (const Param& param : storage.params())
            if (param.name == name) return param;
    throw LogicError("the model has no parameter " + name);
}

void check_shape(const Param& param, const JsonView& rule) {
    std::vector<int64_t> shape = rule["shape"].integers();
    // torchtitan's debug models of 2025 had the vocabulary of their tokenizer
    if (param.role == ParamRole::embedding || param.role == ParamRole::output) shape[0] = param.shape[0];
    CHECK(param.shape == (shape.size() == 1   ? Shape{shape[0]}
                          : shape.size() == 2 ? Shape{shape[0], shape[1]}
                                              : Shape{shape[0], shape[1], shape[2]}));
}

void check_distribution(const Tensor& tensor, const JsonView& rule) {
    if (!rule.contains("mean")) {  // torchtitan of 2025 never initialised a router's bias
        CHECK(rule.string("rule").starts_with("undefined"));
        return;
    }
    // at most a million elements; an odd step meets all columns of a matrix
    const int64_t count = tensor.count(), step = count / 1'000'000 | 1;
    const double mean = rule.number("mean"), std = rule.number("std"), n = double(div_ceil(count, step));
    double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < count; i += step) {
        const double x = element(tensor, i);
        sum += x;
        squares += (x - mean) * (x - mean);
        low = std::min(low, x);
        high = std::max(high, x);
    }
    if (rule.contains("min")) CHECK(low >= rule.number("min") - 1e-6 * std::fabs(rule.number("min")));
    if (rule.contains("max")) CHECK(high <= rule.number("max") + 1e-6 * std::fabs(rule.number("max")));
    CHECK(close(sum / n, mean, 5 * std / std::sqrt(n)));
    if (std > 0)
        CHECK(close(std::sqrt(squares / n) / std, 1, 5 * std::sqrt((rule.number("kurtosis") - 1) / (4 * n))));
}

// The model of an entry: family, flavour and options of the section [model], such as
// "deepseek_v3 debugmodel num_mtp_layers=1".
DecoderConfig model_of_entry(const std::string& name) {
    std::istringstream words(name);
    std::string family, flavor, option;
    words >> family >> flavor;
    std::vector<std::string> arguments = {"--training.dataset_path=x.h5", "--model.name=" + family,
                                          "--model.flavor=" + flavor};
    while (words >> option) arguments.push_back("--model." + option);
    return model_from_deck(parse_command_line(arguments).config);
}

}  // namespace

TEST_CASE("golden: initial values have torchtitan's distributions") {
    const fs::path folder = golden("init");
    if (folder.empty()) return;
    std::vector<GoldenCase> cases;
    Part part("initial values", 1, {.check_all = 1, .short_list = 3});
    std::vector<JsonDocument> documents;
    for (const std::string& file : files_in(folder)) documents.push_back(JsonDocument::read(folder / file));
    for (const JsonDocument& document : documents)
        for (const auto& [name, rules] : document.root().items()) {
            if (!part.takes_next()) continue;
            const InitialValues values = document.root().file().ends_with("toml.json")
                                             ? InitialValues::of_2025
                                             : InitialValues::of_2026;
            cases.push_back({document.root().file() + ", " + name,
                             [name] { return refusal_of([&] { model_of_entry(name); }); },
                             [=, rules = rules] {
                                 DecoderConfig config = model_of_entry(name);
                                 config.initial_values = values;
                                 const Decoder whole(config, {}, 1);
                                 // no distribution depends on the width of experts, which are most of a model
                                 config.moe.hidden = std::min<int64_t>(config.moe.hidden, 64);
                                 TestModel model(config, {}, {1, 1});
                                 int64_t elements = 0;
                                 for (const auto& [parameter, rule] : rules.items()) {
                                     INFO(parameter);
                                     // copies of a parameter, and counts of a step
                                     if (rule.contains("same_tensor_as") ||
                                         parameter.find(".tokens_per_expert") != std::string::npos)
                                         continue;
                                     const Param& param = param_named(whole, our_name(parameter));
                                     check_shape(param, rule);
                                     check_distribution(model.copy(param.name, &Storage::master), rule);
                                     elements += param.shape.count();
                                 }
                                 CHECK(elements == whole.parameters().count());
                             }});
        }
    compare_golden(cases);
}
