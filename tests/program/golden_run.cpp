// SPDX-License-Identifier: Apache-2.0
#include "program/golden_run.hpp"

#include "coeus/base/ignored_label.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "support/catch.hpp"

#include <algorithm>

namespace coeus::test {

namespace fs = std::filesystem;

namespace {

// One window for each row of `tokens` [10, B, S + 1], in order. The documents of a case are those of its
// inputs: the last token of a window belongs to the document before it, and each window begins a new
// document. A label of -100 is a token that the loss mask hides.
TokenData batches_as_stream(const Safetensors& batches) {
    TokenData data;
    const auto tokens = batches.read_all<int64_t>("tokens");
    data.tokens.assign(tokens.begin(), tokens.end());
    const auto labels = batches.read_all<int64_t>("labels");
    if (std::ranges::find(labels, ignored_label) != labels.end()) {
        data.loss_mask.assign(tokens.size(), 1);
        const size_t width = size_t(batches.entry("labels").shape.cols());
        for (size_t i = 0; i < labels.size(); ++i)  // label t of a window is its token t + 1
            data.loss_mask[i / width * (width + 1) + i % width + 1] = labels[i] != ignored_label;
    }
    if (!batches.has("document_ids")) return data;
    const auto ids = batches.read_all<int64_t>("document_ids");
    const int64_t length = batches.entry("document_ids").shape.cols();
    for (int64_t row = 0; row < int64_t(ids.size()) / length; ++row)
        for (int64_t t = 0; t < length; ++t)
            if (t == 0 || ids[size_t(row * length + t)] != ids[size_t(row * length + t - 1)])
                data.documents.push_back(uint64_t(row * (length + 1) + t));
    data.documents.push_back(uint64_t(tokens.size()));
    return data;
}

}  // namespace

void check_golden_run(const fs::path& model, const fs::path& reference, const Arguments& more, int ranks,
                      const GoldenTolerances& allowed) {
    const TemporaryFolder folder;
    const Safetensors batches = Safetensors::open((reference / "batch.safetensors").string());
    const Shape shape = batches.entry("tokens").shape;
    write_token_file(folder / "tokens.h5", batches_as_stream(batches));
    const Outcome run = run_coeus(
        Arguments{"train", "--job.dump_folder=" + (folder / "out").string(),
                  "--training.dataset_path=" + (folder / "tokens.h5").string(), "--model.flavor=hf",
                  "--model.hf_assets_path=" + model.string(), "--checkpoint.initial_load_in_hf",
                  fmt::format("--training.seq_len={}", shape.cols() - 1), "--training.local_batch_size=1",
                  fmt::format("--training.global_batch_size={}", shape[1]),
                  "--training.mixed_precision_param=float32", "--training.threads=1",
                  "--training.shuffle=false", "--training.steps=10", "--optimizer.lr=8e-4",
                  "--lr_scheduler.warmup_steps=2", "--metrics.log_freq=1"} +
            more,
        ranks);
    INFO(run.output);
    REQUIRE(run.exit_code == 0);
    CHECK_THAT(run.output, Catch::Contains("Starting from the weights of " + model.string()));
    const JsonDocument expected = JsonDocument::read(reference / "expected.json");
    const std::vector<JsonView> should = expected.root()["training"]["steps"].elements();
    const std::vector<StepLine> is = read_metrics(folder / "out").steps;
    REQUIRE(should.size() == 10);
    REQUIRE(is.size() == 10);
    for (size_t i = 0; i < 10; ++i) {
        CAPTURE(i);
        CHECK(is[i].step == should[i].integer("step"));
        CHECK(relatively_close(is[i].loss, should[i].number("loss"), allowed.loss));
        CHECK(relatively_close(is[i].grad_norm, should[i].number("grad_norm"), allowed.grad_norm));
        CHECK(relatively_close(is[i].lr, should[i].number("lr"), allowed.lr));
    }
}

}  // namespace coeus::test
