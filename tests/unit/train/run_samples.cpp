// SPDX-License-Identifier: Apache-2.0
// What RunSamples shows of a step is what the loader of a run gives to the engine at that step.
#include "coeus/train/run_samples.hpp"

#include "coeus/base/error.hpp"
#include "coeus/config/config.hpp"
#include "coeus/io/convert_weights.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "unit/data/token_files.hpp"

#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t row_length = 3;

// A blend of two files of 24 and 40 windows, with documents and masks.
struct Blend {
    TemporaryFolder folder;
    Config config;

    Blend() {
        const auto masked = [](int64_t count) {
            std::vector<uint8_t> mask(static_cast<size_t>(count));
            for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % 5 != 0;
            return mask;
        };
        counting_file(folder / "a.h5", 24 * 4, {7, 9, 30}, masked(24 * 4));
        counting_file(folder / "b.h5", 40 * 4, {50}, masked(40 * 4));
        config.training.dataset_path = {(folder / "a.h5").string(), (folder / "b.h5").string()};
        config.training.dataset_weights = {0.7, 0.3};
        config.training.seq_len = row_length;
        config.training.local_batch_size = 2;
        config.training.global_batch_size = 8;
        config.parallelism.data_parallel_shard_degree = 2;
        config.job.dump_folder = (folder / "run").string();
    }
};

// A checkpoint with nothing but its record and one number.
void write_record(const std::filesystem::path& path, const TrainRecord& train) {
    std::filesystem::create_directories(path.parent_path());
    const ArraySource source = {
        .arrays = {{"model/norm.weight", Dtype::f32, {1}}},
        .read = [](size_t, Tensor rows, int64_t) { std::memset(rows.data, 0, sizeof(float)); }};
    write_checkpoint(path.string(), train, source, std::nullopt, Communicator::self());
}

struct Rows {
    std::vector<int32_t> tokens, labels, starts;
    bool operator==(const Rows&) const = default;
};

// What data rank `rank` of `ranks` computes in `step` if the run began at sample `first` after step `after`.
Rows loaded(const Config& config, int64_t rank, int64_t ranks, int64_t step, int64_t after = 0,
            int64_t first = 0) {
    TrainingData data(config, 1000, "/no/such/cache", Communicator::self(), 1);
    data.set_shuffled(config.training.shuffle.value_or(true));
    BatchLoader loader(data.training(), {.global_batch = config.training.global_batch_size,
                                         .rank = rank,
                                         .ranks = ranks,
                                         .first_sample = first});
    std::optional<StepBatch> batch;
    for (int64_t s = after; s < step; ++s) batch = loader.next();
    const SampleRows& rows = batch->samples.text;
    return {{rows.tokens.begin(), rows.tokens.end()},
            {rows.labels.begin(), rows.labels.end()},
            {rows.document_start.begin(), rows.document_start.end()}};
}

// The same as RunSamples has it.
Rows looked_at(RunSamples& run, int64_t rank, int64_t step) {
    const auto [first, count] = run.step(step);
    const int64_t of_rank = count / run.data_ranks();
    Rows all;
    for (int64_t i = first + rank * of_rank; i < first + (rank + 1) * of_rank; ++i) {
        std::vector<int32_t> inputs(row_length), labels(row_length), starts(row_length);
        run.stream().sample(i, inputs, labels, starts);
        all.tokens.insert(all.tokens.end(), inputs.begin(), inputs.end());
        all.labels.insert(all.labels.end(), labels.begin(), labels.end());
        all.starts.insert(all.starts.end(), starts.begin(), starts.end());
        CHECK(run.step_of(i) == step);
        // the window that is named has these tokens: ids are positions
        const auto [source, window] = run.stream().window_of(i);
        CHECK(run.data().files()[source]->token(window * (row_length + 1)) == inputs[0]);
    }
    return all;
}

}  // namespace

TEST_CASE("run samples: a step has the rows that the loader gives to each data rank") {
    Blend blend;
    for (const auto& shuffle : {std::optional<bool>(), std::optional(false)}) {
        blend.config.training.shuffle = shuffle;
        RunSamples run(blend.config, 2);
        CHECK(run.global_batch() == 8);
        CHECK(run.data_ranks() == 2);
        for (const int64_t step : {1, 2, 7, 30})
            for (const int64_t rank : {0, 1})
                CHECK(looked_at(run, rank, step) == loaded(blend.config, rank, 2, step));
    }
    blend.config.validation.enable = true;  // windows are held out
    blend.config.validation.seq_len = row_length;
    RunSamples run(blend.config, 2);
    CHECK(looked_at(run, 1, 5) == loaded(blend.config, 1, 2, 5));
    CHECK_THROWS_AS(RunSamples(blend.config, 3), ConfigError);
}

TEST_CASE("run samples: checkpoints and skipped samples say where a step begins") {
    Blend blend;
    write_record(blend.folder / "run/checkpoint/step-00000004.h5", {.step = 4, .sample = 16});
    // a spike at step 6: samples 24 to 39 are skipped, and the step is tried again with the next ones
    write_file(blend.folder / "run/metrics.jsonl",
               "{\"step\": 6, \"event\": \"loss_spike\", \"first_sample\": 24, \"last_sample\": "
               "39}\n{\"step\": 6, ");
    RunSamples run(blend.config, 2);
    const auto first_of = [&](int64_t step) { return run.step(step).first; };
    CHECK(first_of(1) == 0);
    CHECK(first_of(4) == 12);  // these steps had 4 sequences
    CHECK(run.step(4).count == 4);
    CHECK(first_of(5) == 16);
    CHECK(first_of(6) == 40);
    CHECK(first_of(8) == 56);
    CHECK(run.step_of(24) == 6);  // who reads a skipped sample
    CHECK(run.step_of(40) == 6);
    CHECK(looked_at(run, 1, 8) == loaded(blend.config, 1, 2, 8, 5, 40));
}
