// SPDX-License-Identifier: Apache-2.0
// A training run of a tiny model, started as a user starts it, and the files that it writes: for tests of the
// built program.
#pragma once

#include "coeus/io/checkpoint.hpp"
#include "support/patience.hpp"
#include "support/support.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace coeus::test {

using Arguments = std::vector<std::string>;
inline Arguments operator+(Arguments a, const Arguments& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
inline std::string steps(int64_t count) {
    return fmt::format("--training.steps={}", count);
}
/// The path inside a dump folder.
inline std::string checkpoint_of(int64_t step) {
    return fmt::format("checkpoint/step-{:08}.h5", step);
}

/// The content of a token file; an empty vector means that the array is absent.
struct TokenData {
    std::vector<uint16_t> tokens;
    std::vector<uint64_t> documents;
    std::vector<uint8_t> loss_mask;
};
void write_token_file(const std::filesystem::path& file, const TokenData& data);
/// Ids below `vocab`; some follow others more often, so there is something to learn.
std::vector<uint16_t> learnable_tokens(int64_t count, int vocab = 64);

/// Arguments of `coeus train`: 2 layers of width 32 with 4 heads (2 for keys and values), vocabulary 64, one
/// thread, 6 steps of 4 sequences of 16 tokens, each step logged, float32 throughout. Options in `more` take
/// precedence.
Arguments tiny_run(const std::filesystem::path& dump_folder, const std::filesystem::path& data,
                   const Arguments& more = {});
/// Arguments of `coeus train` for 3 steps of two local batches of 2 sequences of 16 tokens, in their order,
/// in float32, from the model and the weights of a Hugging Face folder.
Arguments run_from_folder(const std::filesystem::path& dump_folder, const std::filesystem::path& data,
                          const std::filesystem::path& from, const std::string& family,
                          const Arguments& more = {});
/// Options that give the tiny model 4 experts in each layer, of which a token uses 2.
extern const Arguments tiny_experts;
/// Runs it and checks that it succeeds.
Outcome train_tiny(const std::filesystem::path& dump_folder, const std::filesystem::path& data,
                   const Arguments& more = {}, int ranks = 0);

/// `coeus convert`.
Outcome convert_folder(const std::filesystem::path& source, const std::filesystem::path& target,
                       const Arguments& more = {}, int ranks = 0);
/// The content of /train in a run's checkpoint.
TrainRecord train_record(const std::filesystem::path& dump_folder, int64_t step);

/// Waits until no process of the run is left or `seconds` have passed; returns the ids of those left, one per
/// line. mpirun does not wait for processes that it kills, and the ranks of a killed mpirun end on their own.
/// A process that has ended and was not waited for has no command line and is not counted.
std::string processes_left(const std::filesystem::path& dump_folder, double seconds);

/// Lines of metrics.jsonl.
struct StepLine {
    int64_t step = 0;
    double loss = 0, loss_max = 0, grad_norm = 0, lr = 0;
    int64_t tokens_seen = 0;
    double epoch = 0;
    double memory_gib = 0, resident_gib = 0;
    double time = 0, run_s = 0;
};
struct ValidationLine {
    int64_t step = 0;
    double loss = 0;
    int64_t tokens = 0;
    std::map<std::string, double> losses;  ///< of each source
};
struct CheckpointLine {
    int64_t step = 0, at_step = 0;
    double seconds = 0, seconds_waited = 0;
};
/// A line written by a guard.
struct EventLine {
    int64_t step = 0;
    std::string event, action, text;  ///< text: the line without its times
};
struct MetricLines {
    std::vector<StepLine> steps;
    std::vector<ValidationLine> validations;
    std::vector<CheckpointLine> checkpoints;
    std::vector<EventLine> events;
    std::vector<double> losses() const;
};
MetricLines read_metrics(const std::filesystem::path& dump_folder);

/// Paths of the arrays that differ between two HDF5 files, in existence, type, shape or any byte.
std::vector<std::string> differing_arrays(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace coeus::test
