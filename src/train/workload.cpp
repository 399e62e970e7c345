// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/workload.hpp"

#include "coeus/base/counted.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/file/host_error.hpp"
#include "coeus/train/document_balance.hpp"
#include "coeus/train/evaluator.hpp"
#include "coeus/train/training_data.hpp"
#include "coeus/train/validation_prompts.hpp"
#include "coeus/train/validation_tasks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace coeus {

namespace {

// Whether documents alone limit the tokens that a token attends to, in all layers.
bool attends_to_all_before(const DecoderConfig& model) {
    return model.head_sizes().window == 0 && (model.is_latent() || model.grouped().chunk == 0);
}

class TextWorkload : public Workload {
public:
    TextWorkload(const Config& config, const DecoderConfig& model, const std::filesystem::path& cache_folder,
                 const Communicator& world, int threads)
        : config_(&config),
          data_(config, model.vocab, cache_folder, world, threads),
          heads_would_balance_(attends_to_all_before(model) &&
                               ModelConfig(model)
                                   ->refusal({.tensor = config.parallelism.tensor_parallel_degree,
                                              .context = config.parallelism.context_parallel_degree,
                                              .expert = config.parallelism.expert_parallel_degree,
                                              .context_by_heads = true})
                                   .empty()) {
        if (data_.validation()) evaluator_.emplace(config, *data_.validation(), data_.validation_names());
        if (!config.validation.tasks.empty()) tasks_.emplace(config, model, world);
        if (config.validation.prompts.empty()) return;
        prompts_.emplace(config, model, world);
        data_ranks_ = mesh_shape(config, world.size()).size(axis::dp);
    }

    void set_shuffled(bool shuffled) override { data_.set_shuffled(shuffled); }
    std::unique_ptr<StepReader> reader() const override {
        return std::make_unique<TokenReader>(data_.training(), config_->training.document_mask);
    }
    int64_t tokens_per_sample() const override { return data_.training().seq_len(); }
    int64_t samples_per_epoch() const override { return data_.training().num_windows(); }

    ConfigError nothing_counts(int64_t step, int64_t first, int64_t last) const override {
        return ConfigError(
            "step {}: no token is a label, so there is no loss (samples {} to {}); check /loss_mask of the "
            "training data",
            step, first, last);
    }

    bool validates() const override { return evaluator_.has_value(); }
    std::optional<ValidationMetrics> validate(Engine& engine, int64_t step,
                                              FunctionRef<bool()> goes_on) override {
        require(evaluator_.has_value(), "a workload without validation cannot validate");
        std::optional<ValidationMetrics> metrics = evaluator_->run(engine, goes_on);
        if (metrics && tasks_) {
            const auto tasks = tasks_->run(engine, goes_on);
            if (!tasks) return std::nullopt;
            metrics->tasks = *tasks;
        }
        if (metrics && prompts_) {
            const auto samples = prompts_->run(engine, step, goes_on);
            if (!samples) return std::nullopt;
            metrics->samples = *samples;
        }
        return metrics;
    }

    std::string summary() const override {
        if (!prompts_) return data_.summary();
        return data_.summary() + "; " + prompts_->cost(data_ranks_, evaluator_->batches(data_ranks_));
    }
    std::string passes(int64_t samples) const override { return data_.passes(samples); }
    std::string sources() const override { return data_.sources(); }
    std::vector<std::string> notices() const override {
        std::vector<std::string> lines = data_.notices();
        if (std::string line = notice_of_balance(); !line.empty()) lines.push_back(std::move(line));
        return lines;
    }
    std::optional<double> bytes_per_token() const override { return data_.bytes_per_token(); }
    std::optional<double> validation_bytes_per_token() const override {
        return data_.validation_bytes_per_token();
    }
    void require_encoding_of(const std::string& path) const override {
        data_.require_tokenizer_of(path, config_->model.tokenizer());
    }

private:
    // Whether context-parallel ranks have unequal work, with what helps; "" if they have not, or if nothing
    // does.
    std::string notice_of_balance() const {
        const auto& p = config_->parallelism;
        const auto ranks = int(p.context_parallel_degree);
        constexpr int64_t most_samples = 64;
        constexpr double tolerated = 1.1;
        if (ranks == 1 || !config_->training.document_mask || !heads_would_balance_ ||
            p.context_parallel_rotate_method == "heads")
            return "";
        const int64_t together = p.pipeline_parallel_degree > 1 ? p.pipeline_parallel_microbatch_size
                                                                : config_->training.local_batch_size;
        DocumentBalance balance(
            ranks, p.context_parallel_load_balancer == "headtail" ? Balancing::head_tail : Balancing::none);
        TokenReader reader(data_.training());
        reader.reserve(together);
        const int64_t samples = std::min(most_samples, samples_per_epoch()) / together * together;
        for (int64_t first = 0; first < samples; first += together)
            balance.add(reader.read(first, together, 0).samples.text);
        const double busiest = balance.busiest_over_mean();
        if (busiest < tolerated) return "";
        return fmt::format(
            "documents divide the attention of context-parallel ranks unequally: in {}, the busiest rank has "
            "{:.2f} times the mean; with parallelism.context_parallel_rotate_method = \"heads\" all have the "
            "same",
            counted(samples, "sample"), busiest);
    }

    const Config* config_;
    TrainingData data_;
    bool heads_would_balance_;
    std::optional<Evaluator> evaluator_;
    std::optional<ValidationTasks> tasks_;
    std::optional<ValidationPrompts> prompts_;
    int64_t data_ranks_ = 1;
};

// There is one kind of samples so far, text, which decoders read.
const DecoderConfig& text_model(const ModelConfig& model) {
    return require_decoder(model, "training on text");
}

}  // namespace

DataCheck check_samples(const Config& config, const ModelConfig& model, const std::string& weights) {
    const DecoderConfig& decoder = text_model(model);
    DataCheck found = check_data(config, decoder.vocab, weights);
    const std::string tokenizer = config.model.tokenizer();
    const auto check = [&](const char* option, const auto& read) {
        if (config.validation.enable && !exists_patiently(tokenizer)) {
            if (found.absent.empty())  // else the data or another option needs it too
                found.absent.push_back(
                    fmt::format("the tokenizer \"{}\" (model.hf_assets_path): this file or folder does not "
                                "exist here; a run needs it to encode {}",
                                tokenizer, option));
            return;
        }
        try {
            read(config, decoder);
        } catch (const std::runtime_error& error) {
            (is_of_this_host(error) ? found.failed : found.errors).emplace_back(error.what());
        }
    };
    if (!config.validation.tasks.empty()) check("validation.tasks", read_validation_tasks);
    if (!config.validation.prompts.empty()) check("validation.prompts", read_validation_prompts);
    return found;
}

std::unique_ptr<Workload> make_workload(const Config& config, const ModelConfig& model,
                                        const std::filesystem::path& cache_folder, const Communicator& world,
                                        int threads) {
    return std::make_unique<TextWorkload>(config, text_model(model), cache_folder, world, threads);
}

}  // namespace coeus
