// SPDX-License-Identifier: Apache-2.0
// coeus evaluate PLACE FILE...: scores the requests and documents of files with the weights of a checkpoint,
// of a run or of a Hugging Face folder, on any mesh. Rank 0 reads the files and prints the results.
#include "evaluate.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/counted.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "coeus/base/text.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/evaluate/results.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "coeus/session/session.hpp"
#include "coeus/train/evaluator.hpp"
#include "coeus/train/training_data.hpp"
#include "coeus/watchdog/watchdog.hpp"
#include "command_line/deck_arguments.hpp"
#include "evaluation/run_weights.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace coeus::apps {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds between_looks{2};  // for further checkpoints

std::string steps_of(const std::vector<StepFile>& files) {
    std::vector<std::string> steps;
    for (const StepFile& file : files) steps.push_back(std::to_string(file.step));
    return steps.empty() ? "none" : join(steps, ", ");
}

/// One evaluation on the ranks of a world.
class Evaluation {
public:
    Evaluation(const Asked& asked, const Arguments& deck_arguments, const MpiRuntime& mpi)
        : asked_(asked), mpi_(mpi), world_(Communicator::world("evaluation")), rules_(deck_rules()) {
        rules_.needs_data = false;
        rules_.check_degrees = nullptr;  // the model is not that of a deck
        Arguments arguments = deck_arguments;
        // the length of rows is chosen later; this one has enough divisors for any mesh
        arguments.emplace_back(fmt::format("--training.seq_len={}", 4096 * 9 * 5 * 7));
        machine_ = parse_by_rules(arguments, rules_, world_).config;
        mpi_.require_all_tasks();
        source_.emplace(first_place(), world_);
        weights_ = weights_of(world_, *source_);
        model_ = source_->model();
        model_.mtp.layers = 0;  // they are only trained
        choose_sizes();
        if (!asked_.training_windows) read_files();
        config_ = deck_for(machine_, rules_, weights_, asked_, options_.row_length, !options_.one_in_a_row);
    }

    void run() {
        Watchdog watchdog(config_.comm, mpi_);
        watchdog.guard([&] { run(watchdog); });
    }

private:
    bool is_first() const { return world_.rank() == 0; }

    // A run that is followed may not have saved yet.
    void wait_for_checkpoint() const {
        for (bool told = false;;) {
            std::string found;
            on_first_rank(world_, [&] {
                if (!is_folder_patiently(asked_.place)) {
                    found = "not a folder";
                    return;
                }
                try {
                    found = newest_weights(asked_.place);
                } catch (const ConfigError&) {
                    if (!told) log::info("Waiting for the first checkpoint of {}", asked_.place);
                    told = true;
                }
            });
            if (!broadcast_text(world_, found).empty()) return;
            std::this_thread::sleep_for(between_looks);
        }
    }

    // With --steps or --follow: the first checkpoint to evaluate is not the newest one.
    std::string first_place() {
        if (!asked_.several()) return asked_.place;
        if (asked_.follow) wait_for_checkpoint();
        std::string path;
        on_first_rank(world_, [&] {
            checkpoints_ = folder_of_checkpoints();
            const std::vector<StepFile> files =
                asked_.follow ? list_checkpoints(checkpoints_) : files_asked_for(true);
            if (files.empty())
                throw ConfigError("{}: has no checkpoints of steps, only weights", checkpoints_);
            path = files.front().path;
        });
        return broadcast_text(world_, path);
    }

    // The folder with the checkpoints of a run.
    std::string folder_of_checkpoints() const {
        const fs::path newest = is_hub_folder(asked_.place) ? "" : Pretrained(asked_.place).path();
        if (newest.empty())
            throw ConfigError(
                "{}: --steps and --follow need the folder of a run; this is a Hugging Face folder",
                asked_.place);
        return newest.parent_path().string();
    }

    // `all`: each step of --steps must be there. Later a run may have removed it, or may not have saved it
    // yet.
    std::vector<StepFile> files_asked_for(bool all) const {
        std::vector<StepFile> files = list_checkpoints(checkpoints_);
        if (asked_.follow && asked_.steps.empty()) return files;
        if (asked_.steps == "all") return files;
        std::vector<StepFile> chosen;
        for (size_t begin = 0; begin <= asked_.steps.size();) {
            const size_t end = std::min(asked_.steps.find(',', begin), asked_.steps.size());
            const std::string word = asked_.steps.substr(begin, end - begin);
            begin = end + 1;
            if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos || word.size() > 15)
                throw ConfigError("--steps {}: must be all, or numbers of steps such as 100,200",
                                  asked_.steps);
            const int64_t step = std::stoll(word);
            const auto found = std::ranges::find(files, step, &StepFile::step);
            if (found != files.end())
                chosen.push_back(*found);
            else if (all)
                throw ConfigError(
                    "--steps {0}: there is no checkpoint of step {0} in {1}; existing steps: {2}", step,
                    checkpoints_, steps_of(files));
        }
        return chosen;
    }

    void choose_sizes() {
        const int64_t most = model_.max_seq_len;
        if (asked_.context > most)
            throw ConfigError("--context {}: this model has at most {} positions", asked_.context, most);
        options_.context = asked_.context > 0 ? asked_.context : std::min(source_->trained_seq_len(), most);
        options_.stride = asked_.stride > 0 ? asked_.stride : options_.context;
        if (options_.stride > options_.context)
            throw ConfigError("--stride {}: must be at most the context, {}", options_.stride,
                              options_.context);
        options_.sequences = asked_.batch;
        options_.one_in_a_row = needs_row_for_each(model_);
        options_.row_length =
            asked_.training_windows
                ? options_.context
                : row_length_for(model_, options_.context, machine_.parallelism.tensor_parallel_degree,
                                 machine_.parallelism.context_parallel_degree);
        if (asked_.training_windows && weights_.deck.empty())
            throw ConfigError(
                "--windows training: needs a checkpoint of a run, whose deck says how it "
                "validates; {} is a Hugging Face folder",
                source_->path());
    }

    std::string tokenizer_place() const {
        return asked_.tokenizer.empty() ? source_->tokenizer_folder() : asked_.tokenizer;
    }

    void read_files() {
        on_first_rank(world_, [&] {
            if (asked_.tokenizer.empty() && !exists_patiently(tokenizer_place()))
                throw ConfigError(
                    "{} was trained with the tokenizer \"{}\" (model.hf_assets_path of its deck), which was "
                    "not found from the current folder; give it with --tokenizer PATH",
                    source_->path(), tokenizer_place());
            const Tokenizer tokenizer(tokenizer_place());
            if (tokenizer.vocab_size() > model_.vocab)
                throw ConfigError("--tokenizer {}: has {} tokens, but the model's vocabulary only {}",
                                  tokenizer.folder(), tokenizer.vocab_size(), model_.vocab);
            tasks_ = read_tasks(asked_.files, tokenizer,
                                {.context = options_.context,
                                 .add_bos = asked_.add_bos,
                                 .delimiter = asked_.delimiter,
                                 .limit = asked_.limit});
        });
    }

    void run(Watchdog& watchdog) {
        StartUp start_up;
        Rank rank(config_, mpi_, start_up);
        watchdog.set_gpu(rank.device().bus_id());
        Session session(config_, rank, start_up, model_);
        const Session::Ending ending(session);
        std::optional<TrainingData> data;
        if (asked_.training_windows) {
            config_ = with_settings(config_, rules_, data_settings());
            data.emplace(config_, model_.vocab, data_folder(), world_, rank.cpu().cores);
        } else {
            scoring_.emplace(tasks_, options_, world_);
        }
        session.require_fits();
        session.take_memory(watchdog.nccl());
        if (is_first()) {
            for (const std::string& line : session.device_lines()) log::info("{}", line);
            for (const std::vector<std::string>& warnings :
                 {rank.choice().warnings(), rank.choice().transport().warnings})
                for (const std::string& line : warnings) log::warn("{}", line);
        }
        if (!asked_.several()) {
            load(session);
            return data ? validate(session, *data) : score(session, {});
        }
        evaluate_steps(session, data);
    }

    void load(Session& session) const {
        source_->load(decoder_of(session.engine().model()), world_);
        session.engine().renew_weights();
    }

    fs::path data_folder() const {
        return fs::path(weights_.run_folder.empty() ? "." : weights_.run_folder) / "data";
    }
    // The files take the place of those in the deck: of the validation data, or of the training data of which
    // a part was held out.
    std::vector<std::string> data_settings() const {
        std::vector<std::string> names;
        for (const std::string& file : asked_.files) names.push_back(toml_of(file));
        const std::string list = "[" + join(names, ", ") + "]";
        std::vector<std::string> settings = {"training.dataset_path = " + list,
                                             "model.tokenizer_path = " + toml_of(tokenizer_place())};
        const Config::Validation& validation = config_.validation;
        const bool held_out = validation.dataset_path.empty();
        for (const std::string& line : weights_.deck)
            if (line.starts_with("training.bos_id ") || line.starts_with("training.eos_id ") ||
                (held_out &&
                 (line.starts_with("training.dataset_weights ") || line.starts_with("training.text_field "))))
                settings.push_back(line);
        if (!held_out)  // the training data, which nobody reads, are the same files
            settings.insert(settings.end(), {"validation.dataset_path = " + list,
                                             "training.text_field = " + toml_of(validation.text_field),
                                             "training.bad_lines = " + toml_of(validation.bad_lines)});
        return settings;
    }

    void describe(const Session& session) const {
        const Engine& engine = session.engine();
        fmt::print("Evaluating {} ({} parameters, {}) on {}, context {}: {} in {} of {}\n", weights_.path,
                   with_commas(session.model()->parameters()), name_of(engine.options().types.compute),
                   counted(world_.size(), "rank"), with_commas(options_.context),
                   counted(scoring_->requests(), "request"), counted(scoring_->rows(), "row"),
                   counted(options_.row_length, "place"));
        std::fflush(stdout);
    }

    // `left_out`: tasks that have results of this step already.
    void score(Session& session, const std::set<std::string>& left_out) {
        if (is_first()) describe(session);
        const Timer timer;
        scoring_->run(session.engine());
        const double seconds = timer.seconds();
        on_first_rank(world_, [&] {
            std::vector<TaskResult> results = results_of(tasks_, *scoring_);
            fmt::print("{}", table_of(results, asked_.by_position));
            if (!asked_.output.empty()) {
                const Json config = Json::object()
                                        .set("model", weights_.path)
                                        .set("dtype", name_of(session.engine().options().types.compute))
                                        .set("max_length", options_.context)
                                        .set("stride", options_.stride)
                                        .set("limit", asked_.limit > 0 ? Json(asked_.limit) : Json());
                write_json(json_of(results, config, asked_.by_position), asked_.output);
            }
            if (!asked_.samples.empty()) write_whole_file(asked_.samples, samples_of(results));
            std::erase_if(results,
                          [&](const TaskResult& result) { return left_out.contains(result.task->name); });
            std::vector<std::string> written;
            for (const std::string& file : {asked_.output, asked_.samples})
                if (!file.empty()) written.push_back(file);
            if (!weights_.run_folder.empty() && asked_.limit == 0) {  // a trial is not a result of the run
                const fs::path history = fs::path(weights_.run_folder) / evaluation_file;
                append_to(history, weights_.step, results);
                written.push_back(history.string());
            }
            fmt::print("{}{:.0f} tokens/s\n", written.empty() ? "" : "wrote " + join(written, ", ") + "; ",
                       double(scoring_->tokens()) / seconds);
            std::fflush(stdout);
        });
    }

    void validate(Session& session, const TrainingData& data) const {
        Evaluator evaluator(config_, *data.validation());
        const auto metrics = evaluator.run(session.engine(), [] { return true; });
        if (is_first())
            fmt::print("{}: validation_loss {} ({} tokens, {:.0f} tokens/s)\n", weights_.path,
                       Json(metrics->loss).text(), with_commas(metrics->tokens),
                       double(metrics->tokens) / metrics->seconds);
    }

    // Takes another checkpoint of the run. False: it is not there any more.
    bool take(const StepFile& file) {
        try {
            source_.emplace(file.path, world_);
            weights_ = weights_of(world_, *source_);
        } catch (const ConfigError&) {
            if (is_there(file.path)) throw;
            return false;
        }
        DecoderConfig model = source_->model();
        model.mtp.layers = 0;
        if (!(model == model_))
            throw ConfigError("{}: is of another model than the checkpoints before it", file.path);
        return true;
    }
    bool is_there(const std::string& path) const {
        return broadcast_text(world_, is_first() && exists_patiently(path) ? "yes" : "") == "yes";
    }

    // A checkpoint whose tasks have no results yet; its step is -1 if there is none.
    StepFile next_file(const std::set<int64_t>& done) const {
        std::vector<std::string> texts = {"-1", ""};
        on_first_rank(world_, [&] {
            for (const StepFile& file : files_asked_for(false))
                if (!done.contains(file.step)) {
                    texts = {std::to_string(file.step), file.path};
                    return;
                }
        });
        texts = broadcast_texts(world_, texts);
        return {std::stoll(texts[0]), texts[1]};
    }

    std::set<std::string> tasks_with_results(int64_t step) const {
        std::set<std::string> names;
        if (weights_.run_folder.empty()) return names;
        const auto all = evaluated_in(fs::path(weights_.run_folder) / evaluation_file);
        for (const Task& task : tasks_)
            if (all.contains({step, task.name})) names.insert(task.name);
        return names;
    }

    // A run owns its folder while it lives.
    bool run_has_ended() const {
        const bool lives = is_first() && exists_patiently(fs::path(weights_.run_folder) / ".owner");
        return broadcast_text(world_, lives ? "lives" : "").empty();
    }

    void evaluate_steps(Session& session, const std::optional<TrainingData>& data) {
        std::set<int64_t> done;
        for (;;) {
            const bool ended = !asked_.follow || run_has_ended();  // before the last look for checkpoints
            const StepFile file = next_file(done);
            if (file.step < 0) {
                if (ended || (!done.empty() && *done.rbegin() >= weights_.last_step)) return;
                std::this_thread::sleep_for(between_looks);
                continue;
            }
            done.insert(file.step);
            evaluate_step(session, data, file);
        }
    }

    void evaluate_step(Session& session, const std::optional<TrainingData>& data, const StepFile& file) {
        std::set<std::string> known;
        std::string skipped;
        on_first_rank(world_, [&] {
            known = tasks_with_results(file.step);
            if (!tasks_.empty() && known.size() == tasks_.size()) skipped = "yes";
        });
        if (broadcast_text(world_, skipped) == "yes") {
            if (is_first()) fmt::print("Step {} has results already\n", file.step);
            return;
        }
        bool loaded = take(file);
        if (loaded) {
            try {
                load(session);
            } catch (const std::runtime_error&) {
                if (is_there(file.path)) throw;
                loaded = false;
            }
        }
        if (!loaded) {
            if (is_first())
                log::warn("{} was removed meanwhile (checkpoint.keep_latest_k), and is not evaluated",
                          file.path);
            return;
        }
        data ? validate(session, *data) : score(session, known);
    }

    const Asked& asked_;
    const MpiRuntime& mpi_;
    Communicator world_;
    DeckRules rules_;
    Config machine_, config_;
    std::string checkpoints_;  // the folder; on rank 0 only
    std::optional<Pretrained> source_;
    Weights weights_;
    DecoderConfig model_;
    ScoringOptions options_;
    std::vector<Task> tasks_;  // on rank 0 only
    std::optional<Scoring> scoring_;
};

}  // namespace

int evaluate(const Arguments& arguments) {
    const DeckArguments split_arguments = split_deck_arguments(arguments);
    Flags flags = evaluate_flags();
    flags.parse(split_arguments.own);
    const Asked asked = asked_by(flags);
    require_options_of_machine(split_arguments.deck);
    set_read_patience(run_patience);
    const MpiRuntime mpi(nullptr, nullptr);
    log::init({.rank = mpi.world_rank()});
    Evaluation(asked, split_arguments.deck, mpi).run();
    return 0;
}

Flags evaluate_help() {
    return evaluate_flags();
}

}  // namespace coeus::apps
