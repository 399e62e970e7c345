// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/run_samples.hpp"

#include "checkpoint_exclusion.hpp"
#include "coeus/base/error.hpp"
#include "coeus/comm/mesh.hpp"
#include "coeus/file/json.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/metrics/goodput.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

namespace coeus {

namespace {

namespace fs = std::filesystem;

fs::path root_of(const Config& config) {
    return config.job.dump_folder;
}

int ranks_of(const Config& config, int given) {
    if (given > 0) return given;
    int ranks = 0;
    for (const StartTimes& start : read_start_times(root_of(config) / "goodput.jsonl"))
        if (start.record && start.record->ranks > 0) ranks = int(start.record->ranks);
    return ranks > 0 ? ranks : fewest_ranks(config.parallelism);
}

// Without `shuffle`, a run keeps the order of the checkpoint from which it resumes.
Config with_order(Config config, const std::string& checkpoint_deck) {
    if (!config.training.shuffle && !checkpoint_deck.empty() &&
        !excludes(config.checkpoint.exclude_from_loading, "dataloader"))
        config.training.shuffle = shuffle_of_deck(checkpoint_deck);
    return config;
}

// The deck of the newest checkpoint; "" if there is none.
std::string newest_deck(const Config& config) {
    std::vector<StepFile> files = list_checkpoints((root_of(config) / config.checkpoint.folder).string());
    std::ranges::reverse(files);
    for (const StepFile& file : files) {
        try {
            return read_checkpoint_header(file.path).train.deck;
        } catch (const std::exception&) {  // it is damaged; a run skips it too
        }
    }
    return "";
}

}  // namespace

RunSamples::RunSamples(const Config& config, int ranks)
    : data_(with_order(config, newest_deck(config)), root_of(config) / "data"), stream_(data_.training()) {
    const MeshShape mesh = mesh_shape(config, ranks_of(config, ranks));
    data_ranks_ = mesh.size(axis::dp);
    global_batch_ =
        config.training.local_batch_size * data_ranks_ * gradient_accumulation_steps(config, data_ranks_);
    places_ = {{0, 0, 0}};
    const auto add = [&](const std::string& path, const Words& excluded) {
        try {
            const TrainRecord train = reset_parts(read_checkpoint_header(path).train, excluded);
            places_.push_back({train.step, train.sample, train.sample});
        } catch (const std::exception&) {  // it is damaged; a run skips it too
        }
    };
    const Config::Checkpoint& checkpoint = config.checkpoint;
    if (!checkpoint.initial_load_path.empty() && !checkpoint.initial_load_model_only)
        add(checkpoint.initial_load_path, checkpoint.exclude_from_loading);
    for (const StepFile& file : list_checkpoints((root_of(config) / checkpoint.folder).string()))
        add(file.path, {});
    std::ifstream metrics(root_of(config) / "metrics.jsonl");
    for (std::string line; std::getline(metrics, line);) {
        if (line.find("\"last_sample\"") == line.npos) continue;
        try {
            const JsonDocument event = JsonDocument::parse(line, "metrics.jsonl");
            const JsonView root = event.root();
            places_.push_back(
                {root.integer("step") - 1, root.integer("last_sample") + 1, root.integer("first_sample")});
        } catch (const ConfigError&) {  // a line that was cut off
        }
    }
    const auto order = [](const Place& place) { return std::tuple(place.step, place.sample); };
    std::ranges::sort(places_, {}, order);
    // a run that starts from another one's checkpoint has no steps before
    if (!checkpoint.initial_load_path.empty() && !checkpoint.initial_load_model_only && places_.size() > 1)
        places_.erase(places_.begin());
}

int64_t RunSamples::batch_after(size_t i) const {
    if (i + 1 >= places_.size()) return global_batch_;
    const int64_t steps = places_[i + 1].step - places_[i].step;
    const int64_t samples = places_[i + 1].reached - places_[i].sample;
    return steps > 0 && samples > 0 && samples % steps == 0 && samples / steps % data_ranks_ == 0
               ? samples / steps
               : global_batch_;
}

RunSamples::Step RunSamples::step(int64_t number) const {
    size_t i = 0;
    while (i + 1 < places_.size() && places_[i + 1].step < number) ++i;
    const int64_t batch = batch_after(i);
    return {places_[i].sample + (number - 1 - places_[i].step) * batch, batch};
}

int64_t RunSamples::step_of(int64_t sample) const {
    size_t i = 0;
    while (i + 1 < places_.size() && places_[i + 1].sample <= sample) ++i;
    return places_[i].step + 1 + (sample - places_[i].sample) / batch_after(i);
}

}  // namespace coeus
