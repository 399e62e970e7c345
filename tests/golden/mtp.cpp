// SPDX-License-Identifier: Apache-2.0
// Every case of golden/mtp against torchtitan's multi-token prediction: the loss and its parts, logits, every
// gradient by name, and the counts of the routers, in float64 and float32 with the tolerances of
// golden/README.md.
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

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

/// Those of logits are absolute, others relative.
struct MtpTolerances {
    double loss, logits, norm, each_gradient, all_gradients;
};
constexpr MtpTolerances mtp_in_float64 = {1e-12, 1e-10, 1e-9, 1e-10, 1e-11};
constexpr MtpTolerances mtp_in_float32 = {1e-6, 5e-5, 5e-5, 3e-5, 1e-5};

// The model of a case. Hugging Face's architecture has another epsilon in the norms of latents, and no router
// with a softmax.
DecoderConfig mtp_model_of(const fs::path& folder) {
    const std::string text = read_file(folder / "config.json"), softmax = "\"softmax\"";
    const size_t at = text.find(softmax);
    const TemporaryFolder known;
    write_file(known / "config.json",
               at == std::string::npos ? text : std::string(text).replace(at, softmax.size(), "\"sigmoid\""));
    DecoderConfig model = model_from_hub(known.path().string());
    if (at != std::string::npos) model.moe.score = ScoreFunction::softmax;
    model.latent().latent_norm_eps = model.norm_eps;
    model.moe.balance_rate = 0;
    return model;
}

class MtpCase {
public:
    MtpCase(const fs::path& folder, const StateTypes& types)
        : folder_(folder),
          document_(JsonDocument::read(folder / "expected.json")),
          file_(Safetensors::open((folder / "batch.safetensors").string())),
          model(mtp_model_of(folder), types, {1, length()}) {
        load_golden_weights(model, folder.string());
    }

    JsonView expected() const { return document_.root(); }
    TestBatch batch() const {
        TestBatch b(1, length(), 1);
        b.tokens = ids("tokens");
        b.labels = ids("labels");
        b.positions = ids("position_ids");
        const std::vector<int32_t> documents = ids("document_ids");
        for (size_t t = 0; t < documents.size(); ++t)
            b.document_start.push_back(t == 0 || documents[t] != documents[t - 1] ? int32_t(t)
                                                                                  : b.document_start.back());
        return b.look_ahead(model.decoder.depths());
    }
    // The tokens or labels of depth `depth` (from 1), or which of them are valid.
    std::vector<int32_t> shifted(const std::string& what, int64_t depth) const {
        return ids(what + "." + std::to_string(depth));
    }
    std::vector<double> logits(int64_t depth) const {
        return Safetensors::open((folder_ / "logits.safetensors").string())
            .read_all<double>("logits." + std::to_string(depth));
    }
    const fs::path& folder() const { return folder_; }

private:
    int64_t length() const { return file_.entry("tokens").shape.count(); }
    std::vector<int32_t> ids(const std::string& name) const {
        if (file_.entry(name).dtype == Dtype::u8) {
            const std::vector<uint8_t> small = file_.read_all<uint8_t>(name);
            return {small.begin(), small.end()};
        }
        const int64_t count = length();
        std::vector<int32_t> all(static_cast<size_t>(count));
        file_.read(name, Tensor(all.data(), Dtype::i32, {length()}), 0);
        return all;
    }

    fs::path folder_;
    JsonDocument document_;
    Safetensors file_;

public:
    TestModel model;
};

/// Records the logits of all heads, in the order in which they are computed. There is one chunk.
class HeadWatch {
public:
    explicit HeadWatch(TestModel& model) : model_(model) {
        seen_ = &logits_;
        model_.kernels.log_sum_exp = [](Exec& exec, Tensor lse, Tensor at_label, Tensor logits, Tensor labels,
                                        VocabularyPart part) {
            seen_->push_back(values(logits));
            cpu_kernels().log_sum_exp(exec, lse, at_label, logits, labels, part);
        };
    }
    ~HeadWatch() {
        model_.kernels.log_sum_exp = cpu_kernels().log_sum_exp;
        seen_ = nullptr;
    }
    HeadWatch(const HeadWatch&) = delete;
    HeadWatch& operator=(const HeadWatch&) = delete;

    const std::vector<std::vector<double>>& logits() const { return logits_; }

private:
    static inline std::vector<std::vector<double>>* seen_ = nullptr;
    TestModel& model_;
    std::vector<std::vector<double>> logits_;
};

// torchtitan sets the hidden states at invalid positions to zero. That changes only the logits there.
void check_logits(const MtpCase& c, const std::vector<std::vector<double>>& ours, double tolerance) {
    REQUIRE(int64_t(ours.size()) == 1 + c.model.decoder.depths());
    for (int64_t depth = 0; depth < int64_t(ours.size()); ++depth) {
        CAPTURE(depth);
        const std::vector<double> golden = c.logits(depth), &logits = ours[size_t(depth)];
        REQUIRE(golden.size() == logits.size());
        std::vector<int32_t> valid(golden.size() / size_t(c.model.decoder.config().vocab), 1);
        for (int64_t before = 1; before <= depth; ++before) {
            const std::vector<int32_t> there = c.shifted("valid", before);
            for (size_t t = 0; t < valid.size(); ++t) valid[t] *= there[t];
        }
        double worst = 0;
        for (size_t i = 0; i < golden.size(); ++i)
            if (valid[i / size_t(c.model.decoder.config().vocab)])
                worst = worse_of(worst, std::fabs(golden[i] - logits[i]));
        CHECK(worst <= tolerance);
    }
}

void check_mtp(const fs::path& folder, const StateTypes& types, const MtpTolerances& tolerance) {
    MtpCase c(folder, types);
    TestBatch batch = c.batch();
    const int64_t depths = c.model.decoder.depths();
    CHECK(depths == c.expected().integer("num_mtp_layers"));
    CHECK(batch.valid_labels() == c.expected().integer("valid_tokens"));
    for (int64_t depth = 1; depth <= depths; ++depth) {
        const auto of_depth = [&](const std::vector<int32_t>& further) {
            const auto first = further.begin() + (depth - 1) * batch.seq_len;
            return std::vector<int32_t>(first, first + batch.seq_len);
        };
        CHECK(of_depth(batch.further_tokens) == c.shifted("tokens", depth));
        CHECK(of_depth(batch.further_labels) == c.shifted("labels", depth));
    }

    c.model.scalars = ParamGroups({}).begin_step(1, 0, batch.valid_labels());
    c.model.zero_gradients();
    {
        const HeadWatch heads(c.model);
        c.model.forward_backward(batch);
        check_logits(c, heads.logits(), tolerance.logits);
    }
    measure_norm(c.model.exec, cpu_kernels(), c.model.parameters(), c.model.scalars, 1);
    const StepScalars& scalars = c.model.scalars;
    std::vector<double> sums;
    for (const JsonView& sum : c.expected()["cross_entropy_sums"].elements()) sums.push_back(sum.number());
    double further = 0;
    for (size_t depth = 1; depth < sums.size(); ++depth) further += sums[depth];
    const double scale = c.expected().number("mtp_scale") / double(depths),
                 valid = double(batch.valid_labels());
    CHECK(relatively_close(scalars.loss, c.expected().number("loss"), tolerance.loss));
    CHECK(relatively_close(scalars.losses[decoder_loss::mtp], scale * further / valid, tolerance.loss));
    CHECK(
        relatively_close(scalars.loss - scalars.losses[decoder_loss::mtp], sums[0] / valid, tolerance.loss));
    CHECK(relatively_close(scalars.grad_norm, c.expected().number("grad_norm"), tolerance.norm));
    check_golden_gradients(c.model, folder.string(), tolerance.each_gradient, tolerance.all_gradients);

    // validation has the loss of the next token only
    c.model.scalars.loss = c.model.scalars.losses[decoder_loss::mtp] = 0;
    c.model.evaluate(batch);
    CHECK(relatively_close(scalars.loss, sums[0] / valid, tolerance.loss));
    CHECK(scalars.losses[decoder_loss::mtp] == 0);
}

void check_mtp_cases(const StateTypes& types, const MtpTolerances& tolerance) {
    std::vector<GoldenCase> cases;
    for (const std::string& name : golden_folders("mtp")) {
        const fs::path folder = golden(name);
        cases.push_back({name, [=] { return refusal_of([&] { mtp_model_of(folder); }); },
                         [=] { check_mtp(folder, types, tolerance); }});
    }
    compare_golden(cases);
}

}  // namespace

TEST_CASE("golden: multi-token prediction in float64") {
    check_mtp_cases({Dtype::f64, Dtype::f64}, mtp_in_float64);
}

TEST_CASE("golden: multi-token prediction in float32") {
    check_mtp_cases({Dtype::f32, Dtype::f32}, mtp_in_float32);
}
