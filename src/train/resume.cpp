// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/resume.hpp"

#include "checkpoint_exclusion.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/pretrained/initial_weights.hpp"
#include "coeus/session/starting_point.hpp"
#include "coeus/setup/run_options.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

namespace coeus {

namespace {

using Loaded = CheckpointStore::Loaded;

bool is_in(const std::string& path, const std::string& folder) {
    return are_same_patiently(std::filesystem::absolute(path).parent_path(), folder);
}

// With checkpoint.initial_load_model_only = false, a file is needed.
void require_file_to_resume(const std::string& path) {
    if (is_folder_patiently(path))
        throw ConfigError(
            "checkpoint.initial_load_path = \"{}\": is a folder; with "
            "checkpoint.initial_load_model_only = false give one of its files, step-*.h5",
            path);
}

// The checkpoint of another run, without the excluded parts.
std::optional<Loaded> load_initial(const Config::Checkpoint& options, const Saving& saving,
                                   const Communicator& world) {
    if (options.initial_load_path.empty() || options.initial_load_model_only) return std::nullopt;
    on_first_rank(world, [&] { require_file_to_resume(options.initial_load_path); });
    const bool with_moments = !excludes(options.exclude_from_loading, "optimizer");
    return Loaded{options.initial_load_path,
                  load_checkpoint(options.initial_load_path,
                                  with_moments ? saving.full_state() : saving.weights(), world)};
}

// True if a run that resumes from this file resets its moments. Then they are not read: the file may lack
// those of another optimizer, or of parameters that were frozen. Collective.
bool resets_moments(const Words& excluded, const std::string& path, const Communicator& world) {
    if (!excludes(excluded, "optimizer")) return false;
    int64_t resets = 0;
    on_first_rank(world, [&] {
        try {
            const std::string deck = read_checkpoint_header(path).train.deck;
            resets = excludes(still_to_exclude(excluded, deck), "optimizer") ? 1 : 0;
        } catch (const std::exception&) {
            // it is damaged, or is not there: loading it reports this
        }
    });
    return world.all_reduce(resets, Reduce::max) > 0;
}

std::optional<Loaded> load_own(const Config::Checkpoint& options, const Saving& saving,
                               const Communicator& world) {
    if (!options.enable) return std::nullopt;
    const CheckpointStore& store = saving.checkpoints();
    const auto tensors_of = [&](const std::string& path) {
        return resets_moments(options.exclude_from_loading, path, world) ? saving.weights()
                                                                         : saving.full_state();
    };
    if (options.load_step < 0) return store.load_newest(tensors_of);
    return store.load_step(options.load_step, tensors_of(store.folder().path_of(options.load_step)));
}

}  // namespace

std::optional<Resume> Resume::load(const Config& config, const Saving& saving, Engine& engine,
                                   const Communicator& world) {
    const Config::Checkpoint& options = config.checkpoint;
    Words excluded = options.exclude_from_loading;
    std::optional<Loaded> loaded = load_own(options, saving, world);
    if (loaded)
        excluded = still_to_exclude(excluded, loaded->train.deck);
    else
        loaded = load_initial(options, saving, world);
    if (!loaded) return std::nullopt;
    if (excludes(excluded, "optimizer"))
        engine.model().parameters().clear_moments(engine.exec(), engine.kernels());
    const bool own = is_in(loaded->path, saving.checkpoints().folder().path());
    return Resume(config, std::move(*loaded), std::move(excluded), own);
}

void Resume::require_possible(const Config& config, const ModelConfig& model) {
    const Config::Checkpoint& options = config.checkpoint;
    const std::string folder =
        (std::filesystem::path(config.job.dump_folder) / options.folder).lexically_normal().string();
    if (options.create_seed_checkpoint && !list_checkpoints(folder).empty())
        throw ConfigError("{}", seed_checkpoint_error(folder));
    for (const std::string& path : checkpoints_to_continue(config)) {
        const bool own = is_in(path, folder);
        if (!own && !exists_patiently(path)) return;  // only missing here
        if (!own) require_file_to_resume(path);
        std::optional<CheckpointHeader> header;
        try {
            header = read_checkpoint_header(path);
        } catch (const std::exception&) {
            if (!own || options.load_step >= 0) throw;
            continue;  // a run skips it too
        }
        const TrainRecord& train = header->train;
        if (const std::string other = model->other_shape(train.model, path); !other.empty())
            throw ConfigError("{} is of another model: {}", path, other);
        const Words& parts = options.exclude_from_loading;
        Resume(config, {path, train}, own ? still_to_exclude(parts, train.deck) : parts, own)
            .require_deck_if_finished();
        return;
    }
}

std::string Resume::missing_step(const Config& config) {
    const Config::Checkpoint& options = config.checkpoint;
    if (!options.enable || options.load_step < 0) return "";
    const std::string folder = (std::filesystem::path(config.job.dump_folder) / options.folder).string();
    for (const StepFile& file : list_checkpoints(folder))
        if (file.step == options.load_step) return "";
    return missing_step_error(folder, options.load_step);
}

std::string seed_checkpoint_error(const std::string& folder) {
    return fmt::format(
        "checkpoint.create_seed_checkpoint = true: {} already has checkpoints; choose another "
        "checkpoint.folder or job.dump_folder",
        folder);
}

Resume::Resume(const Config& config, Loaded checkpoint, Words excluded, bool in_own_folder)
    : config_(&config),
      checkpoint_(std::move(checkpoint)),
      excluded_(std::move(excluded)),
      in_own_folder_(in_own_folder) {
    require_same_seed(checkpoint_.train.seed);
    checkpoint_.train = reset_parts(std::move(checkpoint_.train), excluded_);
    progress_ = Progress::of(checkpoint_.train);
    progress_.validation_is_left = progress_.validation_is_left && config.validation.enable;
}

void Resume::require_same_seed(int64_t seed) const {
    if (seed != config_->debug.seed && !excludes(excluded_, "dataloader"))
        throw ConfigError(
            "debug.seed = {}: the checkpoint {} was made with {}; the data order would change. Set it to {}, "
            "or start in another job.dump_folder",
            config_->debug.seed, checkpoint_.path, seed, seed);
}

std::optional<bool> Resume::shuffle() const {
    if (excludes(excluded_, "dataloader")) return std::nullopt;
    return shuffle_of_deck(checkpoint_.train.deck);
}

std::optional<int64_t> Resume::saved_step() const {
    return in_own_folder_ && excluded_.empty() ? std::optional(progress_.step) : std::nullopt;
}

std::vector<std::string> Resume::warnings(int64_t global_batch, int64_t passed_over) const {
    std::vector<std::string> lines = changes_since(checkpoint_.train.deck, *config_);
    // samples / steps is the old global batch size, unless one of the two was reset
    const Words& parts = config_->checkpoint.exclude_from_loading;
    const bool together = !excludes(parts, "dataloader") && !excludes(parts, "train_state");
    const int64_t step = progress_.step, seen = progress_.sample - passed_over;
    const int64_t before = together && step > 0 && seen % step == 0 ? seen / step : global_batch;
    if (before != global_batch)
        lines.push_back(
            fmt::format("the global batch size changes from {} to {} sequences per step; "
                        "training.global_batch_size = {} keeps it on any number of ranks",
                        before, global_batch, before));
    return lines;
}

void Resume::require_deck_if_finished() const {
    if (in_own_folder_ && progress_.is_finished(config_->training.steps))
        require_deck_of_finished_run(checkpoint_.train.deck, *config_, progress_.step);
}

std::vector<std::string> Resume::lines() const {
    std::vector<std::string> lines = {fmt::format("Resuming from {}: step {}, {} tokens seen",
                                                  checkpoint_.path, progress_.step,
                                                  with_commas(progress_.tokens_seen))};
    if (const std::string text = describe_exclusion(config_->checkpoint.exclude_from_loading, excluded_);
        !text.empty())
        lines.push_back(text);
    return lines;
}

}  // namespace coeus
