// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/saving.hpp"

#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/device/named_range.hpp"
#include "coeus/file/convert.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/io/checkpoint_room.hpp"
#include "coeus/io/convert_weights.hpp"
#include "coeus/models/hub_model.hpp"
#include "coeus/pretrained/pretrained.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace coeus {

namespace {

// Called before the first step, so that a lack of room is not found hours later, at the first save.
void check_room(const Config& config, const CheckpointFolder& folder, int64_t element_bytes, size_t arrays,
                int64_t step) {
    const int64_t there = int64_t(list_checkpoints(folder.path()).size()),
                  keep = config.checkpoint.keep_latest_k,
                  saves = 1 + (config.training.steps - step) / config.checkpoint.interval,
                  count = keep == 0 ? saves : std::min(saves, std::max<int64_t>(1, keep + 1 - there));
    const int64_t bytes = checkpoint_bytes(element_bytes, arrays);
    const std::string warning = room_warning(bytes, count, folder.path(), free_bytes(folder.path()));
    if (!warning.empty()) log::warn("{}", warning);
    try {
        require_reservable(folder.path(), bytes, config.checkpoint.files);
    } catch (const SystemError& error) {
        throw SystemError(fmt::format(
            "there is no room for a checkpoint of {}: {}; check your quota and `ulimit -f`, or choose "
            "another checkpoint.folder",
            bytes_text(double(bytes)), error.what()));
    }
}

}  // namespace

void require_form_of_export(const Config::Checkpoint& options, const ModelConfig& model) {
    if (options.last_save_in_hf && !model->decoder())
        throw ConfigError(
            "checkpoint.last_save_in_hf = true: {} has no form in Hugging Face folders; remove it",
            model->name());
}

Saving::Saving(const Config& config, const ModelConfig& model, const RunFolder& folder, const Mesh& mesh,
               Engine& engine, CheckpointWriter writer)
    : config_(config),
      model_(model),
      folder_(folder),
      world_(mesh.world()),
      engine_(engine),
      checkpoints_(folder.checkpoint_folder().string(), config.checkpoint.keep_latest_k, mesh.world(),
                   config.checkpoint.files, std::move(writer)) {
    require_form_of_export(config.checkpoint, model);
}

int64_t Saving::full_state_bytes() const {
    return engine_.model().parameters().full_state_bytes();
}

std::vector<CheckpointTensor> Saving::weights() const {
    return checkpoint_tensors(engine_.model().parameters(), false);
}

std::vector<CheckpointTensor> Saving::full_state() const {
    return checkpoint_tensors(engine_.model().parameters(), true);
}

void Saving::begin(std::function<void(const SavedCheckpoint&)> noted) {
    noted_ = std::move(noted);
    if (saves() && last_step_.value_or(0) < config_.training.steps)
        on_first_rank(world_, [&] {
            check_room(config_, checkpoints_.folder(), full_state_bytes(), full_state().size(),
                       last_step_.value_or(0));
        });
    if (saves_async(config_)) async_.emplace(checkpoints_, world_, full_state(), engine_.exec());
}

void Saving::wait_for_copies() {
    if (async_) async_->wait_for_copies();
}

bool Saving::is_due(int64_t step) const {
    const auto& options = config_.checkpoint;
    return saves() && (step == config_.training.steps || step % options.interval == 0 ||
                       (step == 1 && options.enable_first_step_checkpoint));
}

void Saving::after_step(const TrainRecord& train) {
    if (!saves()) return;
    if (async_) note(async_->poll());
    if (!is_due(train.step)) return;
    const bool last = train.step == config_.training.steps;
    if (last || !async_) {
        save_now(train);
        if (last && config_.checkpoint.last_save_model_only) export_model(train);
        return;
    }
    const NamedRange range("save_checkpoint");
    finish();
    async_->begin(train);
}

bool Saving::save_now(const TrainRecord& train) {
    if (!saves()) return false;
    const NamedRange range("save_checkpoint");
    finish();
    if (is_saved(train.step)) return true;
    const Timer timer;
    const CheckpointStore::Saved saved = checkpoints_.save(train, full_state());
    const double seconds = timer.seconds();
    note(SavedCheckpoint{train.step, saved, seconds, seconds});
    return true;
}

void Saving::finish() {
    if (async_) note(async_->finish());
}

void Saving::note(const std::optional<SavedCheckpoint>& done) {
    if (!done) return;
    seconds_of_save_ = done->seconds;
    last_step_ = done->step;
    if (noted_) noted_(*done);
    if (world_.rank() != 0) return;
    const bool beside = done->seconds_waited < done->seconds;
    log::info("Saved {}: {} in {:.2f} s, {}/s{}", done->saved.path, bytes_text(double(done->saved.bytes)),
              done->seconds, bytes_text(double(done->saved.bytes) / done->seconds),
              beside ? fmt::format(", of which training waited {:.2f} s", done->seconds_waited) : "");
}

void Saving::save_seed(const TrainRecord& train) {
    const CheckpointStore::Saved saved = checkpoints_.save(train, full_state());
    log::info(
        "Saved the initial weights as {}; a run on any number of ranks can start from them. Coeus does not "
        "need this file: without it, runs with the same debug.seed start from the same weights",
        saved.path);
}

void Saving::export_if_missing(const TrainRecord& train) {
    if (!saves() || !config_.checkpoint.last_save_model_only || train.step != config_.training.steps) return;
    const bool missing = world_.rank() == 0 && exists_patiently(checkpoints_.folder().path_of(train.step)) &&
                         !exists_patiently(export_path(train.step));
    if (world_.all_reduce(int64_t(missing), Reduce::max) != 0) export_model(train);
}

std::string Saving::export_path(int64_t step) const {
    return config_.checkpoint.last_save_in_hf
               ? (folder_.checkpoint_folder() / fmt::format("hf-{:08}", step)).string()
               : checkpoints_.folder().model_path_of(step);
}

void Saving::require_exported() const {
    if (!not_exported_.empty()) throw ConfigError("{}", not_exported_);
}

// True if the folder would be without biases that are not 0.
bool Saving::loses_biases() const {
    if (hub_holds_biases(require_decoder(model_, "a Hugging Face folder"))) return false;
    bool loses = false;
    for (const CheckpointTensor& tensor : weights()) {
        if (!tensor.is_exact) continue;
        for (const HeldBlock& block : tensor.blocks) {
            std::vector<std::byte> bytes(size_t(block.local.bytes()));
            tensor.device->copy(bytes.data(), block.local.data, block.local.bytes());
            std::vector<double> values(size_t(block.local.count()));
            convert_elements(values.data(), Dtype::f64, bytes.data(), block.local.dtype, block.local.count());
            loses |= std::ranges::any_of(values, [](double value) { return value != 0; });
        }
    }
    return world_.all_reduce(int64_t(loses), Reduce::max) != 0;
}

void Saving::export_model(const TrainRecord& train) {
    if (config_.checkpoint.last_save_in_hf && loses_biases()) {
        not_exported_ = fmt::format(
            "checkpoint.last_save_in_hf = true: the run is complete, but {} was not written, because a "
            "Hugging Face folder of this architecture has no place for the biases that balance the experts. "
            "{} has the model with them; `coeus convert {} FOLDER --without_biases` writes a folder without "
            "them, which is another model. Train with model.moe.load_balance_coeff = 0 to get one that a "
            "folder holds",
            export_path(train.step), checkpoints_.folder().path_of(train.step), folder_.root().string());
        return;
    }
    const std::string& type = config_.checkpoint.export_dtype;
    const Dtype dtype = type == "bfloat16" ? Dtype::bf16 : type == "float16" ? Dtype::f16 : Dtype::f32;
    const std::string path = config_.checkpoint.last_save_in_hf
                                 ? export_hub(train.step, dtype)
                                 : checkpoints_.export_model(train, weights(), dtype).path;
    if (world_.rank() == 0) log::info("Saved the model weights as {} ({})", path, type);
}

std::string Saving::export_hub(int64_t step, Dtype dtype) {
    const DecoderConfig& model = require_decoder(model_, "a Hugging Face folder");
    std::string folder = export_path(step);
    const std::vector<CheckpointTensor> tensors = weights();
    std::vector<std::string> paths;
    std::vector<Shape> shapes;
    for (const CheckpointTensor& tensor : tensors) {
        paths.push_back(tensor.path);
        shapes.push_back(tensor.shape);
    }
    // an earlier start of this run may have reached this step, and left a folder
    on_first_rank(world_, [&] { std::filesystem::remove_all(folder); });
    HubWriter writer(folder, hub_config_of(model), hub_entries(paths, shapes, model), dtype,
                     world_.rank() == 0 ? hub_tokenizer(config_.model.tokenizer()) : HubTokenizer(), world_);
    write_hub(writer, tensors, world_);
    return folder;
}

}  // namespace coeus
