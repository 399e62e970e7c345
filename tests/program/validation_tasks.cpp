// SPDX-License-Identifier: Apache-2.0
// validation.tasks: the metrics that a run writes are those of `coeus evaluate` of its checkpoint, on any
// mesh.
#include "coeus/file/json.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <cmath>
#include <map>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// "task metric" -> value, of a step.
using Values = std::map<std::string, double>;

Values values_in_metrics(const fs::path& run, int64_t step) {
    Values values;
    for (const std::string& text : lines_of(read_file(run / "metrics.jsonl"))) {
        const JsonDocument document = JsonDocument::parse(text, "metrics.jsonl");
        const JsonView line = document.root();
        if (!line.contains("task") || line.integer("step") != step) continue;
        for (const auto& [field, value] : line.items())
            if (field != "step" && field != "task" && field != "time" && field != "run_s")
                values[line.string("task") + " " + field] = value.number();
    }
    return values;
}

Values values_in_history(const fs::path& run) {
    Values values;
    for (const std::string& text : lines_of(read_file(run / "evaluation.jsonl"))) {
        const JsonDocument document = JsonDocument::parse(text, "evaluation.jsonl");
        const JsonView line = document.root();
        values[line.string("task") + " " + line.string("metric")] = line.number("value");
    }
    return values;
}

void check_equal(const Values& a, const Values& b) {
    REQUIRE(a.size() == b.size());
    for (const auto& [name, value] : a) {
        CAPTURE(name);
        REQUIRE(b.contains(name));
        CHECK(relatively_close(value, b.at(name), 1e-11));
    }
}

}  // namespace

TEST_CASE("tasks of validations: their metrics are those of coeus evaluate, on any mesh") {
    const TemporaryFolder folder;
    const auto path = [&](const std::string& name) { return (folder / name).string(); };
    std::string text;
    for (int i = 0; i < 80; ++i) text += "The dog sat on the mat, and the cat sat on the log.\n";
    write_file(path("text.txt"), text);
    REQUIRE(run_coeus({"tokenizer", path("text.txt"), "--vocab_size=270", "--output", path("tokenizer")})
                .exit_code == 0);
    write_file(path("animals.jsonl"),
               R"({"query": "The dog sat on the", "choices": ["mat", "log"], "gold": 0})"
               "\n"
               R"({"query": "the cat sat on the", "choices": ["mat", "log"], "gold": 1})"
               "\n"
               R"({"task": "stories", "text": "The dog sat on the mat."})"
               "\n");
    const Arguments tiny = {"--model.hf_assets_path=" + path("tokenizer"),
                            "--model.vocab_size=288",
                            "--training.seq_len=32",
                            "--training.dtype=float64",
                            "--validation.enable",
                            "--validation.freq=4",
                            steps(4)};
    const Arguments tasks = {"--validation.tasks=" + path("animals.jsonl"), "--training.document_mask"};

    train_tiny(path("one"), path("text.txt"), tiny + tasks + Arguments{"--checkpoint.enable"});
    const Values one = values_in_metrics(path("one"), 4);
    CHECK(one.contains("animals acc"));
    CHECK(one.contains("stories bits_per_byte"));
    const Outcome evaluated = run_coeus({"evaluate", path("one"), path("animals.jsonl"), "--dtype=float64",
                                         "--device=cpu", "--training.threads=1"});
    INFO(evaluated.output);
    REQUIRE(evaluated.exit_code == 0);
    const Values history = values_in_history(path("one"));
    Values without_errors;
    for (const auto& [name, value] : history)
        if (!name.ends_with("_stderr")) without_errors[name] = value;
    check_equal(one, without_errors);

    // without document masks each request has its own row
    train_tiny(path("two"), path("text.txt"),
               tiny + Arguments{tasks[0], "--parallelism.tensor_parallel_degree=2"}, 2);
    train_tiny(path("as_two"), path("text.txt"), tiny + Arguments{tasks[0]});
    check_equal(values_in_metrics(path("two"), 4), values_in_metrics(path("as_two"), 4));

    const Outcome report = run_coeus({"report", path("one"), "--output", path("report.html"), "--force"});
    CHECK(report.exit_code == 0);
    CHECK_THAT(read_file(path("report.html")), Contains("Accuracy on animals in validations<") &&
                                                   Contains("Loss of stories in validations<") &&
                                                   Contains("Accuracy on animals (dtype float64)<"));
}

TEST_CASE("tasks of validations: what evaluate would refuse is refused at the start and by a dry run") {
    const TemporaryFolder folder;
    const auto path = [&](const std::string& name) { return (folder / name).string(); };
    std::string text;
    for (int i = 0; i < 80; ++i) text += "The dog sat on the mat, and the cat sat on the log.\n";
    write_file(path("text.txt"), text);
    write_file(path("bad.jsonl"), R"({"question": "x"})");
    REQUIRE(run_coeus({"tokenizer", path("text.txt"), "--vocab_size=270", "--output", path("tokenizer")})
                .exit_code == 0);
    const Arguments tiny = {"--model.hf_assets_path=" + path("tokenizer"), "--model.vocab_size=288",
                            steps(1)};
    const auto refuse = [&](const Arguments& more, const std::string& message) {
        for (const Arguments& dry : {Arguments{}, Arguments{"--dry_run"}}) {
            const Outcome run = run_coeus(tiny_run(path("run"), path("text.txt"), tiny + more + dry));
            INFO(run.output);
            CHECK(run.exit_code == 2);
            CHECK_THAT(run.output, Contains(message));
        }
    };
    refuse({"--validation.enable", "--validation.tasks=" + path("bad.jsonl")},
           "bad.jsonl, line 1: has the field");
    refuse({"--validation.enable", "--validation.tasks=" + path("absent.jsonl")}, "absent.jsonl");
    refuse({"--validation.tasks=" + path("bad.jsonl")}, "validation.enable = false");
}
