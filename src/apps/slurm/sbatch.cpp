// SPDX-License-Identifier: Apache-2.0
// coeus sbatch DECK --machine hyak --nodes 4 ...: checks deck and mesh for the job's ranks, then prints a
// self-contained Slurm job script that trains the deck. The script is train.sbatch of the machine's folder in
// jobscripts, with changed values in its #SBATCH lines. The files that it sources are inserted in place of
// the lines that source them.
#include "sbatch.hpp"

#include "../command_line/deck_arguments.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/wall_time.hpp"
#include "coeus/config/command_flags.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/data/tokenizer.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/device/device.hpp"
#include "coeus/evaluate/requests.hpp"
#include "coeus/train/preflight.hpp"
#include "jobscripts.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <regex>

namespace coeus::apps {

namespace {

namespace fs = std::filesystem;

constexpr const char* script_name = "/train.sbatch";
// Options of sbatch, with Slurm's own names. They are passed on as given; the default is that of the
// machine's script.
constexpr const char* passed_on[] = {"nodes", "gpus-per-node", "ntasks-per-node", "cpus-per-task",
                                     "mem",   "time",          "partition",       "account",
                                     "qos",   "constraint",    "job-name"};

std::vector<std::string> machines() {
    std::vector<std::string> names;
    for (const auto& [path, content] : jobscripts())
        if (path.ends_with(script_name)) names.push_back(path.substr(0, path.find('/')));
    return names;
}

Flags sbatch_flags() {
    Flags flags(
        "sbatch", "DECK [--machine MACHINE] [--section.option=value ...]", "a deck",
        "Prints a Slurm job script that trains the deck. The script has the deck's effective text and "
        "absolute paths, so it needs no other file, and a later edit of the deck does not change the job. "
        "Before its time ends, or when it is "
        "preempted, the job saves a checkpoint, requeues itself and then resumes. Deck and mesh are "
        "checked as in a dry run. Flags that are not given default to the machine's own script, "
        "jobscripts/MACHINE/train.sbatch.");
    flags.add("machine", "MACHINE", "generic", join(machines(), ", "))
        .add("nodes", "N", "", "number of nodes")
        .add("gpus-per-node", "[TYPE:]G", "", "GPUs per node; there is one task for each. 0: a run on CPUs")
        .add("ntasks-per-node", "N", "", "tasks per node, for a run on CPUs")
        .add("cpus-per-task", "N", "", "cores per task")
        .add("mem", "SIZE", "", "memory per node, such as 128G; 0: all")
        .add("time", "TIME", "", "time limit: MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS")
        .add("partition", "NAME", "", "partition, or several separated by commas")
        .add("account", "NAME", "", "account")
        .add("qos", "NAME", "", "quality of service")
        .add("constraint", "LIST", "", "features that the nodes must have")
        .add("job-name", "NAME", "", "name of the job; default: the deck's name")
        .add_switch("exclusive", "no other job on the nodes")
        .add("gpu", "NAME", "",
             "GPU model, such as h100 or a100-40gb; refuses a run that does not fit into its memory")
        .add("memory", "SIZE", "",
             "memory of each rank's device, such as 80GiB; refuses a run that does not fit into it")
        .add_list(
            "evaluate", "FILE",
            "instead print a script for a second job, which evaluates the run's checkpoints on this file "
            "while the run saves them (coeus evaluate --follow); may be repeated, and further files may "
            "follow the deck");
    return flags;
}

// Checks what a real run, unlike a dry run, would refuse in the job, and what a job that is requeued needs.
// Returns the deck of the run.
Config checked_run(const Arguments& training, bool has_gpus) {
    Config config = parse_command_line(training).config;
    // $COEUS names another program, which may have been built with CUDA
    if (has_gpus && !built_with_cuda() && std::getenv("COEUS") == nullptr)
        throw ConfigError(
            "coeus sbatch: the job has GPUs, but {}; set COEUS=/path/to/coeus to the program of the job, or "
            "give --gpus-per-node=0",
            why_no_gpu());
    const char* const queued_again =
        "the job is requeued when it is preempted or its time ends, and would start from scratch each time";
    if (!config.checkpoint.enable)
        throw ConfigError("checkpoint.enable = false: {}; set checkpoint.enable = true", queued_again);
    if (config.checkpoint.load_only)
        throw ConfigError("checkpoint.load_only = true: {}; set checkpoint.load_only = false", queued_again);
    return config;
}

// An option whose value is a path, or several, seen from the folder of the command.
struct PathOption {
    std::string name;
    std::vector<std::string*> paths;
};

// Paths inside job.dump_folder do not count, since they are relative to it; nor does the default of the
// tokenizer, which the deck does not name.
std::vector<PathOption> path_options(Config& config) {
    const auto each = [](std::vector<std::string>& paths) {
        std::vector<std::string*> places;
        for (std::string& path : paths) places.push_back(&path);
        return places;
    };
    std::vector<PathOption> all = {
        {"job.dump_folder", {&config.job.dump_folder}},
        {"job.config_file", {&config.job.config_file}},
        {"checkpoint.initial_load_path", {&config.checkpoint.initial_load_path}},
        {"parallelism.pipeline_parallel_schedule_csv", {&config.parallelism.pipeline_parallel_schedule_csv}},
        {"model.tokenizer_path", {&config.model.tokenizer_path}},
        {"training.dataset_path", each(config.training.dataset_path)},
        {"validation.dataset_path", each(config.validation.dataset_path)}};
    std::error_code unseen;
    if (config.model.hf_assets_path != Config().model.hf_assets_path ||
        fs::exists(config.model.hf_assets_path, unseen))
        all.push_back({"model.hf_assets_path", {&config.model.hf_assets_path}});
    return all;
}

// The deck with paths that mean the same from every folder.
Config with_absolute_paths(Config config) {
    for (const PathOption& option : path_options(config))
        for (std::string* path : option.paths)
            if (!path->empty()) *path = fs::absolute(*path).lexically_normal().string();
    return config;
}

// The value of an #SBATCH line.
std::optional<std::string> directive(const std::string& script, const std::string& name) {
    std::smatch match;
    const std::regex line("(?:^|\n)#SBATCH --" + name + "=([^\n]*)");
    if (!std::regex_search(script, match, line)) return std::nullopt;
    return match[1].str();
}

// With the comment before it.
void remove_directive(std::string& script, const std::string& name) {
    script =
        std::regex_replace(script, std::regex("(\n#(?!SBATCH)[^\n]*)*\n#SBATCH --" + name + "=[^\n]*"), "");
}

void set_directive(std::string& script, const std::string& name, const std::string& value) {
    const std::string line = "\n#SBATCH --" + name + "=", first = "\n#SBATCH";
    const size_t at = script.find(line);
    if (at == std::string::npos) return void(script.insert(script.find(first), line + value));
    const size_t begin = at + line.size();
    script.replace(begin, script.find('\n', begin) - begin, value);
}

// Slurm's sizes of memory: a number of MiB, or a number with a unit. 0 is all of a node's memory.
void check_memory(const std::string& text) {
    static const std::regex form("([0-9]{1,15})([KMGTkmgt]?)[Bb]?");
    constexpr double most = 1 << 30;  // MiB: a PiB, more than a node has
    std::smatch match;
    double mebibytes = most + 1;
    if (std::regex_match(text, match, form)) {
        const std::string unit = match[2].str();
        const char letter = unit.empty() ? 'M' : char(std::toupper(uint8_t(unit[0])));
        const double bytes = letter == 'K' ? 0x1p-10 : letter == 'M' ? 1 : letter == 'G' ? 0x1p10 : 0x1p20;
        mebibytes = std::stod(match[1]) * bytes;
    }
    if (mebibytes > most)
        throw ConfigError(
            "coeus sbatch: --mem must be a number of MiB, or a number with K, M, G or T, at most 1024T, such "
            "as 128G (0: all the memory of a node), but is \"{}\"",
            text);
}

void check_values(const Flags& flags) {
    for (const char* name : {"nodes", "ntasks-per-node", "cpus-per-task"})
        if (flags.given(name)) flags.integer(name, 1, 1 << 20);
    constexpr double longest = 365 * 24 * 3600.0;
    if (flags.given("time") && seconds_of_wall_time(flags.text("time")).value_or(2 * longest) > longest)
        throw ConfigError(
            "coeus sbatch: --time must be MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS, or "
            "DAYS-HOURS:MINUTES:SECONDS, such as 24:00:00, and at most 365-00, but is \"{}\"",
            flags.text("time"));
    if (flags.given("mem")) check_memory(flags.text("mem"));
    constexpr size_t longest_word = 256;
    const auto ends_word = [](unsigned char c) { return c <= ' ' || c == 0x7f || c == '"' || c == '\''; };
    for (const char* name : passed_on)
        if (const std::string& word = flags.text(name);
            flags.given(name) &&
            (word.empty() || word.size() > longest_word || std::ranges::any_of(word, ends_word)))
            throw ConfigError("coeus sbatch: --{} must be one word of at most {} bytes, but is \"{}\"", name,
                              longest_word, word);
}

// "4" and "a100:4" are 4.
int64_t gpus_of(const std::string& text) {
    static const std::regex form("(?:[A-Za-z][A-Za-z0-9_.-]*:)?([0-9]{1,4})");
    std::smatch match;
    if (!std::regex_match(text, match, form))
        throw ConfigError(
            "coeus sbatch: --gpus-per-node must be a number, or TYPE:NUMBER such as a100:4, but is \"{}\"",
            text);
    return std::stoll(match[1]);
}

// A job saves and requeues itself some time before its end. If its time limit is not much longer, it would
// hardly train.
void check_time(const std::string& script) {
    const auto time = seconds_of_wall_time(directive(script, "time").value_or(""));
    const std::string signal = directive(script, "signal").value_or("");
    const size_t at = signal.find('@');
    if (!time || at == std::string::npos) return;
    constexpr double resolution = 60;  // Slurm may send the signal this much earlier
    const double before_end = std::stod(signal.substr(at + 1)), least = 2 * before_end + resolution;
    if (*time < least)
        throw ConfigError(
            "coeus sbatch: --time={}: the job is told to save {:.0f} seconds before its time ends (--signal "
            "in the machine's script), so it would hardly train; the nearest valid value is {:.0f}",
            directive(script, "time").value(), before_end, std::ceil(least / 60));
}

// Sets one task for each GPU. Returns whether the job has GPUs.
bool set_tasks(std::string& script, const Flags& flags) {
    const bool tasks_given = flags.given("ntasks-per-node");
    const std::string own = directive(script, "gpus-per-node").value_or("0");
    const std::string gpus = flags.given("gpus-per-node") ? flags.text("gpus-per-node")
                             : tasks_given                ? "0"
                                                          : own;
    const int64_t count = gpus_of(gpus);
    if (count == 0) {
        remove_directive(script, "gpus-per-node");
        return false;
    }
    if (tasks_given && flags.integer("ntasks-per-node", 1) != count)
        throw ConfigError(
            "coeus sbatch: --ntasks-per-node={} with --gpus-per-node={}: there is one task for each GPU; "
            "remove --ntasks-per-node",
            flags.text("ntasks-per-node"), gpus);
    set_directive(script, "gpus-per-node", gpus);
    set_directive(script, "ntasks-per-node", std::to_string(count));
    return true;
}

int ranks_of(const std::string& script, bool has_gpus) {
    constexpr int64_t most = 1 << 24;  // as --ranks of a dry run
    const std::string nodes = directive(script, "nodes").value(),
                      tasks = directive(script, "ntasks-per-node").value();
    const int64_t ranks = std::stoll(nodes) * std::stoll(tasks);
    if (ranks > most)
        throw ConfigError(
            "coeus sbatch: --nodes={} with --{}={}: the job would have {} ranks; there may be at most {}, so "
            "give at most --nodes={}",
            nodes, has_gpus ? "gpus-per-node" : "ntasks-per-node", tasks, with_commas(ranks),
            with_commas(most), most / std::stoll(tasks));
    return int(ranks);
}

// Replaces every line `. "$jobscripts/FILE"` by that file, without its licence.
std::string with_sourced_files(const std::string& script) {
    static const std::regex source("(?:^|\n)\\. \"\\$jobscripts/([^\"]*)\"(?=\n)"),
        other("\njobscripts=[^\n]*");
    std::string result;
    std::string rest = std::regex_replace(script, other, "");
    for (std::smatch match; std::regex_search(rest, match, source); rest = match.suffix()) {
        const std::string& file = jobscripts().at(match[1]);
        result += match.prefix().str() + "\n" + file.substr(file.find('\n') + 1);
    }
    return result + rest;
}

std::string one_word(const std::string& text) {
    return std::regex_replace(text, std::regex("[^A-Za-z0-9_.+-]"), "_");
}

// The path of this program, or $COEUS if that is set, as a bundle does.
std::string program() {
    if (const char* given = std::getenv("COEUS")) return given;
    return fs::read_symlink("/proc/self/exe").string();
}

// Shell text that writes the deck beside the job's log, at each start, and trains it. Options with %a, the
// number of a task of a job array, stay on the command line, where the job replaces it; paths are those of
// the deck. Values of a deck have no line ends, so that no line of it ends the text.
std::string deck_in_shell(Config config, const Arguments& options) {
    constexpr const char* task = "%a";
    const std::string name = std::regex_replace(config.job.config_file, std::regex("\n"), " ");
    std::string text =
        "\n# the deck as it was when this script was made: a later edit of " + name +
        " changes nothing\ndeck=$PWD/coeus-$SLURM_JOB_ID.toml\ncat >\"$deck\" <<'END_OF_DECK'\n" +
        deck_text(config) + "END_OF_DECK\nset -- \"$deck\"";
    const std::vector<PathOption> with_paths = path_options(config);
    for (const PathOption& option : with_paths) {
        std::vector<std::string> paths;
        for (const std::string* path : option.paths) paths.push_back(*path);
        if (const std::string value = join(paths, ","); value.find(task) != std::string::npos)
            text += " " + in_shell(fmt::format("--{}={}", option.name, value));
    }
    // an alias has the last part of its option
    const auto is_path = [&](const std::string& word) {
        const std::string given = word.substr(0, word.find('='));
        return std::ranges::any_of(with_paths, [&](const PathOption& option) {
            return given.ends_with(option.name.substr(option.name.rfind('.')));
        });
    };
    for (const std::string& word : options)
        if (word.find(task) != std::string::npos && !is_path(word)) text += " " + in_shell(word);
    return text + " \"$@\"\n";
}

// The rest of the machine's script for a job that evaluates instead of training: it starts the ranks in the
// same way, and is not queued again when it ends.
std::string evaluation_in_shell(const std::string& script_after_header, const Config& config,
                                const Arguments& files, bool has_gpus) {
    std::string text =
        std::regex_replace(script_after_header, std::regex("\n[^\n]*train_and_requeue[^\n]*"), "");
    const std::string run = in_shell(config.job.dump_folder);
    text +=
        "\n# It waits for a run that has not begun, and ends with the job of the training. If that job is "
        "queued "
        "again\n# or continued, submit this script once more: checkpoints that have results are skipped."
        "\nmkdir -p " +
        run + "\n\"${launch[@]}\" \"${coeus[@]}\" evaluate " + run;
    for (const std::string& file : files)
        text += " " + in_shell(fs::absolute(file).lexically_normal().string());
    return text + " --follow" + (has_gpus ? " --device=cuda" : "") + " \"$@\"\n";
}

// What is known before the run starts, as comments.
std::string as_comments(const Findings& found) {
    std::string text;
    for (const Finding& finding : found)
        text += "# " + std::regex_replace(finding.line(), std::regex("\n"), "\n# ") + "\n";
    return text;
}

// Refuses what evaluate would refuse of the first lines of the files, if they and the tokenizer are here.
// Those that may exist only where the job runs are comments.
std::string checked_files(const Arguments& files, const Config& config) {
    Arguments here;
    std::string text;
    std::error_code unseen;
    for (const std::string& file : files)
        if (fs::exists(file, unseen) || leads_to_tokens(file))
            here.push_back(file);
        else
            text += "# warning: " + std::regex_replace(file, std::regex("\n"), " ") +
                    " does not exist here; it must exist where the job runs\n";
    constexpr int64_t lines = 1000;  // of each file, so that this takes no longer than a moment
    if (const std::string tokenizer = config.model.tokenizer(); !here.empty() && Tokenizer::is_at(tokenizer))
        read_tasks(here, Tokenizer(tokenizer), {.context = config.training.seq_len, .limit = lines});
    return text;
}

}  // namespace

Flags sbatch_help() {
    return sbatch_flags();
}

int sbatch(const Arguments& arguments) {
    const DeckArguments split = split_deck_arguments(arguments);
    Flags flags = sbatch_flags();
    flags.parse(split.own);
    Arguments evaluated = flags.texts("evaluate");
    if (!evaluated.empty())  // a shell makes several words of *.jsonl
        evaluated.insert(evaluated.end(), flags.words().begin() + 1, flags.words().end());
    else if (flags.words().size() != 1)
        throw ConfigError(
            "coeus sbatch takes one deck, not {}; options of a deck have the form --section.option=value",
            join(flags.words(), ", "));
    const std::string machine = flags.choice("machine", machines());
    check_values(flags);

    const std::string& deck = flags.words()[0];
    std::string script = jobscripts().at(machine + script_name);
    for (const char* name : passed_on)
        if (flags.given(name)) set_directive(script, name, flags.text(name));
    if (flags.given("exclusive")) script.insert(script.find("\n#SBATCH"), "\n#SBATCH --exclusive");
    if (!flags.given("job-name")) set_directive(script, "job-name", one_word(fs::path(deck).stem().string()));
    Arguments training = Arguments{deck};
    training.insert(training.end(), split.deck.begin(), split.deck.end());
    check_time(script);
    const bool has_gpus = set_tasks(script, flags);
    Arguments asked = training;
    asked.push_back("--dry_run");
    if (has_gpus && parse_command_line(asked).config.device == "cpu")
        throw ConfigError(
            "device = \"cpu\": the job has GPUs; give --gpus-per-node=0, or remove --device=cpu");
    // so that a GPU that is not found is an error
    if (has_gpus) training.emplace_back("--device=cuda");

    Arguments planning = training;
    planning.push_back("--dry_run");
    for (const char* name : {"gpu", "memory"})
        if (flags.given(name)) planning.push_back(fmt::format("--{}={}", name, flags.text(name)));
    if (!has_gpus && flags.given("gpu"))
        throw ConfigError("coeus sbatch: --gpu={}: the job has no GPUs; give --gpus-per-node, or --memory",
                          flags.text("gpu"));
    const CommandLine command_line = parse_command_line(planning);
    if (!has_gpus && command_line.config.device == "cuda")
        throw ConfigError("device = \"cuda\": the job has no GPUs; give --gpus-per-node, or --device=auto");
    const Findings plan = preflight(command_line, ranks_of(script, has_gpus));
    plan.require_not_refused();  // files that are missing here may exist where the job runs
    const Config config = with_absolute_paths(checked_run(training, has_gpus));
    const std::string absent = checked_files(evaluated, config);
    if (!evaluated.empty()) {
        remove_directive(script, "signal");
        set_directive(script, "job-name", directive(script, "job-name").value() + "-evaluate");
    }
    std::string command;  // on one line, since it goes into a comment
    for (const std::string& word : arguments)
        command += (command.empty() ? "" : " ") + in_shell(std::regex_replace(word, std::regex("\n"), " "));
    // replaces the line that shows how the script itself is used
    const size_t usage = script.find("\n# sbatch ") + 1;
    script.replace(usage, script.find('\n', usage) + 1 - usage,
                   "# Made by: coeus sbatch " + command +
                       "\n# Next: `sbatch THIS_FILE`; `squeue --me` shows the job. Options of " +
                       (evaluated.empty() ? "the deck may follow the file's name.\n" + as_comments(plan)
                                          : "coeus evaluate may follow the file's name.\n" + absent));
    const size_t behind_header = script.find("\n\n", script.rfind("\n#SBATCH")) + 1;
    const std::string chosen = "[ -n \"${COEUS-}\" ] || COEUS=" + in_shell(program()) + "\n";
    if (evaluated.empty())
        script.insert(behind_header, deck_in_shell(config, split.deck) + chosen);
    else
        script = script.substr(0, behind_header) + "\n" + chosen +
                 evaluation_in_shell(script.substr(behind_header), config, evaluated, has_gpus);
    std::fputs(with_sourced_files(script).c_str(), stdout);
    return 0;
}

}  // namespace coeus::apps
