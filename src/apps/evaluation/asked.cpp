// SPDX-License-Identifier: Apache-2.0
#include "asked.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace coeus::apps {

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
        .add_switch("follow", "the same, and wait for further checkpoints until the run has ended")
        .add_switch("force", "replace existing files, and evaluate steps again that have results");
    return flags;
}

namespace {

// "100,200"
std::vector<int64_t> steps_in(const std::string& text) {
    std::vector<int64_t> steps;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        const std::string word = text.substr(begin, end - begin);
        begin = end + 1;
        if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos || word.size() > 15)
            throw ConfigError("--steps {}: must be all, or numbers of steps such as 100,200", text);
        steps.push_back(std::stoll(word));
    }
    return steps;
}

void refuse_options_of_documents(const Flags& flags) {
    for (const char* name :
         {"context", "stride", "batch", "limit", "by_position", "add_bos_token", "delimiter", "force"})
        if (flags.given(name))
            throw ConfigError(
                "--{} is for --windows documents; --windows training takes windows, batch and ids from the "
                "run's deck, and writes nothing",
                name);
}

// ConfigError if a file of results could not be written, or would replace one that is read.
void require_file_for_results(const char* flag, const std::string& file,
                              const std::vector<std::string>& inputs) {
    namespace fs = std::filesystem;
    for (const std::string& input : inputs)
        if (are_same_patiently(file, input))
            throw ConfigError("--{} {}: this file is read, and cannot be replaced; give another name", flag,
                              file);
    if (is_folder_patiently(file))
        throw ConfigError("--{} {}: is a folder; give the name of a file", flag, file);
    if (exists_patiently(file) && !is_file_patiently(file)) return;  // a pipe
    const fs::path above = fs::path(file).parent_path(), folder = above.empty() ? "." : above;
    if (!is_folder_patiently(folder))
        throw ConfigError("--{} {}: the folder {} does not exist; make it, or give another name", flag, file,
                          folder.string());
    if (patiently(folder.string(), [&] { return access(folder.c_str(), W_OK | X_OK); }) != 0)
        throw ConfigError("--{} {}: cannot write to the folder {}: {}; choose another one", flag, file,
                          folder.string(), errno_text(errno));
}

}  // namespace

Asked asked_by(const Flags& flags) {
    if (flags.words().size() < 2)
        throw ConfigError("coeus evaluate: needs a checkpoint and at least one file, but got only {}",
                          flags.words()[0]);
    const std::string& steps = flags.text("steps");
    const std::string& bos = flags.choice("add_bos_token", {"auto", "true", "false"});
    Asked asked = {
        .place = flags.words()[0],
        .files = {flags.words().begin() + 1, flags.words().end()},
        .tokenizer = flags.text("tokenizer"),
        .dtype = flags.given("dtype") ? flags.choice("dtype", {"bfloat16", "float32", "float64"}) : "",
        .output = flags.text("output"),
        .samples = flags.text("samples"),
        .steps = steps.empty() || steps == "all" ? std::vector<int64_t>() : steps_in(steps),
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
        .all_steps = steps == "all",
        .follow = flags.given("follow"),
        .again = flags.given("force")};
    if (asked.training_windows) refuse_options_of_documents(flags);
    for (const char* name : {"output", "samples"}) {
        if (!flags.given(name)) continue;
        if (asked.several() || asked.training_windows)
            throw ConfigError("--{} is for one checkpoint and --windows documents; {}", name,
                              asked.several() ? "the results of several are in evaluation.jsonl of the run"
                                              : "--windows training gives one number");
        require_file_for_results(name, flags.text(name), flags.words());
        flags.require_replaceable(flags.text(name));
    }
    flags.require_different_files("output", "samples");
    return asked;
}

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

}  // namespace coeus::apps
