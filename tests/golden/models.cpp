// SPDX-License-Identifier: Apache-2.0
// Llama models against Hugging Face's: loss, logits, every gradient by name and ten AdamW steps, in float64
// and float32 at the tolerances of golden/README.md, and in bfloat16 within 1 %. Gradients are compared in
// the stored (half-split) order of the rows of q and k. Initial values against torchtitan's distributions.
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/io/hub.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/optim/adam.hpp"
#include "coeus/optim/lr_schedule.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "support/catch.hpp"
#include "support/copy_converting.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <cmath>
#include <map>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> cases = {
    "llama2_mha",           "llama3_gqa",  "llama31_rope_scaled",    "llama3_docmask",
    "llama3_docmask_reset", "llama3_tied", "llama3_positions_reset", "sharded_bf16",
    "sharded_f16"};

/// golden/README.md, "Suggested tolerances". All relative but the logits, which are absolute.
struct Tolerances {
    double loss, logits, all_gradients, each_gradient, run_loss, run_norm, final_l2;
};
constexpr Tolerances in_float32 = {1e-6, 5e-5, 1e-5, 3e-5, 1e-5, 5e-5, 2e-6};
constexpr Tolerances in_float64 = {1e-12, 1e-10, 1e-11, 1e-10, 1e-10, 1e-9, 1e-9};
constexpr double lr_tolerance = 1e-12;

/// One case in memory: its files, our model with its weights, and its batches.
class Case {
public:
    Case(const fs::path& folder, const StateTypes& types, RopeLayout layout)
        : folder_(folder),
          layout_(layout),
          document_(JsonDocument::read(folder / "expected.json")),
          batches_(Safetensors::open((folder / "batch.safetensors").string())),
          shape_{expected()["batch"].integer("sequences"), expected()["batch"].integer("length")},
          model_(config(), types, shape_, 1) {
        std::vector<HubTensor> tensors;
        for (const auto& [name, hub] : parameter_names()) {
            const Tensor master = model_.tensor(name, &Storage::master);
            tensors.push_back({.name = hub.name,
                               .shape = master.shape,
                               .local = master,
                               .rotated_heads = hub.rotated_heads});
        }
        load_hub_weights(folder.string(), tensors);
        model_.parameters().refresh_compute(model_.exec, cpu_kernels());
    }

    JsonView expected() const { return document_.root(); }
    TestModel& model() { return model_; }
    const fs::path& folder() const { return folder_; }

    /// Our names with those of the files; no rows are reordered where our layout is the files'.
    std::map<std::string, HubName> parameter_names() const {
        std::map<std::string, HubName> names;
        for (const Storage& storage : model_.decoder.parameters().storages())
            for (const Param& param : storage.params()) {
                HubName& hub = names[param.name];
                hub = find_family("llama3").hub_name(param.name, model_.decoder.config());
                if (layout_ == RopeLayout::half_split) hub.rotated_heads = 0;
            }
        return names;
    }

    /// The elements of one of our parameters in stored order.
    std::vector<double> stored_order(const std::string& name, const HubName& hub,
                                     Tensor Storage::*kind) const {
        const Tensor ours = model_.tensor(name, kind);
        if (hub.rotated_heads == 0) return values(ours);
        const OwnedTensor stored(ours.dtype, ours.shape);
        const int64_t head_dim = ours.rows() / hub.rotated_heads;
        for (int64_t row = 0; row < ours.rows(); ++row)
            test::copy_converting(stored.view.slice_rows(half_split_row(row, head_dim), 1),
                                  ours.slice_rows(row, 1));
        return values(stored);
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
        DecoderConfig c = model_from_hub(folder_.string());
        c.rope_layout = layout_;
        return c;
    }

    fs::path folder_;
    RopeLayout layout_;
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

const AdamOptions adam_options = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
constexpr double base_rate = 8e-4, max_norm = 1;

// One step up to the gradient norm; `step` from 1.
void measure_step(Case& c, const Adam& adam, int64_t step, double learning_rate) {
    TestModel& model = c.model();
    TestBatch batch = c.batch(step - 1);
    model.scalars = adam.begin_step(uint64_t(step), learning_rate, batch.valid_labels());
    model.zero_gradients();
    model.forward_backward(batch);
    adam.measure_norm(model.exec, cpu_kernels(), model.parameters(), model.scalars, max_norm);
}

void check_first_batch(Case& c, const Tolerances& tolerance) {
    const JsonView expected = c.expected();
    TestModel& model = c.model();
    TestBatch batch = c.batch(0);
    CHECK(batch.valid_labels() == expected.integer("valid_tokens"));

    const OwnedTensor logits = model.logits(batch);
    const std::vector<double> golden =
        Safetensors::open((c.folder() / "logits.safetensors").string()).read_all<double>("logits");
    double worst = 0;
    for (size_t i = 0; i < golden.size(); ++i)
        worst = worse_of(worst, std::fabs(element(logits, int64_t(i)) - golden[i]));
    CHECK(worst <= tolerance.logits);

    measure_step(c, Adam(adam_options), 1, 0);
    CHECK(relatively_close(model.scalars.loss, expected.number("loss"), tolerance.loss));
    CHECK(relatively_close(model.scalars.grad_norm, expected.number("grad_norm"), tolerance.run_norm));

    const fs::path gradient_file = c.folder() / "grads.safetensors";
    if (!fs::exists(gradient_file)) {  // the sharded cases give their norms alone
        CHECK(c.folder().filename().string().starts_with("sharded"));
        for (const auto& [name, hub] : c.parameter_names()) {
            INFO(hub.name);
            CHECK(relatively_close(l2(c.stored_order(name, hub, &Storage::g)),
                                   expected["parameters"][hub.name].number("grad_l2"),
                                   tolerance.each_gradient));
        }
        return;
    }
    const Safetensors gradients = Safetensors::open(gradient_file.string());
    CHECK(gradients.names().size() == c.parameter_names().size());
    std::vector<double> all, all_golden;
    for (const auto& [name, hub] : c.parameter_names()) {
        INFO(hub.name);
        const std::vector<double> g = c.stored_order(name, hub, &Storage::g);
        const std::vector<double> g_golden = gradients.read_all<double>(hub.name);
        CHECK(normalised_error(g, g_golden) <= tolerance.each_gradient);
        CHECK(relatively_close(l2(g), expected["parameters"][hub.name].number("grad_l2"),
                               tolerance.each_gradient));
        all.insert(all.end(), g.begin(), g.end());
        all_golden.insert(all_golden.end(), g_golden.begin(), g_golden.end());
    }
    CHECK(normalised_error(all, all_golden) <= tolerance.all_gradients);
}

void check_training(Case& c, const Tolerances& tolerance) {
    const LrSchedule schedule({.warmup_steps = 2, .total_steps = 10}, nullptr);
    const Adam adam(adam_options);
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
    for (const auto& [name, hub] : c.parameter_names()) {
        INFO(hub.name);
        CHECK(relatively_close(l2(c.stored_order(name, hub, &Storage::master)),
                               c.expected()["parameters"][hub.name].number("final_l2"), tolerance.final_l2));
    }
}

void check_all(const StateTypes& types, RopeLayout layout, const Tolerances& tolerance) {
    for (const std::string& name : cases) {
        const fs::path folder = golden("models/" + name);
        if (folder.empty()) return;
        CAPTURE(name);
        Case c(folder, types, layout);
        check_first_batch(c, tolerance);
        check_training(c, tolerance);
    }
}

}  // namespace

TEST_CASE("golden: Llama models in float64") {
    check_all({Dtype::f64, Dtype::f64}, RopeLayout::interleaved, in_float64);
}

TEST_CASE("golden: Llama models in float64, in the stored order of q and k") {
    check_all({Dtype::f64, Dtype::f64}, RopeLayout::half_split, in_float64);
}

TEST_CASE("golden: Llama models in float32") {
    check_all({Dtype::f32, Dtype::f32}, RopeLayout::interleaved, in_float32);
}

TEST_CASE("golden: Llama models in bfloat16 with float32 master weights: losses within 1 %") {
    for (const std::string& name : cases) {
        const fs::path folder = golden("models/" + name);
        if (folder.empty()) return;
        CAPTURE(name);
        Case c(folder, {Dtype::f32, Dtype::bf16}, RopeLayout::interleaved);
        const LrSchedule schedule({.warmup_steps = 2, .total_steps = 10}, nullptr);
        const Adam adam(adam_options);
        for (const JsonView& expected : c.expected()["training"]["steps"].elements()) {
            const int64_t step = expected.integer("step");
            INFO("step " << step);
            measure_step(c, adam, step, base_rate * schedule.factor(step - 1));
            CHECK(relatively_close(c.model().scalars.loss, expected.number("loss"), 0.01));
            adam.update(c.model().exec, cpu_kernels(), c.model().parameters(), c.model().scalars);
        }
    }
}

TEST_CASE("golden: both forms of config.json describe the same model") {
    for (const std::string& name : cases) {
        const fs::path folder = golden("models/" + name);
        if (folder.empty()) return;
        CAPTURE(name);
        const TemporaryFolder older;
        fs::copy_file(folder / "config_4x.json", older / "config.json");
        const DecoderConfig a = model_from_hub(folder.string()), b = model_from_hub(older.path().string());
        CHECK((a == b));
        CHECK(a.rope_scaling.has_value() == (name == "llama31_rope_scaled"));
    }
}

TEST_CASE("golden: initial values have torchtitan's distributions") {
    const fs::path folder = golden("init");
    if (folder.empty()) return;
    const JsonDocument document = JsonDocument::read(folder / "toml.json");
    TestModel model(find_flavor(find_family("llama3"), "debugmodel"), {}, {1, 1});
    const auto rules = document.root()["llama3 debugmodel"].items();
    int64_t elements = 0;
    for (const auto& [name, rule] : rules) {
        INFO(name);
        const Tensor tensor = model.tensor(name, &Storage::master);
        const std::vector<int64_t> shape = rule["shape"].integers();
        CHECK(tensor.shape == (shape.size() == 1 ? Shape{shape[0]} : Shape{shape[0], shape[1]}));
        const double mean = rule.number("mean"), std = rule.number("std"), n = double(tensor.count());
        double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
        for (const double x : values(tensor)) {
            sum += x;
            squares += (x - mean) * (x - mean);
            low = std::min(low, x);
            high = std::max(high, x);
        }
        elements += tensor.count();
        if (rule.contains("min")) CHECK(low >= rule.number("min") - 1e-6 * std::fabs(rule.number("min")));
        if (rule.contains("max")) CHECK(high <= rule.number("max") + 1e-6 * std::fabs(rule.number("max")));
        CHECK(close(sum / n, mean, 5 * std / std::sqrt(n)));
        if (std > 0)
            CHECK(close(std::sqrt(squares / n) / std, 1,
                        5 * std::sqrt((rule.number("kurtosis") - 1) / (4 * n))));
    }
    CHECK(elements == model.parameters().count());
}
