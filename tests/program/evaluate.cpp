// SPDX-License-Identifier: Apache-2.0
// `coeus evaluate` of a run: the loss of its validation in all digits, results of its checkpoints in
// evaluation.jsonl, and every error that a user can correct.
#include "coeus/data/tokenizer.hpp"
#include "coeus/file/folder_owner.hpp"
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
    // The same run until this step, with another random state.
    void train_other(const fs::path& run, int64_t step, const Arguments& more = {}) const {
        train_tiny(
            run, folder_ / "text.txt",
            Arguments{"--model.hf_assets_path=" + path("tokenizer"), "--model.vocab_size=288", steps(step),
                      "--debug.seed=7", "--checkpoint.enable", "--checkpoint.last_save_model_only=false"} +
                more);
    }
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
    CHECK_THAT(read_file(evaluated().run() / "report.html"), Contains("Loss of held_out<"));
    const std::string text = read_file(history);
    CHECK_THAT(printed(all + Arguments{"--follow"}), Contains("Step 4 has results already"));
    CHECK(read_file(history) == text);
    const Arguments step = {tasks, "--steps=4"};
    CHECK_THAT(printed(step + Arguments{"--limit=1"}), Contains("tasks") && !Contains("wrote"));
    CHECK(read_file(history) == text);  // a trial counts as nothing
    const Arguments other = {"--context=16",    "--stride=8",
                             "--dtype=float32", "--add_bos_token=true",
                             "--delimiter=:",   "--tokenizer=" + evaluated().path("few")};
    const Outcome few = run_coeus(
        {"tokenizer", evaluated().path("text.txt"), "--vocab_size=262", "--output", evaluated().path("few")});
    CHECK(few.exit_code == 0);
    for (const char* said : {"wrote", "Step 4 has results already"})
        CHECK_THAT(printed(step + other), Contains(said));
    const std::string settings = R"("settings":{"tokenizer":")" + Tokenizer(evaluated().path("few")).hash() +
                                 R"(","dtype":"float32","context":16,"stride":8,"add_bos_token":true,)"
                                 R"("delimiter":":"}})";
    const std::string longer = read_file(history);
    CHECK(count_of("settings", text) == 0);
    CHECK(count_of(settings, longer) == count_of("\n", longer) - count_of("\n", text));
    CHECK(count_of(settings, longer) > 0);
    // what is written out is not another setting
    const Arguments same = {"--context=32", "--stride=32", "--add_bos_token=auto",
                            "--tokenizer=" + evaluated().path("tokenizer")};
    CHECK_THAT(printed(step + same), Contains("Step 4 has results already"));
    CHECK_THAT(printed(step + Arguments{"--force"}), Contains("wrote"));
    CHECK(count_of("\n", read_file(history)) > count_of("\n", longer));
    for (const char* line : {R"({"step":2,"task":"tasks","metric":"acc","value":)",
                             R"({"step":4,"task":"stories","metric":"loss","value":)",
                             R"({"step":4,"task":"held_out","metric":"bits_per_byte","value":)"})
        CHECK(count_of(line, text) == 1);
    const Outcome report = run_coeus(
        {"report", evaluated().run().string(), "--output", evaluated().path("report.html"), "--force"});
    INFO(report.output);
    CHECK(report.exit_code == 0);
    CHECK_THAT(read_file(evaluated().path("report.html")),
               Contains("Accuracy on tasks<") && Contains("Loss of held_out<") &&
                   Contains("dtype float32, context 16, stride 8, add_bos_token true, delimiter :)<"));
}

TEST_CASE("evaluate: results of other weights and of other lines are not those asked for") {
    const TemporaryFolder folder;
    const fs::path run = folder / "run", history = run / "evaluation.jsonl";
    evaluated().train_other(run, 2);
    evaluated().train_other(folder / "first", 2);
    const std::string tasks = (folder / "tasks.jsonl").string(),
                      nothing = (folder / "nothing.jsonl").string();
    const auto ask = [&](int gold) {
        write_file(tasks, fmt::format(R"({{"query": "The dog sat on", "choices": ["a", "b"], "gold": {}}})"
                                      "\n",
                                      gold));
    };
    const auto said = [&](const Arguments& files) {
        const Outcome outcome = run_coeus(Arguments{"evaluate", run.string(), "--steps=all"} + files +
                                          Arguments{"--device=cpu", "--training.threads=1"});
        INFO(outcome.output);
        CHECK(outcome.exit_code == 0);
        return outcome.output;
    };
    const std::string done = "Step 2 has results already";
    ask(0);
    CHECK_THAT(said({tasks}), Contains("wrote"));
    CHECK_THAT(said({tasks}), Contains(done) && !Contains("wrote"));
    // the same weights in another file
    fs::copy_file(folder / "first" / checkpoint_of(2), run / checkpoint_of(2),
                  fs::copy_options::overwrite_existing);
    CHECK_THAT(said({tasks}), Contains(done) && !Contains("wrote"));
    // a run that was resumed with other options saved the step again
    fs::copy_file(evaluated().run() / checkpoint_of(2), run / checkpoint_of(2),
                  fs::copy_options::overwrite_existing);
    CHECK_THAT(said({tasks}), Contains("wrote") && !Contains("already"));
    CHECK_THAT(said({tasks}), Contains(done));
    // a corrected file
    ask(1);
    CHECK_THAT(said({tasks}), Contains("wrote") && !Contains("already"));
    CHECK_THAT(said({tasks}), Contains(done));
    const std::string metric = R"({"step":2,"task":"tasks","metric":"acc","value":)";
    CHECK(count_of(metric, read_file(history)) == 3);
    // a further file: only its tasks are computed
    write_file(nothing,
               "{\"task\": \"some\", \"text\": \"The dog\"}\n{\"task\": \"none\", \"text\": \"\"}\n");
    CHECK_THAT(said({tasks, nothing}), Contains("Step 2 has results of 1 task already") &&
                                           Contains(": 1 request in") && !Contains("acc_norm") &&
                                           Contains("none: 1 document without tokens was left out"));
    CHECK(count_of(metric, read_file(history)) == 3);
    CHECK_THAT(said({tasks, nothing}), Contains(done) && !Contains("wrote"));
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
    expect_refusal({"evaluate", run, at.write("latin.txt", "caf\xe9")},
                   "latin.txt is not UTF-8, first at line 1, byte 4");
    expect_refusal({"evaluate", run, at.write("wide.txt", std::string("a\0b\0c\0d\0", 8))},
                   "wide.txt: is not text, or it is UTF-16LE without a byte order mark");
    expect_refusal({"evaluate", run, at.write("wide.jsonl", std::string("\xff\xfe{\0", 4))},
                   "wide.jsonl: is UTF-16, according to its byte order mark; convert it with iconv");
    expect_refusal({"evaluate", run, at.write("nul.txt", std::string(5000, 'a') + '\0')},
                   "nul.txt is not text: it has NUL bytes, first at line 1, byte 5001");
    const std::string table = at.write("a table.parquet", "PAR1\1\2\3");
    expect_refusal({"evaluate", run, table},
                   table +
                       " is a Parquet file; it must be text, JSON Lines or a token file; this writes its "
                       "documents: python3 -c '");
    expect_refusal({"evaluate", run, table}, "' '" + table + "' text > FILE.jsonl");
    expect_refusal({"evaluate", run, at.write("array.json", R"([{"text": "x"}])")},
                   "array.json: is an array or an object over several lines; each line must be an object");
    expect_refusal({"evaluate", run, at.write("ids.bin", "raw")},
                   "ids.bin: does not begin as token files of llm.c do");
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
                                     "--add_bos_token=true", "--delimiter=x", "--force"})
        expect_refusal({"evaluate", run, tasks, "--windows=training", option},
                       option.substr(0, option.find('=')) + " is for --windows documents");
    expect_refusal({"evaluate", run, tasks, "--steps=two"}, "--steps two: must be all, or numbers of steps");
    expect_refusal({"evaluate", run, tasks, "--steps=2,3"},
                   "--steps 3: " + run + "/checkpoint has no checkpoint of step 3; existing steps: 2, 4");
    expect_refusal({"evaluate", run, tasks, "--steps=all", "--output", at.path("x.json")},
                   "--output is for one checkpoint");
    for (const std::string flag : {"--output", "--samples"}) {
        const auto refuse_file = [&](const std::string& file, const std::string& message) {
            expect_refusal({"evaluate", run, tasks, "--force", flag, file},
                           fmt::format("{} {}: {}", flag, file, message));
        };
        refuse_file(at.path("nowhere/x.json"), "the folder " + at.path("nowhere") + " does not exist");
        refuse_file(at.path("tokenizer"), "is a folder; give the name of a file");
        refuse_file(at.path("tokenizer/../tasks.jsonl"), "this file is read, and cannot be replaced");
    }
    expect_refusal({"evaluate", run, tasks, "--training.steps=3"},
                   "--training.steps: coeus evaluate takes the model from its place");
    expect_refusal({"evaluate", run, tasks, "--parallelism.tensor_parallel_degree=2"}, "parallelism");
    const Outcome heads = evaluate({tasks, "--parallelism.tensor_parallel_degree=3"}, 3);
    INFO(heads.output);
    CHECK(heads.exit_code == 2);
    CHECK_THAT(heads.output, Contains("tensor_parallel_degree"));
}

TEST_CASE("evaluate: files are known by their content: lines of JSON, and tokens of other programs") {
    const Evaluated& at = evaluated();
    // lines
    const std::string lines = read_file(at.path("tasks.jsonl"));
    const std::string of_lines = printed({at.write("lines.txt", lines), "--limit=9"});
    CHECK_THAT(of_lines, Contains("lines.txt is JSON Lines, although the name does not end in .jsonl") &&
                             Contains("acc_norm") && Contains("stories"));
    const std::string others = "{\"question\": \"x\"}\n{\"question\": \"y\"}\n";
    CHECK_THAT(printed({at.write("others.txt", others), "--limit=9"}),
               Contains("others.txt is read as plain text, although the first lines are JSON objects") &&
                   Contains("\nothers "));
    // the same ids of four documents, which begin with BOS, in four formats
    const auto bos = uint16_t(Tokenizer(at.path("tokenizer")).bos_id().value());
    const auto bytes_of = [](const auto& values) {
        return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
    };
    std::vector<uint16_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(i % 10 == 0 ? bos : uint16_t(20 + i));
    std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (40,), }";
    header.append(118 - 1 - header.size(), ' ').push_back('\n');
    at.write("tokens.npy", "\x93NUMPY\x01" + std::string("\0\x76\0", 3) + header + bytes_of(ids));
    std::vector<int32_t> llm_c(256);
    llm_c[0] = 20240520, llm_c[1] = 1, llm_c[2] = 40;
    at.write("llm_c.bin", bytes_of(llm_c) + bytes_of(ids));
    // Megatron-LM: four sequences of ten ids of type 8, uint16
    const std::vector<int32_t> lengths(4, 10);
    at.write("pair.bin", bytes_of(ids));
    at.write("pair.idx", std::string("MMIDIDX\0\0", 9) + bytes_of(std::vector<int64_t>{1}) + '\x08' +
                             bytes_of(std::vector<int64_t>{4, 5}) + bytes_of(lengths) +
                             bytes_of(std::vector<int64_t>{0, 20, 40, 60}) +
                             bytes_of(std::vector<int64_t>{0, 1, 2, 3, 4}));
    const std::string numpy = printed({at.path("tokens.npy"), "--limit=9"});
    CHECK_THAT(numpy, Contains("a token file of NumPy with 40 tokens in 4 documents, which begin with"));
    const auto row = [&](const std::string& text, const std::string& task) {
        std::string line = text.substr(text.find('\n' + task + ' ') + 1 + task.size());
        line.resize(line.find('\n'));
        line.erase(0, line.find_first_not_of(' '));
        return line;
    };
    CHECK_THAT(row(numpy, "tokens"), Catch::StartsWith("4 "));
    const std::string llm = printed({at.path("llm_c.bin"), "--limit=9"});
    CHECK_THAT(llm, Contains("a token file of llm.c with 40 tokens in 4 documents, which begin with"));
    CHECK(row(llm, "llm_c") == row(numpy, "tokens"));
    for (const char* name : {"pair.bin", "pair.idx", "pair"}) {
        const std::string pair = printed({at.path(name), "--limit=9"});
        CHECK_THAT(pair, Contains("a token file of Megatron-LM with 40 tokens in 4 documents"));
        CHECK(row(pair, "pair") == row(numpy, "tokens"));
    }
    CHECK_THAT(row(printed({at.path("tokens.npy"), "--limit=2"}), "tokens"), Catch::StartsWith("2 "));
    // the same file under two names, and a text of one word
    at.write("word.txt", "mat");
    fs::create_symlink("word.txt", at.path("other_name.txt"));
    const std::string twice = printed(
        {at.path("word.txt"), at.path("tokenizer/../word.txt"), at.path("other_name.txt"), "--limit=9"});
    CHECK(
        count_of("is given more than once, but read only once: it is the same file as " + at.path("word.txt"),
                 twice) == 2);
    CHECK_THAT(row(twice, "word"), Catch::StartsWith("1 ") && Catch::EndsWith(" -"));
    CHECK_THAT(twice, Contains("1 request in") && !Contains("\nother_name"));
}

TEST_CASE("evaluate: a run is followed while its checkpoints come and go, until it has ended") {
    const TemporaryFolder folder;
    const fs::path run = folder / "run", checkpoints = run / "checkpoint";
    fs::create_directories(checkpoints);
    fs::copy_file(evaluated().run() / "deck.toml", run / "deck.toml");
    auto owner = std::make_unique<FolderOwner>(checkpoints, FolderOwner::Who::self());
    REQUIRE(owner->take());
    const auto follow = [&](const Arguments& more, const std::function<void(const std::string&)>& seen) {
        return run_shell(coeus_line(Arguments{"evaluate", run.string(), evaluated().path("tasks.jsonl"),
                                              "--device=cpu", "--training.threads=1", "--follow"} +
                                        more,
                                    0, {}, fmt::format("timeout {}", whole_patience(60))),
                         seen);
    };
    const fs::path removed = run / checkpoint_of(3);
    const Outcome followed = follow({"--steps=2,3,9"}, [&](const std::string& line) {
        if (line.find("Waiting for the first checkpoint of") != std::string::npos) {
            fs::copy_file(evaluated().run() / checkpoint_of(2), run / "part");
            fs::rename(run / "part", run / checkpoint_of(2));
        }
        if (line.starts_with("wrote")) fs::create_symlink(run / "nowhere", removed);  // listed, but not there
        if (line.find("was removed meanwhile") != std::string::npos) {
            fs::remove(removed);
            fs::remove(run / checkpoint_of(2));  // its step is done, so nobody misses it
            owner.reset();
        }
    });
    INFO(followed.output);
    CHECK(followed.exit_code == 0);
    CHECK_THAT(followed.output, Contains("Waiting for the first checkpoint of " + run.string()) &&
                                    Contains("step-00000003.h5 was removed meanwhile") &&
                                    Contains("--steps 9: the run has ended and left no checkpoint"));
    CHECK(count_of(R"({"step":2,"task":"tasks","metric":"acc",)", read_file(run / "evaluation.jsonl")) == 1);

    // a run that was killed leaves its file
    fs::copy_file(evaluated().run() / checkpoint_of(2), run / checkpoint_of(2));
    write_file(checkpoints / ".owner",
               R"({"id":"x","host":"n1","process":1,"process_start":1,"job":"","restart":0,"since":""})");
    const Outcome of_killed = follow({}, {});
    INFO(of_killed.output);
    CHECK(of_killed.exit_code == 0);
    CHECK_THAT(of_killed.output, Contains("Step 2 has results already") &&
                                     Contains("the run has ended at step 2 of 4; start `coeus evaluate " +
                                              run.string() + " ... --follow` again when it continues"));
}

TEST_CASE("evaluate: a run that was extended, or saves a step again, is followed until it has ended") {
    const TemporaryFolder folder;
    const fs::path run = folder / "run", part = folder / "part";
    fs::create_directories(run / "checkpoint");
    fs::copy_file(evaluated().run() / "deck.toml", run / "deck.toml");
    fs::copy_file(evaluated().run() / checkpoint_of(4), run / checkpoint_of(4));
    evaluated().train_other(folder / "other", 2);
    auto owner = std::make_unique<FolderOwner>(run / "checkpoint", FolderOwner::Who::self());
    REQUIRE(owner->take());
    const auto publish = [&](const fs::path& from) {
        fs::copy_file(from / checkpoint_of(2), part, fs::copy_options::overwrite_existing);
        fs::rename(part, run / checkpoint_of(2));
    };
    int written = 0;
    const Outcome followed = run_shell(
        coeus_line({"evaluate", run.string(), evaluated().path("tasks.jsonl"), "--device=cpu",
                    "--training.threads=1", "--follow"},
                   0, {}, fmt::format("timeout {}", whole_patience(60))),
        [&](const std::string& line) {
            if (line.find("Waiting for further checkpoints in ") != std::string::npos)
                publish(evaluated().run());  // although step 4 was the last one of the run until now
            if (!line.starts_with("wrote")) return;
            if (++written == 2) publish(folder / "other");
            if (written == 3) owner.reset();
        });
    INFO(followed.output);
    CHECK(followed.exit_code == 0);
    CHECK(written == 3);
    CHECK_THAT(followed.output, !Contains("the run has ended"));
    CHECK(count_of(R"({"step":2,"task":"tasks","metric":"acc",)", read_file(run / "evaluation.jsonl")) == 2);
}

TEST_CASE("evaluate: a run without a folder is waited for") {
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    evaluated().train_other(folder / "other", 2);
    const Outcome followed = run_shell(
        coeus_line({"evaluate", run.string(), evaluated().path("tasks.jsonl"), "--device=cpu",
                    "--training.threads=1", "--follow"},
                   0, {}, fmt::format("timeout {}", whole_patience(60))),
        [&](const std::string& line) {
            if (line.find(run.string() + " does not exist yet: waiting for the run") != std::string::npos)
                fs::rename(folder / "other", run);
        });
    INFO(followed.output);
    CHECK(followed.exit_code == 0);
    CHECK_THAT(followed.output, Contains("wrote " + run.string() + "/evaluation.jsonl"));
}

TEST_CASE("evaluate: results go to the folder of the run whose deck names the checkpoint's folder") {
    const TemporaryFolder folder;
    const fs::path run = folder / "run", project = folder / "project";
    const std::string elsewhere = (folder / "disk/weights").string();
    evaluated().train_other(run, 2, {"--checkpoint.folder=" + elsewhere});
    const auto said = [&](const fs::path& place, const Arguments& more) {
        const Outcome outcome =
            run_coeus(Arguments{"evaluate", place.string(), evaluated().path("tasks.jsonl"), "--device=cpu",
                                "--training.threads=1"} +
                      more);
        INFO(outcome.output);
        CHECK(outcome.exit_code == 0);
        return outcome.output;
    };
    CHECK_THAT(said(run, {"--follow"}), Contains("wrote " + run.string() + "/evaluation.jsonl"));
    for (const fs::path& place : {run, fs::path(elsewhere)})
        CHECK_THAT(said(place, {"--steps=all"}), Contains("Step 2 has results already"));
    // a deck that somebody wrote next to a copy does not make a run
    const std::string not_written = "no evaluation.jsonl is written: ";
    for (const char* copy : {"models/best.h5", "checkpoint/best.h5"}) {
        fs::create_directories((project / copy).parent_path());
        fs::copy_file(evaluated().run() / "deck.toml", project / "deck.toml",
                      fs::copy_options::overwrite_existing);
        fs::copy_file(elsewhere + "/step-00000002.h5", project / copy);
        CHECK_THAT(said(project / copy, {}), Contains(not_written + (project / copy).string()));
    }
    CHECK_FALSE(fs::exists(project / "evaluation.jsonl"));
    CHECK_THAT(said(project / "checkpoint/best.h5", {"--limit=1"}), !Contains(not_written));
}

TEST_CASE("evaluate: a run that is followed and ends without a checkpoint is not waited for") {
    const TemporaryFolder folder;
    auto owner = std::make_unique<FolderOwner>(folder.path(), FolderOwner::Who::self());
    REQUIRE(owner->take());
    const Outcome followed = run_shell(
        coeus_line(
            {"evaluate", folder.path().string(), evaluated().path("tasks.jsonl"), "--device=cpu", "--follow"},
            0, {}, fmt::format("timeout {}", whole_patience(60))),
        [&](const std::string& line) {
            if (line.find("Waiting for the first checkpoint of") != std::string::npos) owner.reset();
        });
    INFO(followed.output);
    CHECK(followed.exit_code == 2);
    CHECK_THAT(followed.output, Contains("the run has ended and has saved no checkpoint"));
}

TEST_CASE("evaluate: what is not a run's checkpoint is refused for the options of runs") {
    const TemporaryFolder folder;
    const std::string tasks = evaluated().path("tasks.jsonl"), hub = (folder / "hub").string();
    REQUIRE(convert_folder(evaluated().run(), hub).exit_code == 0);
    for (const char* option : {"--steps=all", "--follow"})
        expect_refusal({"evaluate", hub, tasks, option}, "--steps and --follow need the folder of a run");
    expect_refusal(
        {"evaluate", hub, tasks, "--windows=training", "--tokenizer", evaluated().path("tokenizer")},
        "--windows training: needs a checkpoint of a run");
    const fs::path run = folder / "run";
    fs::create_directories(run / "checkpoint");
    fs::copy_file(evaluated().run() / checkpoint_of(4), run / "checkpoint/model-00000004.h5");
    expect_refusal({"evaluate", run.string(), tasks, "--steps=all"},
                   "has no checkpoints of steps, only weights");
    train_tiny(folder / "other", evaluated().path("text.txt"),
               {"--model.hf_assets_path=" + evaluated().path("tokenizer"), "--model.vocab_size=288",
                "--model.n_layers=1", steps(2), "--checkpoint.enable", "--checkpoint.interval=2",
                "--checkpoint.last_save_model_only=false"});
    fs::copy_file(evaluated().run() / checkpoint_of(2), run / checkpoint_of(1));
    fs::copy_file((folder / "other") / checkpoint_of(2), run / checkpoint_of(2));
    expect_refusal({"evaluate", run.string(), tasks, "--steps=all", "--device=cpu", "--training.threads=1"},
                   "step-00000002.h5: is of another model than the checkpoints before it");
}
