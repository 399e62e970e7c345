// SPDX-License-Identifier: Apache-2.0
// The loss that balances the experts of a run from a Hugging Face folder against transformers, in float64.
// The cases are in tests/data/balance, where make.py wrote them.
#include "coeus/file/json.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/optim/grad_norm.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "hub_weights.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <filesystem>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

DecoderConfig model_of_run(const fs::path& folder, int64_t seq_len) {
    Config config;
    config.model.name = "qwen3";
    config.model.flavor = "hf";
    config.model.hf_assets_path = folder.string();
    config.training.seq_len = seq_len;
    return model_from_deck(config);
}

TestBatch batch_of(const JsonView& tokens) {
    const int64_t sequences = int64_t(tokens.size()), seq_len = int64_t(tokens[0].size()) - 1;
    TestBatch batch(sequences, seq_len, 1);
    for (int64_t s = 0; s < sequences; ++s) {
        const std::vector<int64_t> ids = tokens[size_t(s)].integers();
        std::copy(ids.begin(), ids.end() - 1, batch.tokens.begin() + s * seq_len);
        std::copy(ids.begin() + 1, ids.end(), batch.labels.begin() + s * seq_len);
    }
    return batch;
}

}  // namespace

TEST_CASE(
    "golden: the loss that balances experts is that of transformers, a mean over sequences and layers") {
    for (const char* name : {"one", "two"}) {
        CAPTURE(name);
        const fs::path folder = fs::path(paths::source()) / "tests/data/balance" / name;
        const JsonDocument document = JsonDocument::read(folder / "expected.json");
        const JsonView expected = document.root();
        TestBatch batch = batch_of(expected["tokens"]);
        const DecoderConfig config = model_of_run(folder, batch.seq_len);
        CHECK(config.moe.balance_rate == 0);
        TestModel model(config, {Dtype::f64, Dtype::f64}, {batch.sequences, batch.seq_len});
        load_golden_weights(model, folder.string());
        model.scalars = ParamGroups({}).begin_step(1, 0, batch.valid_labels());
        model.zero_gradients();
        model.forward_backward(batch);
        measure_norm(model.exec, cpu_kernels(), model.parameters(), model.scalars, 1);
        const double balance = model.scalars.losses[decoder_loss::balance];
        CHECK(relatively_close(balance, 0.02 * expected.number("aux_loss"), 1e-12));
        CHECK(relatively_close(model.scalars.loss, expected.number("cross_entropy"), 1e-12));
        CHECK(relatively_close(model.scalars.loss + balance, expected.number("loss"), 1e-12));
        CHECK(relatively_close(model.scalars.grad_norm, expected.number("grad_norm"), 1e-11));
    }
}
