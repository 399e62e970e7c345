// SPDX-License-Identifier: Apache-2.0
// `coeus evaluate` of a Hugging Face folder: the metrics of the run that it was made of, and those of
// lm-evaluation-harness itself.
#include "coeus/file/json.hpp"
#include "program/python.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/skip.hpp"

#include <cmath>

using namespace coeus;
using namespace coeus::test;

namespace {

namespace fs = std::filesystem;

// A run, its folder, and a file of each kind of task.
class Exported {
public:
    Exported() {
        std::string text, choices, stories, documents;
        for (int i = 0; i < 60; ++i)
            text += fmt::format("The {} sat on the {}.\n", i % 3 == 0 ? "dog" : "cat",
                                i % 2 == 0 ? "mat" : "log");
        for (int i = 0; i < 12; ++i) {
            const char *who = i % 3 == 0 ? "dog" : "cat", *where = i % 2 == 0 ? "mat" : "long, old log";
            choices += fmt::format(
                R"({{"query": "The {} sat on the", "choices": ["{}", "cat", "mat on the log"], "gold": {}}})"
                "\n",
                who, where, i % 3);
            stories += fmt::format(R"({{"context": "The {} sat", "continuation": " on the {}."}})"
                                   "\n",
                                   who, where);
        }
        for (const int from : {0, 300})
            documents += R"({"text": )" + Json(text.substr(size_t(from), 500)).text() + "}\n";
        write_file(folder_ / "text.txt", text);
        write_file(path("choices.jsonl"), choices);
        write_file(path("stories.jsonl"), stories);
        write_file(path("documents.jsonl"), documents);
        const Outcome tokenizer =
            run_coeus({"tokenizer", path("text.txt"), "--vocab_size=270", "--output", path("tokenizer")});
        INFO(tokenizer.output);
        REQUIRE(tokenizer.exit_code == 0);
        train_tiny(run(), folder_ / "text.txt",
                   {"--model.hf_assets_path=" + path("tokenizer"), "--model.vocab_size=288",
                    "--model.max_seq_len=32", "--training.seq_len=32", "--checkpoint.enable"});
        const Outcome converted = convert_folder(run(), path("hf"));
        INFO(converted.output);
        REQUIRE(converted.exit_code == 0);
    }
    std::string run() const { return path("run"); }
    std::string path(const std::string& name) const { return (folder_ / name).string(); }
    // The results of all tasks, in float32.
    JsonDocument results_of(const std::string& place, const Arguments& more = {}) const {
        const Outcome outcome =
            run_coeus(Arguments{"evaluate", place, path("choices.jsonl"), path("stories.jsonl"),
                                path("documents.jsonl"), "--dtype=float32", "--context=32",
                                "--output=" + path("results.json"), "--force", "--training.threads=1"} +
                      more);
        INFO(outcome.output);
        REQUIRE(outcome.exit_code == 0);
        return JsonDocument::read(path("results.json"));
    }

private:
    TemporaryFolder folder_;
};

const Exported& exported() {
    static const Exported once;
    return once;
}

// The metrics of lm-evaluation-harness for a folder, by task.
JsonDocument ask_lm_eval(const std::string& python, const std::string& folder) {
    const Outcome run = run_shell(fmt::format(
        "{} {}/tests/tools/lm_eval_metrics.py '{}' '{}' '{}' '{}' 2>'{}'", python, paths::source(), folder,
        exported().path("choices.jsonl"), exported().path("stories.jsonl"),
        exported().path("documents.jsonl"), exported().path("errors")));
    INFO(read_file(exported().path("errors")));
    REQUIRE(run.exit_code == 0);
    return JsonDocument::parse(run.output, "lm_eval");
}

}  // namespace

TEST_CASE("evaluate: a Hugging Face folder has the metrics of the run that it was made of") {
    const JsonDocument of_run = exported().results_of(exported().run()),
                       of_folder = exported().results_of(exported().path("hf"));
    CHECK(of_run.root()["results"].items().size() == 3);
    CHECK(of_folder.root()["results"].value().text() == of_run.root()["results"].value().text());
}

TEST_CASE("evaluate: lm-evaluation-harness itself computes the same metrics of an exported folder") {
    const std::string python = python_with("lm_eval");
    if (python.empty())
        return skip("there is no Python with lm_eval: build/venv-lm_eval, COEUS_LM_EVAL_PYTHON");
    const JsonDocument theirs = ask_lm_eval(python, exported().path("hf")),
                       ours = exported().results_of(exported().path("hf"), {"--add_bos_token=false"});
    size_t compared = 0;
    for (const auto& [task, metrics] : theirs.root().items())
        for (const auto& [name, value] : metrics.items()) {
            CAPTURE(task, name);
            const double our = ours.root()["results"][task].number(name + ",none");
            ++compared;
            if (name.starts_with("acc"))
                CHECK(our == value.number());
            else
                CHECK(std::fabs(our / value.number() - 1) <= 1e-5);  // sums of float32
        }
    CHECK(compared == 7);
}
