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

Flags evaluate_flags() {
    Flags flags(
        "evaluate", "PLACE FILE... [--parallelism.option=value ...]", "a checkpoint and a file",
        "Scores texts with a trained model and prints lm-evaluation-harness's metrics.\n"
        "PLACE: a checkpoint, a run's folder, or a Hugging Face folder. On several ranks: mpirun -n RANKS "
        "coeus evaluate ...\n"
        "FILE: text (a document), a token file, or JSON Lines, whose fields say what a line asks for:\n"
        "  query, choices, gold                  the most likely choice\n"
        "  context_options, continuation, gold   the context after which the continuation is most likely\n"
        "  context, continuation                 the probability of the continuation\n"
        "  text                                  the probability of a document\n"
        "Each may have `task` (else the file's name), `id` and `delimiter`. The metrics of a run's "
        "checkpoint "
        "are also appended to evaluation.jsonl in the run's folder, which `coeus report` draws.");
    flags.add("tokenizer", "PATH", "", "tokenizer; default: that of the checkpoint's deck, or of the folder")
        .add(
            "dtype", "TYPE", "",
            "bfloat16, float32 or float64; default: bfloat16, with the run's layers in 8 bits; for --windows "
            "training that of the run")
        .add("context", "N", "0", "the most ids that the model sees; 0: the sequence length of training")
        .add("stride", "N", "0", "ids of a document that each further window scores; 0: the context")
        .add("batch", "N", "4", "rows of `context` ids at a time on each data rank")
        .add("add_bos_token", "auto|true|false", "auto",
             "whether texts begin with BOS; auto: as the tokenizer's template says, but BOS of a document is "
             "not scored")
        .add("delimiter", "TEXT", " ", "between a query and a choice")
        .add("limit", "N", "0", "only the first N lines of each file; 0: all")
        .add("windows", "documents|training", "documents",
             "training: the loss of the windows of validation, as the run computed it")
        .add("output", "FILE.json", "", "write the results with lm-evaluation-harness's keys")
        .add("samples", "FILE.jsonl", "", "write the scores of each line")
        .add_switch("by_position", "also the losses of documents by the position of the token")
        .add("steps", "all|100,200", "", "evaluate these checkpoints of a run that have no results yet")
        .add_switch("follow",
                    "the same, and wait for further checkpoints until the run's last step or its end")
        .add_force();
    return flags;
}

// What the command line asks for.
struct Asked {
    std::string place;
    std::vector<std::string> files;
    std::string tokenizer, dtype, output, samples, steps;
    int64_t context, stride, batch, limit;
    AddBos add_bos;
    std::string delimiter;
    bool training_windows, by_position, follow;

    bool several() const { return !steps.empty() || follow; }
};

Asked asked_by(const Flags& flags) {
    if (flags.words().size() < 2)
        throw ConfigError("coeus evaluate: needs a checkpoint and at least one file, but got only {}",
                          flags.words()[0]);
    const std::string& bos = flags.choice("add_bos_token", {"auto", "true", "false"});
    Asked asked = {
        .place = flags.words()[0],
        .files = {flags.words().begin() + 1, flags.words().end()},
        .tokenizer = flags.text("tokenizer"),
        .dtype = flags.given("dtype") ? flags.choice("dtype", {"bfloat16", "float32", "float64"}) : "",
        .output = flags.text("output"),
        .samples = flags.text("samples"),
        .steps = flags.text("steps"),
        .context = flags.integer("context", 0, INT32_MAX),
        .stride = flags.integer("stride", 0, INT32_MAX),
        .batch = flags.integer("batch", 1, 65536),
        .limit = flags.integer("limit", 0),
        .add_bos = bos == "auto"   ? AddBos::by_template
                   : bos == "true" ? AddBos::always
                                   : AddBos::never,
        .delimiter = flags.text("delimiter"),
        .training_windows = flags.choice("windows", {"documents", "training"}) == "training",
        .by_position = flags.given("by_position"),
        .follow = flags.given("follow")};
    for (const char* name : {"output", "samples"}) {
        if (!flags.given(name)) continue;
        if (asked.several() || asked.training_windows)
            throw ConfigError("--{} is for one checkpoint and --windows documents; {}", name,
                              asked.several() ? "the results of several are in evaluation.jsonl of the run"
                                              : "--windows training gives one number");
        flags.require_replaceable(flags.text(name));
    }
    flags.require_different_files("output", "samples");
    return asked;
}

// The options of a deck that this command takes: where and how it computes.
void require_options_of_machine(const Arguments& arguments) {
    for (const std::string& argument : arguments) {
        const bool known = argument.starts_with("--device") || argument.starts_with("--parallelism.") ||
                           argument.starts_with("--comm.") || argument.starts_with("--kernels.") ||
                           argument.starts_with("--training.threads") || argument.starts_with("--log.");
        if (!known)
            throw ConfigError(
                "{}: coeus evaluate takes the model from its place; of a deck it takes only --device, "
                "--training.threads and the options of parallelism, comm, kernels and log",
                argument.substr(0, argument.find('=')));
    }
}

// Weights and what is known of them.
struct Weights {
    std::string path;
    int64_t step = 0, last_step = 0;  ///< of the checkpoint, and of its run
    std::vector<std::string> deck;    ///< settings of its deck, "key = value"; empty: a Hugging Face folder
    std::string run_folder;           ///< "": none is known
};

// The folder of the run that wrote a checkpoint: the one with its deck.
std::string run_folder_of(const fs::path& checkpoint) {
    fs::path folder = checkpoint;
    for (int up = 0; up < 3 && folder.has_relative_path(); ++up) {
        folder = folder.parent_path();
        if (exists_patiently(folder / "deck.toml")) return folder.empty() ? "." : folder.string();
    }
    return "";
}

// Only on rank 0.
Weights weights_at(const Pretrained& source) {
    Weights weights = {.path = source.path()};
    if (source.is_hub()) return weights;
    const TrainRecord record = read_checkpoint_header(source.path()).train;
    weights.step = record.step;
    for (const TomlEntry& entry : parse_toml(record.deck, source.path() + " (deck)")) {
        weights.deck.push_back(entry.key + " = " + toml_text(entry.value));
        if (const int64_t* steps = entry.value.as<int64_t>(); steps && entry.key == "training.steps")
            weights.last_step = *steps;
    }
    weights.run_folder = run_folder_of(source.path());
    return weights;
}

Weights shared(const Communicator& world, const Pretrained& source) {
    std::vector<std::string> texts;
    on_first_rank(world, [&] {
        const Weights found = weights_at(source);
        texts = {found.path, std::to_string(found.step), std::to_string(found.last_step), found.run_folder};
        texts.insert(texts.end(), found.deck.begin(), found.deck.end());
    });
    texts = broadcast_texts(world, texts);
    return {.path = texts[0],
            .step = std::stoll(texts[1]),
            .last_step = std::stoll(texts[2]),
            .deck = {texts.begin() + 4, texts.end()},
            .run_folder = texts[3]};
}

// The settings of the run's deck that decide what is computed: layers in 8 bits, and for the windows of
// training the types and validation.
std::vector<std::string> settings_of_run(const Weights& weights, const Asked& asked) {
    std::vector<std::string> keys;
    if (asked.dtype.empty()) keys = {"model.converters", "quantize."};
    if (asked.training_windows) {
        keys.insert(keys.end(), {"validation.", "training.document_mask", "training.seq_len", "debug.seed",
                                 "training.bad_lines"});
        if (asked.dtype.empty())
            keys.insert(keys.end(), {"training.dtype", "training.mixed_precision_param"});
    }
    std::vector<std::string> settings;
    for (const std::string& line : weights.deck)
        if (std::ranges::any_of(keys, [&](const std::string& key) {
                return line.starts_with(key.ends_with('.') ? key : key + " ");
            }))
            settings.push_back(line);
    return settings;
}

std::string toml_of(const std::string& text) {
    return toml_text({text});
}

// The deck of an evaluation: the machine's options are those of the command line.
Config deck_for(const Config& machine, const DeckRules& rules, const Weights& weights, const Asked& asked,
                int64_t row_length, bool masks) {
    std::vector<std::string> settings = settings_of_run(weights, asked);
    const bool in_8_bits = std::ranges::any_of(settings, [](const std::string& line) {
        return line.starts_with("model.converters") && line != "model.converters = []";
    });
    const auto set = [&](const std::string& option, const auto& value) {
        settings.push_back(fmt::format("{} = {}", option, value));
    };
    const std::string dtype = asked.dtype.empty() && !asked.training_windows ? "bfloat16" : asked.dtype;
    if (!dtype.empty()) {
        // weights in 8 bits are made from those in float32
        set("training.dtype", toml_of(in_8_bits ? "float32" : dtype));
        set("training.mixed_precision_param", toml_of(dtype == "float64" ? "float32" : dtype));
    }
    // enough for every schedule, whose micro-batches nobody computes
    set("training.local_batch_size", 2 * machine.parallelism.pipeline_parallel_degree *
                                         machine.parallelism.pipeline_parallel_microbatch_size);
    set("validation.enable", true);
    if (!asked.training_windows) {
        set("training.document_mask", masks);
        set("training.seq_len", row_length);
        set("validation.seq_len", row_length);
        set("validation.local_batch_size", asked.batch);
    }
    return with_settings(machine, rules, settings);
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
        weights_ = shared(world_, *source_);
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

    // With --steps or --follow: the first checkpoint to evaluate is not the newest one.
    std::string first_place() {
        if (!asked_.several()) return asked_.place;
        std::string path;
        on_first_rank(world_, [&] {
            checkpoints_ = folder_of_checkpoints();
            const std::vector<StepFile> files = files_asked_for();
            if (files.empty())
                throw ConfigError("{}: has no checkpoints{}", checkpoints_,
                                  asked_.follow ? " yet; start --follow after the first one was saved" : "");
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

    std::vector<StepFile> files_asked_for() const {
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
            if (found == files.end()) throw ConfigError("{}", missing_step_error(checkpoints_, step));
            chosen.push_back(*found);
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
        if (!config_.validation.dataset_path.empty()) settings.push_back("validation.dataset_path = " + list);
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
            if (!weights_.run_folder.empty()) {
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
            weights_ = shared(world_, *source_);
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
            for (const StepFile& file : files_asked_for())
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
                std::this_thread::sleep_for(std::chrono::seconds(2));
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
