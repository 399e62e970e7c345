// SPDX-License-Identifier: Apache-2.0
// golden/zloss against torch: tables of logits, whose columns one to three ranks have, and the steps of
// models.
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/optim/grad_norm.hpp"
#include "hub_weights.hpp"
#include "support/catch.hpp"
#include "support/golden.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

fs::path z_loss_folder() {
    return golden("zloss");
}

double l2_of(const std::vector<double>& values) {
    double squares = 0;
    for (const double v : values) squares += v * v;
    return std::sqrt(squares);
}

/// The kernels of the loss, as tensor-parallel ranks call them that divide the columns of a table.
struct TableLoss {
    double loss = 0, z_loss = 0;
    std::vector<double> gradient;

    TableLoss(const Tensor& logits, const Tensor& labels, double weight, int64_t valid, int ranks) {
        const int64_t n = logits.rows(), total = logits.cols(), most = div_ceil(total, ranks);
        const Dtype acc = acc_of(logits.dtype);
        const Kernels& k = cpu_kernels();
        Exec exec;
        StepScalars scalars;
        scalars.loss_scale = 1 / double(valid);
        OwnedTensor parts(acc, {ranks, n}), at_label(acc, {n}), own(acc, {n}), lse(acc, {n}),
            losses(acc, {n}), z_losses(acc, {n}), dlogits(logits.dtype, {n, total});
        const auto columns = [&](int rank, const Tensor& t) {
            return t.slice_cols(rank * most, std::min(most, total - rank * most));
        };
        for (int rank = 0; rank < ranks; ++rank) {
            k.log_sum_exp(exec, Tensor(parts).slice_rows(rank, 1).reshape({n}), own, columns(rank, logits),
                          labels, {rank * most, total});
            k.add(exec, at_label, own);
        }
        k.add_log_sum_exp(exec, lse, parts);
        for (int rank = 0; rank < ranks; ++rank)
            k.cross_entropy(exec, losses, z_losses, columns(rank, dlogits), columns(rank, logits), labels,
                            lse, at_label, {rank * most, total}, 1, weight, scalars);
        for (const double of_token : values(losses)) loss += of_token;
        for (const double of_token : values(z_losses)) z_loss += of_token;
        gradient = values(dlogits);
    }
};

void check_table(const JsonView& expected, const std::string& name, Dtype type, double loss_tolerance,
                 double gradient_tolerance) {
    const Safetensors file = Safetensors::open((z_loss_folder() / (name + ".safetensors")).string());
    const Shape shape = file.entry("logits").shape;
    OwnedTensor logits(type, shape), labels(Dtype::i32, {shape[0]});
    const std::vector<float> values_of_file = file.read_all<float>("logits");
    for (int64_t i = 0; i < shape.count(); ++i) set_element(logits, i, values_of_file[size_t(i)]);
    const std::vector<int64_t> ids = file.read_all<int64_t>("labels");
    for (int64_t t = 0; t < shape[0]; ++t) set_element(labels, t, double(ids[size_t(t)]));
    for (const auto& [weight, figures] : expected["weights"].items())
        for (const int ranks : {1, 2, 3}) {
            CAPTURE(name, weight, ranks);
            const TableLoss ours(logits, labels, std::stod(std::string(weight)),
                                 expected.integer("valid_labels"), ranks);
            CHECK(relatively_close(ours.loss, figures.number("loss"), loss_tolerance));
            CHECK(relatively_close(ours.z_loss, figures.number("z_loss"), loss_tolerance));
            std::vector<double> difference = file.read_all<double>("grad." + std::string(weight));
            REQUIRE(ours.gradient.size() == difference.size());
            const double norm = l2_of(difference);
            CHECK(relatively_close(l2_of(ours.gradient), figures.number("grad_l2"), gradient_tolerance));
            for (size_t i = 0; i < difference.size(); ++i) difference[i] -= ours.gradient[i];
            CHECK(l2_of(difference) <= gradient_tolerance * norm);
        }
}

/// The L2 norm and the largest magnitude of each gradient. transformers stacks the matrices of all experts.
std::map<std::string, std::pair<double, double>> sizes_of_gradients(const TestModel& model) {
    std::map<std::string, std::pair<double, double>> sizes;
    for (const auto& [name, g] : in_golden_layout(model, &Storage::g)) {
        std::string stacked = name;
        if (const size_t experts = name.find(".experts."); experts != std::string::npos)
            stacked = name.substr(0, experts) +
                      (name.ends_with("down_proj.weight") ? ".experts.down_proj" : ".experts.gate_up_proj");
        auto& [norm, largest] = sizes[stacked];
        norm = std::hypot(norm, l2_of(g));
        for (const double v : g) largest = std::max(largest, std::fabs(v));
    }
    return sizes;
}

void check_model(const JsonView& expected) {
    const fs::path folder = golden("models/" + expected.string("model"));
    const Safetensors batches = Safetensors::open((folder / "batch.safetensors").string());
    const Shape shape = batches.entry("labels").shape;  // [steps, sequences, length]
    DecoderConfig config = model_from_hub(folder.string());
    config.moe.sequence_balance = 0;
    config.z_loss_weight = expected.number("weight");
    TestModel model(config, {Dtype::f64, Dtype::f64}, {shape[1], shape[2]});
    load_golden_weights(model, folder.string());
    const JsonView optimizer = expected["optimizer"];
    const ParamGroups adam({.beta1 = optimizer["betas"][0].number(),
                            .beta2 = optimizer["betas"][1].number(),
                            .eps = optimizer.number("eps"),
                            .weight_decay = optimizer.number("weight_decay")});
    const auto tokens = batches.read_all<int64_t>("tokens"), labels = batches.read_all<int64_t>("labels");
    for (const JsonView& step : expected["steps"].elements()) {
        const int64_t number = step.integer("step"), count = shape[1] * shape[2];
        CAPTURE(number);
        TestBatch batch(shape[1], shape[2], 1);
        for (int64_t t = 0; t < count; ++t) {
            const int64_t at = (number - 1) * count + t;
            batch.tokens[size_t(t)] = int32_t(tokens[size_t(at + at / shape[2])]);
            batch.labels[size_t(t)] = int32_t(labels[size_t(at)]);
        }
        model.scalars = adam.begin_step(uint64_t(number), optimizer.number("lr"), batch.valid_labels());
        model.zero_gradients();
        model.forward_backward(batch);
        measure_norm(model.exec, cpu_kernels(), model.parameters(), model.scalars,
                     optimizer.number("max_norm"));
        const double z_loss = model.scalars.losses[decoder_loss::z], loss = model.scalars.loss;
        CHECK(relatively_close(loss, step.number("loss"), 1e-12));
        CHECK(relatively_close(z_loss, step.number("z_loss"), 1e-12));
        CHECK(relatively_close(model.scalars.grad_norm, step.number("grad_norm"), 1e-11));
        if (number == 1) {
            const auto sizes = sizes_of_gradients(model);
            CHECK(sizes.size() == expected["parameters"].size());
            for (const auto& [name, size] : sizes) {
                CAPTURE(name);
                const JsonView should = expected["parameters"][name];
                CHECK(relatively_close(size.first, should.number("grad_l2"), 1e-10));
                CHECK(relatively_close(size.second, should.number("grad_max_abs"), 1e-10));
            }
            // validation has the cross entropy alone
            model.scalars.loss = model.scalars.losses[decoder_loss::z] = 0;
            model.evaluate(batch);
            CHECK(relatively_close(model.scalars.loss, loss - z_loss, 1e-12));
            CHECK(model.scalars.losses[decoder_loss::z] == 0);
        }
        adam.update(model.exec, cpu_kernels(), model.parameters(), model.scalars);
    }
}

// A case for each table or model in expected.json.
void check_each(const std::string& kind,
                const std::function<void(const std::string&, const JsonView&)>& check) {
    std::vector<GoldenCase> cases;
    std::optional<JsonDocument> document;
    if (fs::exists(z_loss_folder() / "expected.json")) {
        document = JsonDocument::read(z_loss_folder() / "expected.json");
        for (const auto& [name, expected] : document->root()[kind].items())
            cases.push_back(
                {"zloss/" + std::string(name), [] { return std::string(); },
                 [&check, name = std::string(name), expected = expected] { check(name, expected); }});
    }
    compare_golden(cases);
}

}  // namespace

TEST_CASE("golden: z-loss of tables, whole and divided among three ranks") {
    check_each("tables", [](const std::string& name, const JsonView& expected) {
        check_table(expected, name, Dtype::f64, 1e-12, 1e-12);
        check_table(expected, name, Dtype::f32, 1e-6, 2e-5);
    });
}

TEST_CASE("golden: z-loss in three steps of models, with every gradient") {
    check_each("models", [](const std::string&, const JsonView& expected) { check_model(expected); });
}
