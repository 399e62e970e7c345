// SPDX-License-Identifier: Apache-2.0
// `coeus evaluate` of a run: the loss of its validation in all digits, results of its checkpoints in
// evaluation.jsonl, and every error that a user can correct.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// A run whose weights are evaluated, trained once for all cases of this file.
class Evaluated {
public:
    Evaluated() {
        std::string text;
        for (int i = 0; i < 80; ++i) text += "The dog sat on the mat, and the cat sat on the log.\n";
        write_file(folder_ / "text.txt", text);
        write_file(folder_ / "held_out.txt", text.substr(0, 2000) + "Another text, and no log.");
        const Outcome tokenizer =
            run_coeus({"tokenizer", path("text.txt"), "--vocab_size=270", "--output", path("tokenizer")});
        INFO(tokenizer.output);
        REQUIRE(tokenizer.exit_code == 0);
        train_tiny(
            run(), folder_ / "text.txt",
            {"--model.hf_assets_path=" + path("tokenizer"), "--model.vocab_size=288", steps(4),
             "--training.seq_len=32", "--training.mixed_precision_param=bfloat16", "--training.document_mask",
             "--model.converters=quantize.linear.float8", "--quantize.linear.float8.recipe_name=rowwise",
             "--checkpoint.enable", "--checkpoint.interval=2", "--checkpoint.last_save_model_only=false",
             "--validation.enable", "--validation.dataset_path=" + path("held_out.txt"),
             "--validation.freq=4"});
        write_file(folder_ / "tasks.jsonl",
                   R"({"query": "The dog sat on the", "choices": ["mat", "log"], "gold": 0, "id": "a"})"
                   "\n\n"
                   R"({"query": "the cat sat on the", "choices": ["mat", "log"], "gold": 1})"
                   "\n"
                   R"({"task": "stories", "text": "The dog sat on the mat."})"
                   "\n"
                   R"({"task": "stories", "text": ""})"
                   "\n");
    }
    fs::path run() const { return folder_ / "run"; }
    std::string path(const std::string& name) const { return (folder_ / name).string(); }
    std::string write(const std::string& name, const std::string& text) const {
        write_file(folder_ / name, text);
        return path(name);
    }

private:
    TemporaryFolder folder_;
};

const Evaluated& evaluated() {
    static const Evaluated once;
    return once;
}

Outcome evaluate(const Arguments& more, int ranks = 0) {
    return run_coeus(Arguments{"evaluate", evaluated().run().string()} + more +
                         Arguments{"--device=cpu", "--training.threads=1"},
                     ranks);
}

std::string printed(const Arguments& more, int ranks = 0) {
    const Outcome outcome = evaluate(more, ranks);
    INFO(outcome.output);
    CHECK(outcome.exit_code == 0);
    return outcome.output;
}

void expect_refusal(const Arguments& arguments, const std::string& message) {
    const Outcome outcome = run_coeus(arguments);
    INFO(outcome.output);
    CHECK(outcome.exit_code == 2);
    CHECK(count_of(" - error - ", outcome.output) == 1);
    CHECK_THAT(outcome.output, Contains(message));
}

// The last value of a field in metrics.jsonl, as it is written there.
std::string last_in_metrics(const std::string& field, const fs::path& run = evaluated().run()) {
    const std::string text = read_file(run / "metrics.jsonl"), key = '"' + field + "\":";
    const size_t at = text.rfind(key) + key.size();
    return text.substr(at, text.find_first_of(",}", at) - at);
}

}  // namespace

TEST_CASE("evaluate: the windows of training give the run's validation loss in all digits") {
    const std::string loss = "validation_loss " + last_in_metrics("validation_loss") + " (";
    const Arguments windows = {evaluated().path("held_out.txt"), "--windows=training"};
    CHECK_THAT(printed(windows), Contains(loss));
    // a model that is computed in another type has another loss
    CHECK_THAT(printed(windows + Arguments{"--dtype=float32"}), !Contains(loss));
    CHECK_THAT(printed(windows + Arguments{"--parallelism.data_parallel_shard_degree=2"}, 2),
               Contains(loss.substr(0, loss.size() - 6)));
}

TEST_CASE("evaluate: the windows of training read data as the run did: fields, weights and separators") {
    const TemporaryFolder folder;
    const auto path = [&](const std::string& name) { return (folder / name).string(); };
    std::string a, b;
    for (int i = 0; i < 300; ++i) {
        a += R"({"body": "The dog sat on the mat, and the cat sat on the log.", "text": "x"})"
             "\n";
        b += R"({"body": "Another text, and no log.", "text": "x"})"
             "\n";
    }
    write_file(path("a.jsonl"), a);
    write_file(path("b.jsonl"), b);
    // ids of NumPy in documents that begin with 9
    std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (3000,), }";
    header.append(118 - 1 - header.size(), ' ').push_back('\n');
    std::string ids = "\x93NUMPY\x01" + std::string("\0\x76\0", 3) + header;
    for (int i = 0; i < 3000; ++i) ids += {char(i % 7 == 0 ? 9 : 20 + i % 31), '\0'};
    write_file(path("ids.npy"), ids);
    const Arguments tiny = {"--model.hf_assets_path=" + evaluated().path("tokenizer"),
                            "--model.vocab_size=288",
                            steps(2),
                            "--checkpoint.enable",
                            "--validation.enable",
                            "--validation.freq=2"};
    const auto check = [&](const std::string& name, const Arguments& files, const Arguments& more) {
        CAPTURE(name);
        std::string data = files[0];
        for (size_t i = 1; i < files.size(); ++i) data += "," + files[i];
        train_tiny(path(name), data, tiny + more);
        const Outcome outcome =
            run_coeus(Arguments{"evaluate", path(name)} + files +
                      Arguments{"--windows=training", "--device=cpu", "--training.threads=1"});
        INFO(outcome.output);
        CHECK(outcome.exit_code == 0);
        CHECK_THAT(outcome.output,
                   Contains("validation_loss " + last_in_metrics("validation_loss", path(name)) + " ("));
    };
    check("blend", {path("a.jsonl"), path("b.jsonl")},
          {"--training.dataset_weights=0.9,0.1", "--training.text_field=body"});
    check("field", {path("b.jsonl")},
          {"--training.text_field=body", "--validation.text_field=body",
           "--validation.dataset_path=" + path("b.jsonl")});
    check("separator", {path("ids.npy")}, {"--training.bos_id=9", "--training.document_mask"});
}

TEST_CASE("evaluate: results of all checkpoints are appended once, and a report draws them") {
    const std::string tasks = evaluated().path("tasks.jsonl");
    const fs::path history = evaluated().run() / "evaluation.jsonl";
    const Arguments all = {tasks, evaluated().path("held_out.txt"), "--steps=all"};
    const std::string first = printed({tasks, evaluated().path("held_out.txt"), "--steps=2"});
    CHECK_THAT(first, Contains("step-00000002.h5") && !Contains("step-00000004.h5"));
    CHECK_THAT(first, Contains("stories: 1 document without tokens was left out"));
    const std::string second = printed(all);
    CHECK_THAT(second, Contains("Step 2 has results already") && Contains("step-00000004.h5"));
    const std::string text = read_file(history);
    CHECK_THAT(printed(all + Arguments{"--follow"}), Contains("Step 4 has results already"));
    CHECK(read_file(history) == text);
    for (const char* line : {R"({"step":2,"task":"tasks","metric":"acc","value":)",
                             R"({"step":4,"task":"stories","metric":"loss","value":)",
                             R"({"step":4,"task":"held_out","metric":"bits_per_byte","value":)"})
        CHECK(count_of(line, text) == 1);
    const Outcome report = run_coeus(
        {"report", evaluated().run().string(), "--output", evaluated().path("report.html"), "--force"});
    INFO(report.output);
    CHECK(report.exit_code == 0);
    CHECK_THAT(read_file(evaluated().path("report.html")),
               Contains("Accuracy on tasks") && Contains("Loss of held_out"));
}

TEST_CASE("evaluate: results have lm-evaluation-harness's keys, and samples the scores of each line") {
    const std::string json = evaluated().path("results.json"), samples = evaluated().path("samples.jsonl");
    const Arguments arguments = {evaluated().path("tasks.jsonl"),
                                 "--output",
                                 json,
                                 "--samples",
                                 samples,
                                 "--dtype=float32",
                                 "--by_position"};
    CHECK_THAT(printed(arguments), Contains("float32") && Contains("acc_norm") && Contains("position"));
    CHECK_THAT(read_file(json), Contains("\"acc,none\"") && Contains("\"acc_norm_stderr,none\"") &&
                                    Contains("\"without_tokens\": 1") && Contains("\"by_position\""));
    const std::vector<std::string> lines = lines_of(read_file(samples));
    REQUIRE(lines.size() == 3);
    CHECK_THAT(lines[0], Catch::StartsWith(R"({"task":"tasks","line":1,"id":"a","scores":[)"));
    CHECK_THAT(lines[1], Contains(R"("line":3)") && Contains(R"("gold":1)"));
    expect_refusal(Arguments{"evaluate", evaluated().run().string()} + arguments, "--force");
    const fs::path history = evaluated().run() / "evaluation.jsonl";
    const std::string before = read_file(history);
    const std::string limited =
        printed({evaluated().path("tasks.jsonl"), "--limit=1", "--context=16", "--stride=4"});
    CHECK_THAT(limited, Contains("context 16") && !Contains("stories") && !Contains("evaluation.jsonl"));
    CHECK(read_file(history) == before);  // a trial is not a result of the run
}

TEST_CASE("evaluate: what a user can correct is refused before any work") {
    const Evaluated& at = evaluated();
    const std::string run = at.run().string(), tasks = at.path("tasks.jsonl");
    const auto refuse_line = [&](const std::string& line, const std::string& message) {
        expect_refusal({"evaluate", run, at.write("bad.jsonl", line + "\n")}, message);
    };
    refuse_line(
        R"({"question": "x", "answer": 3})",
        R"(bad.jsonl, line 1: has the fields "question", "answer"; a line must have "query", "choices")");
    refuse_line("{}", "bad.jsonl, line 1: has no fields; a line must have");
    refuse_line("[1]", "must be an object with \"query\"");
    refuse_line("{", "bad.jsonl, line 1");
    refuse_line(R"({"query": "x", "choices": ["a", "b"], "gold": 2})",
                "bad.jsonl, line 1: gold = 2: must be from 0 to 1, the number of one of the 2 choices");
    refuse_line(R"({"context_options": ["x"], "continuation": "a", "gold": -1})", "gold = -1");
    refuse_line(R"({"query": "x", "choices": ["a", ""], "gold": 0})",
                "bad.jsonl, line 1: a choice or continuation is empty");
    refuse_line(R"({"query": "x", "choices": ["a"]})", "gold");
    refuse_line(R"({"text": ""})", "there is nothing to score: no document has tokens");
    refuse_line("", "bad.jsonl has no lines");
    refuse_line("{\"text\": \"x\"}\n{\"context\": \"x\", \"continuation\": \"y\"}",
                "the lines of the task \"bad\" are of different kinds");
    std::string longest = "x";
    for (int i = 0; i < 40; ++i) longest += " x";
    refuse_line(R"({"context": "x", "continuation": ")" + longest + "\"}",
                "a continuation of the task \"bad\" has ");
    fs::create_directories(at.path("other"));
    expect_refusal({"evaluate", run, tasks, at.write("other/tasks.jsonl", R"({"text": "x"})")},
                   "both have a task named \"tasks\"");
    expect_refusal({"evaluate", run, at.write("latin.txt", "caf\xe9")}, "is not UTF-8 at byte 4");
    expect_refusal({"evaluate", run, at.path("absent.jsonl")}, "absent.jsonl");
    expect_refusal({"evaluate", run}, "needs a checkpoint and at least one file");
    expect_refusal({"evaluate", at.path("absent"), tasks}, "this file or folder does not exist");
    expect_refusal({"evaluate", run, tasks, "--tokenizer", at.path("absent")}, "absent");
    std::string words;
    for (int i = 0; i < 4000; ++i) words += fmt::format("{}{} ", char('a' + i % 26), char('a' + i / 26 % 26));
    const Outcome large = run_coeus(
        {"tokenizer", at.write("words.txt", words), "--vocab_size=400", "--output", at.path("large")});
    CHECK(large.exit_code == 0);
    expect_refusal({"evaluate", run, tasks, "--tokenizer", at.path("large")},
                   "tokens, but the model's vocabulary only 288");
    expect_refusal({"evaluate", run, tasks, "--context=1000000"}, "this model has at most");
    expect_refusal({"evaluate", run, tasks, "--stride=33"}, "--stride 33: must be at most the context, 32");
    for (const std::string option : {"--context=16", "--stride=4", "--batch=2", "--limit=1", "--by_position",
                                     "--add_bos_token=true", "--delimiter=x"})
        expect_refusal({"evaluate", run, tasks, "--windows=training", option},
                       option.substr(0, option.find('=')) + " is for --windows documents");
    expect_refusal({"evaluate", run, tasks, "--steps=two"}, "--steps two: must be all, or numbers of steps");
    expect_refusal(
        {"evaluate", run, tasks, "--steps=2,3"},
        "--steps 3: there is no checkpoint of step 3 in " + run + "/checkpoint; existing steps: 2, 4");
    expect_refusal({"evaluate", run, tasks, "--steps=all", "--output", at.path("x.json")},
                   "--output is for one checkpoint");
    expect_refusal({"evaluate", run, tasks, "--training.steps=3"},
                   "--training.steps: coeus evaluate takes the model from its place");
    expect_refusal({"evaluate", run, tasks, "--parallelism.tensor_parallel_degree=2"}, "parallelism");
    const Outcome heads = evaluate({tasks, "--parallelism.tensor_parallel_degree=3"}, 3);
    INFO(heads.output);
    CHECK(heads.exit_code == 2);
    CHECK_THAT(heads.output, Contains("tensor_parallel_degree"));
}
