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
#include "coeus/file/folder_owner.hpp"
#include "coeus/file/raw_file.hpp"
#include "coeus/io/checkpoint.hpp"
#include "coeus/metrics/run_folder.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "coeus/pretrained/tokenizer_of.hpp"
#include "coeus/report/report.hpp"
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
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace coeus::apps {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds between_looks{2};  // for further checkpoints

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
        weights_ = weights_of(world_, *source_, asked_.place);
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

    static bool names_a_file(const fs::path& place) {
        return place.extension() == ".h5" || place.extension() == ".toml";
    }

    // A run that is followed may not have saved yet, or not have begun.
    void wait_for_checkpoint() const {
        std::optional<FolderOwner> owner;
        for (bool told = false, seen = false;;) {
            std::string found;
            on_first_rank(world_, [&] {
                if (!leads_somewhere(asked_.place) && !names_a_file(asked_.place)) {
                    if (!told) log::info("{} does not exist yet: waiting for the run", asked_.place);
                    told = true;
                    return;
                }
                if (!is_folder_patiently(asked_.place) || is_hub_folder(asked_.place)) {
                    found = "not the folder of a run";
                    return;
                }
                if (!owner) owner.emplace(asked_.place, FolderOwner::Who::self());
                const bool used = owner->is_used();  // before the look for checkpoints
                try {
                    found = newest_weights(asked_.place);
                } catch (const ConfigError&) {
                    if (seen && !used)
                        throw ConfigError("{}: the run has ended and has saved no checkpoint", asked_.place);
                    seen = used;
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
            owner_.emplace(checkpoints_, FolderOwner::Who::self());
            files_ = list_checkpoints(checkpoints_);
            if (files_.empty())
                throw ConfigError("{}: has no checkpoints of steps, only weights", checkpoints_);
            path = files_.front().path;  // for the model, if the checkpoint asked for is not saved yet
            if (asked_.follow && owner_->is_used()) return;
            require_steps();
            if (!asked_.steps.empty())
                std::erase_if(files_, [&](const StepFile& file) { return !is_asked_for(file); });
            path = files_.front().path;
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

    bool is_asked_for(const StepFile& file) const {
        return asked_.steps.empty() || std::ranges::count(asked_.steps, file.step) > 0;
    }

    void require_steps() const {
        for (const int64_t step : asked_.steps) {
            if (std::ranges::count(files_, step, &StepFile::step) > 0) continue;
            std::vector<std::string> there;
            for (const StepFile& file : files_) there.push_back(std::to_string(file.step));
            throw ConfigError("--steps {0}: {1} has no checkpoint of step {0}; existing steps: {2}", step,
                              checkpoints_, join(there, ", "));
        }
    }

    void choose_sizes() {
        const int64_t most = model_.max_seq_len;
        if (asked_.context > most)
            throw ConfigError("--context {}: this model has at most {} positions", asked_.context, most);
        usual_context_ = std::min(source_->trained_seq_len(), most);
        options_.context = asked_.context > 0 ? asked_.context : usual_context_;
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
            const Tokenizer tokenizer = tokenizer_of(*source_, asked_.tokenizer);
            if (const std::string usual = source_->tokenizer_folder();
                !asked_.tokenizer.empty() && Tokenizer::is_at(usual) &&
                Tokenizer(usual).hash() != tokenizer.hash())
                other_tokenizer_ = tokenizer.hash();
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
            const Config with_data = deck_of_data(config_, rules_, weights_, asked_, tokenizer_place());
            data.emplace(with_data, model_.vocab, data_folder(), world_, rank.cpu().cores);
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
            return data ? validate(session, *data) : score(session);
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

    void describe(const Session& session) const {
        const Engine& engine = session.engine();
        fmt::print("Evaluating {} ({} parameters, {}) on {}, context {}: {} in {} of {}\n", weights_.path,
                   with_commas(session.model()->parameters()), name_of(engine.options().types.compute),
                   counted(world_.size(), "rank"), with_commas(options_.context),
                   counted(scoring_->requests(), "request"), counted(scoring_->rows(), "row"),
                   counted(options_.row_length, "place"));
        std::fflush(stdout);
    }

    // What differs from the defaults, as evaluation.jsonl has it.
    Json settings() const {
        Json settings = Json::object();
        if (!other_tokenizer_.empty()) settings.set("tokenizer", other_tokenizer_);
        const bool usual = asked_.dtype == "bfloat16" && !was_in_8_bits(weights_);
        if (!asked_.dtype.empty() && !usual) settings.set("dtype", asked_.dtype);
        if (options_.context != usual_context_) settings.set("context", options_.context);
        if (options_.stride != options_.context) settings.set("stride", options_.stride);
        if (asked_.add_bos != AddBos::by_template)
            settings.set("add_bos_token", asked_.add_bos == AddBos::always);
        if (asked_.delimiter != " ") settings.set("delimiter", asked_.delimiter);
        return settings;
    }

    ResultsOf results_of_weights() const {
        return {.step = weights_.step, .weights = weights_.id, .settings = settings()};
    }
    const std::vector<Task>& scored_tasks() const { return left_out_.empty() ? tasks_ : part_; }

    void score(Session& session) {
        if (is_first()) describe(session);
        const Timer timer;
        scoring_->run(session.engine());
        const double seconds = timer.seconds();
        on_first_rank(world_, [&] {
            const std::vector<TaskResult> results = results_of(scored_tasks(), *scoring_);
            fmt::print("{}", table_of(results, asked_.by_position));
            std::vector<std::string> written;
            if (!weights_.run_folder.empty() && asked_.limit == 0) {  // a trial is not a result of the run
                const fs::path history = fs::path(weights_.run_folder) / evaluation_file;
                append_to(history, results_of_weights(), results);
                written.push_back(history.string());
                renew_page();
            }
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
            for (const std::string& file : {asked_.output, asked_.samples})
                if (!file.empty()) written.push_back(file);
            if (!source_->is_hub() && weights_.run_folder.empty() && asked_.limit == 0)
                log::info(
                    "Notice: no {} is written: {} is not in the folder of checkpoints of a run that is known "
                    "here (checkpoint.folder in its deck.toml)",
                    evaluation_file, weights_.path);
            fmt::print("{}{:.0f} tokens/s\n", written.empty() ? "" : "wrote " + join(written, ", ") + "; ",
                       double(scoring_->tokens()) / seconds);
            std::fflush(stdout);
        });
    }

    // A run that has ended has a page of plots, which should have the results too.
    void renew_page() const {
        const fs::path run = weights_.run_folder;
        if (is_file_patiently(run / page_file)) write_page_of(run);
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
            weights_ = weights_of(world_, *source_, asked_.place);
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
        return holds_on_first([&] { return exists_patiently(path); });
    }

    // When a checkpoint was written: one of the same step that is written later is another.
    static fs::file_time_type written(const StepFile& file) {
        std::error_code gone;
        return fs::last_write_time(file.path, gone);
    }

    // A checkpoint that is asked for and not done, which counts as done from now on; its step is -1 if there
    // is none.
    StepFile next_file() {
        std::vector<std::string> texts = {"-1", ""};
        on_first_rank(world_, [&] {
            if (asked_.follow) files_ = list_checkpoints(checkpoints_);
            for (const StepFile& file : files_) {
                if (!is_asked_for(file)) continue;
                const fs::file_time_type time = written(file);
                if (const auto done = done_.find(file.step); done != done_.end() && done->second == time)
                    continue;
                done_[file.step] = time;
                texts = {std::to_string(file.step), file.path};
                return;
            }
        });
        texts = broadcast_texts(world_, texts);
        return {std::stoll(texts[0]), texts[1]};
    }

    // Leaves out the tasks that have results of these weights. False: there are no others.
    bool choose_tasks() {
        std::string choice;
        on_first_rank(world_, [&] {
            std::set<std::string> known;
            if (!weights_.run_folder.empty() && !asked_.again && asked_.limit == 0)
                known = evaluated_in(fs::path(weights_.run_folder) / evaluation_file, results_of_weights(),
                                     tasks_);
            const auto is_missing = [&](const Task& task) {
                return !task.lines.empty() && !known.contains(task.name);
            };
            const int64_t missing = std::ranges::count_if(tasks_, is_missing);
            if (!known.empty())
                fmt::print("Step {} has results{} already\n", weights_.step,
                           missing == 0 ? "" : " of " + counted(int64_t(known.size()), "task"));
            choice = missing == 0 ? "none" : known == left_out_ ? "as before" : "others";
            if (choice != "others") return;
            left_out_ = known;
            part_.clear();
            if (known.empty()) return;
            for (const Task& task : tasks_)
                if (!known.contains(task.name)) part_.push_back(task);
        });
        choice = broadcast_text(world_, choice);
        if (choice == "others") scoring_.emplace(scored_tasks(), options_, world_);
        return choice != "none";
    }

    // What rank 0 finds, on every rank.
    bool holds_on_first(FunctionRef<bool()> holds) const {
        std::string text;
        on_first_rank(world_, [&] { text = holds() ? "yes" : ""; });
        return !broadcast_text(world_, text).empty();
    }
    // A run owns the folder of its checkpoints while it lives.
    bool run_has_ended() {
        return holds_on_first([&] { return !owner_->is_used(); });
    }

    // On rank 0.
    bool has_all() const {
        return !asked_.steps.empty() &&
               std::ranges::all_of(asked_.steps, [&](int64_t step) { return done_.contains(step); });
    }
    // What a run that has ended leaves undone.
    void tell_end() const {
        if (!is_first()) return;
        for (const int64_t step : asked_.steps)
            if (!done_.contains(step))
                log::warn("--steps {}: the run has ended and left no checkpoint of this step", step);
        if (!asked_.follow || !asked_.steps.empty() || done_.empty()) return;
        const int64_t last = done_.rbegin()->first, planned = planned_steps(weights_);
        const std::string model = CheckpointFolder(checkpoints_, 0).model_path_of(planned);
        if (last >= planned) return;
        if (exists_patiently(model))
            log::warn(
                "{} has only weights and is not evaluated; `coeus evaluate {}` does it, and "
                "checkpoint.last_save_model_only = false saves a checkpoint of the last step",
                model, model);
        else
            log::warn(
                "the run has ended at step {} of {}; start `coeus evaluate {} ... --follow` again when it "
                "continues: what has results is skipped",
                last, planned, asked_.place);
    }

    void evaluate_steps(Session& session, const std::optional<TrainingData>& data) {
        for (bool told = false;;) {
            const bool ended = !asked_.follow || run_has_ended();  // before the last look for checkpoints
            const StepFile file = next_file();
            if (file.step >= 0) {
                evaluate_step(session, data, file);
                continue;
            }
            if (ended || holds_on_first([&] { return has_all(); })) return tell_end();
            if (is_first() && !told) log::info("Waiting for further checkpoints in {}", checkpoints_);
            told = true;
            std::this_thread::sleep_for(between_looks);
        }
    }

    void evaluate_step(Session& session, const std::optional<TrainingData>& data, const StepFile& file) {
        bool loaded = take(file);
        if (loaded && !data && !choose_tasks()) return;
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
        data ? validate(session, *data) : score(session);
    }

    const Asked& asked_;
    const MpiRuntime& mpi_;
    Communicator world_;
    DeckRules rules_;
    Config machine_, config_;
    // of a run, on rank 0 only: the folder of checkpoints, its owner, and its checkpoints
    std::string checkpoints_;
    std::optional<FolderOwner> owner_;
    std::vector<StepFile> files_;
    std::map<int64_t, fs::file_time_type> done_;  // by step: when the checkpoint was written
    std::optional<Pretrained> source_;
    Weights weights_;
    DecoderConfig model_;
    ScoringOptions options_;
    int64_t usual_context_ = 0;  // without --context
    std::vector<Task> tasks_;    // on rank 0 only
    // of a checkpoint, on rank 0 only: tasks that have results already, and the others
    std::set<std::string> left_out_;
    std::vector<Task> part_;
    std::string other_tokenizer_;  // its hash, on rank 0 only; "": that of the run
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
