// SPDX-License-Identifier: Apache-2.0
// `coeus train` from data to losses: any number of ranks, which sample is trained on when, masks, validation,
// and the files that a run writes. With optimizer.lr = 0 and one sequence per step, a step's loss tells which
// window of the data it was.
#include "coeus/file/json.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <regex>
#include <sstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

std::vector<double> sorted(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values;
}

std::vector<double> part(const std::vector<double>& values, size_t first, size_t count) {
    return {values.begin() + int64_t(first), values.begin() + int64_t(first + count)};
}

// Weights stay constant; one window of 4 + 1 tokens per step.
const Arguments fixed_weights = {"--optimizer.lr=0", "--training.local_batch_size=1", "--training.seq_len=4",
                                 "--metrics.log_freq=1"};

}  // namespace

TEST_CASE("1, 2 and 4 ranks train alike, up to rounding in double") {
    const TemporaryFolder folder;
    // labels and documents are distributed unevenly, so that ranks have different numbers of valid tokens
    TokenData data = {.tokens = learnable_tokens(100 * 18), .documents = {0, 5, 30, 31, 500, 900, 1800}};
    for (size_t i = 0; i < data.tokens.size(); ++i) data.loss_mask.push_back(i % 7 != 0 && i % 400 > 50);
    write_token_file(folder / "tokens.h5", data);
    const Arguments more = {"--training.dtype=float64",
                            "--training.steps=20",
                            "--training.local_batch_size=2",
                            "--training.global_batch_size=8",
                            "--training.shuffle",
                            "--training.document_mask",
                            "--validation.enable",
                            "--validation.freq=10",
                            "--validation.steps=1"};
    struct Layout {
        const char* what;
        int ranks;
        Arguments arguments;
    };
    const Layout layouts[] = {
        {"1 rank, one batch", 0, {"--training.local_batch_size=8", "--validation.local_batch_size=1"}},
        {"1 rank, accumulating", 0, {"--validation.local_batch_size=1"}},
        {"2 ranks", 2, {"--validation.local_batch_size=2"}},
        {"4 ranks", 4, {"--validation.local_batch_size=1"}},
        {"4 ranks, 2 x 2",
         4,
         {"--parallelism.data_parallel_replicate_degree=2", "--parallelism.data_parallel_shard_degree=2"}},
        {"2 ranks, tp",
         2,
         {"--parallelism.tensor_parallel_degree=2", "--training.local_batch_size=4",
          "--validation.local_batch_size=1"}},
        {"4 ranks, 2 x 2 tp",
         4,
         {"--parallelism.tensor_parallel_degree=2", "--parallelism.fsdp_reshard_after_forward=never",
          "--parallelism.disable_loss_parallel", "--validation.local_batch_size=2"}},
    };
    std::optional<MetricLines> first;
    for (const Layout& layout : layouts) {
        CAPTURE(layout.what);
        const fs::path out = folder / layout.what;
        const Outcome run = train_tiny(out, folder / "tokens.h5", more + layout.arguments, layout.ranks);
        const MetricLines lines = read_metrics(out);
        REQUIRE(lines.steps.size() == 20);
        REQUIRE(lines.validations.size() == 3);
        CHECK(count_of("not implemented yet", run.output) == 0);
        const bool several_read = layout.ranks > 1 && layout.what != std::string("2 ranks, tp");
        if (!first) first = lines;
        for (size_t i = 0; i < 20; ++i) {
            CAPTURE(i);
            const StepLine &is = lines.steps[i], &should = first->steps[i];
            CHECK(is.step == int64_t(i) + 1);
            CHECK(relatively_close(is.loss, should.loss, 1e-11));
            CHECK(relatively_close(is.grad_norm, should.grad_norm, 1e-9));
            CHECK(is.lr == should.lr);
            CHECK(is.tokens_seen == int64_t(i + 1) * 8 * 16);
            CHECK((several_read ? is.loss_max > is.loss : relatively_close(is.loss_max, is.loss, 1e-14)));
        }
        for (size_t i = 0; i < 3; ++i) {
            CHECK(lines.validations[i].step == (i == 0 ? 1 : int64_t(i) * 10));
            CHECK(relatively_close(lines.validations[i].loss, first->validations[i].loss, 1e-11));
            CHECK(lines.validations[i].tokens == first->validations[i].tokens);
        }
        CHECK(lines.steps.back().loss < lines.steps.front().loss);
    }
}

TEST_CASE("samples have the order of the data, and epochs repeat") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5",
                     {.tokens = learnable_tokens(7 * 5 + 3)});  // 7 windows; 3 tokens are left over
    train_tiny(folder / "out", folder / "tokens.h5", fixed_weights + Arguments{steps(17)});
    const MetricLines lines = read_metrics(folder / "out");
    const std::vector<double> losses = lines.losses();
    REQUIRE(losses.size() == 17);
    for (const StepLine& line : lines.steps) CHECK(line.epoch == double(line.step) / 7);
    for (size_t i = 0; i < 17; ++i) CHECK(losses[i] == losses[i % 7]);
    const std::vector<double> epoch = sorted(part(losses, 0, 7));
    CHECK(std::adjacent_find(epoch.begin(), epoch.end()) == epoch.end());
}

TEST_CASE("shuffling permutes the samples, differently in each epoch and for each seed") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(20 * 5)});
    const Arguments more = fixed_weights + Arguments{steps(60)};
    train_tiny(folder / "plain", folder / "tokens.h5", more);
    train_tiny(folder / "shuffled", folder / "tokens.h5", more + Arguments{"--training.shuffle"});
    train_tiny(folder / "again", folder / "tokens.h5", more + Arguments{"--training.shuffle"}, 1);
    const std::vector<double> plain = part(read_metrics(folder / "plain").losses(), 0, 20);
    const std::vector<double> shuffled = read_metrics(folder / "shuffled").losses();
    CHECK(read_metrics(folder / "again").losses() == shuffled);
    REQUIRE(shuffled.size() == 60);
    for (size_t epoch = 0; epoch < 3; ++epoch) {
        const std::vector<double> order = part(shuffled, 20 * epoch, 20);
        CHECK(sorted(order) == sorted(plain));
        CHECK(order != plain);
        for (size_t before = 0; before < epoch; ++before) CHECK(order != part(shuffled, 20 * before, 20));
    }
    // another seed also has other weights: so the positions of an epoch's samples are compared, not their
    // losses
    train_tiny(folder / "other", folder / "tokens.h5",
               more + Arguments{"--training.shuffle", "--debug.seed=1"});
    train_tiny(folder / "other plain", folder / "tokens.h5", more + Arguments{"--debug.seed=1"});
    const auto positions = [](const std::vector<double>& order, const std::vector<double>& samples) {
        std::vector<size_t> found;
        for (double loss : order)
            found.push_back(size_t(std::find(samples.begin(), samples.end(), loss) - samples.begin()));
        return found;
    };
    CHECK(positions(part(read_metrics(folder / "other").losses(), 0, 20),
                    part(read_metrics(folder / "other plain").losses(), 0, 20)) !=
          positions(part(shuffled, 0, 20), plain));
}

TEST_CASE("every 100th window is held out for validation and never trained on") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(250 * 5)});
    const Arguments more = fixed_weights + Arguments{steps(250), "--training.dtype=float64"};
    train_tiny(folder / "all", folder / "tokens.h5", more);
    const std::vector<double> all = read_metrics(folder / "all").losses();
    train_tiny(
        folder / "held out", folder / "tokens.h5",
        more + Arguments{"--validation.enable", "--validation.freq=100", "--validation.local_batch_size=3"});
    const MetricLines lines = read_metrics(folder / "held out");
    std::vector<double> expected;
    for (size_t window = 0; window < 250; ++window)
        if (window != 99 && window != 199) expected.push_back(all[window]);
    expected.insert(expected.end(), all.begin(), all.begin() + 2);  // the next epoch
    CHECK(lines.losses() == expected);
    REQUIRE(lines.validations.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
        CHECK(lines.validations[i].step == (i == 0 ? 1 : int64_t(i) * 100));
        CHECK(lines.validations[i].tokens == 2 * 4);
        CHECK(relatively_close(lines.validations[i].loss, (all[99] + all[199]) / 2, 1e-12));
    }
    // also with shuffling
    train_tiny(folder / "shuffled", folder / "tokens.h5",
               more + Arguments{"--validation.enable", "--training.shuffle", steps(248)});
    CHECK(sorted(read_metrics(folder / "shuffled").losses()) == sorted(part(expected, 0, 248)));
}

TEST_CASE("separate validation data does not affect the training") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(12 * 17)});
    std::vector<uint16_t> other = learnable_tokens(5 * 9 + 1);
    std::reverse(other.begin(), other.end());
    write_token_file(folder / "other.h5", {.tokens = other});
    train_tiny(folder / "without", folder / "tokens.h5", {"--checkpoint.enable"});
    const Arguments validation = {
        "--checkpoint.enable",    "--validation.enable",
        "--validation.freq=2",    "--validation.dataset_path=" + (folder / "other.h5").string(),
        "--validation.seq_len=8", "--validation.local_batch_size=2"};
    train_tiny(folder / "with", folder / "tokens.h5", validation);
    train_tiny(folder / "some", folder / "tokens.h5", validation + Arguments{"--validation.steps=2"});
    const MetricLines without = read_metrics(folder / "without"), with = read_metrics(folder / "with");
    CHECK(without.validations.empty());
    CHECK(with.losses() == without.losses());
    CHECK(differing_arrays(folder / "with" / "checkpoint/step-00000006.h5",
                           folder / "without" / "checkpoint/step-00000006.h5")
              .empty());
    std::vector<int64_t> at, tokens;
    for (const ValidationLine& line : with.validations)
        at.push_back(line.step), tokens.push_back(line.tokens);
    CHECK(at == std::vector<int64_t>{1, 2, 4, 6});
    CHECK(tokens == std::vector<int64_t>(4, 5 * 8));
    CHECK(read_metrics(folder / "some").validations.at(0).tokens == 2 * 2 * 8);
}

TEST_CASE("the document mask keeps attention within documents") {
    // One window of two documents; only labels of the second count, so the tokens of the first must not
    // matter.
    const TemporaryFolder folder;
    TokenData data = {.tokens = learnable_tokens(17), .documents = {0, 8, 17}};
    for (int i = 0; i < 17; ++i) data.loss_mask.push_back(i > 8);
    write_token_file(folder / "a.h5", data);
    for (size_t i = 0; i < 8; ++i) data.tokens[i] = uint16_t(63 - data.tokens[i]);
    write_token_file(folder / "b.h5", data);
    const auto loss = [&](const char* file, const Arguments& more) {
        const fs::path out = folder / (file + std::to_string(more.size()));
        train_tiny(out, folder / file,
                   Arguments{"--training.local_batch_size=1", steps(1), "--training.dtype=float64"} + more);
        return read_metrics(out).losses().at(0);
    };
    CHECK(loss("a.h5", {"--training.document_mask"}) == loss("b.h5", {"--training.document_mask"}));
    CHECK(std::fabs(loss("a.h5", {}) - loss("b.h5", {})) > 1e-4);
    CHECK(std::fabs(loss("a.h5", {}) - loss("a.h5", {"--training.document_mask"})) > 1e-4);
}

TEST_CASE("tokens that the loss mask excludes are not labels") {
    const TemporaryFolder folder;
    const auto losses = [&](const std::string& name, const TokenData& data) {
        write_token_file(folder / (name + ".h5"), data);
        train_tiny(folder / name, folder / (name + ".h5"),
                   fixed_weights + Arguments{steps(2), "--training.dtype=float64"});
        return read_metrics(folder / name).losses();
    };
    // the last token of a window is only a label
    TokenData data = {.tokens = learnable_tokens(10)};
    const std::vector<double> plain = losses("plain", data);
    data.loss_mask = {1, 1, 1, 1, 0, 1, 1, 1, 1, 1};
    const std::vector<double> masked = losses("masked", data);
    data.tokens[4] = uint16_t(63 - data.tokens[4]);
    const std::vector<double> changed = losses("changed", data);
    CHECK(masked[0] != plain[0]);
    CHECK(masked[1] == plain[1]);
    CHECK(changed == masked);
    data.loss_mask.clear();
    CHECK(losses("unmasked", data)[0] != plain[0]);
    // the mean is over the remaining labels: the mean of 4 losses of one label each equals the loss of all
    // four
    double sum = 0;
    for (size_t i = 1; i < 5; ++i) {
        TokenData one = {.tokens = learnable_tokens(10), .loss_mask = std::vector<uint8_t>(10, 1)};
        for (size_t j = 0; j < 5; ++j) one.loss_mask[j] = j == i;
        sum += losses("only " + std::to_string(i), one)[0];
    }
    CHECK(relatively_close(sum / 4, plain[0], 1e-12));
}

TEST_CASE("all types learn alike") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(200 * 17)});
    const Arguments more = {steps(40), "--metrics.log_freq=40"};
    const auto final_loss = [&](const std::string& name, const Arguments& types) {
        train_tiny(folder / name, folder / "tokens.h5", more + types);
        return read_metrics(folder / name).losses().back();
    };
    const double truth = final_loss("f64", {"--training.dtype=float64"});
    CHECK(truth < 3.6);  // ln 64 = 4.16
    CHECK(relatively_close(final_loss("f32", {}), truth, 1e-3));
    CHECK(relatively_close(final_loss("bf16", {"--training.mixed_precision_param=bfloat16"}), truth, 0.02));
    CHECK(relatively_close(
        final_loss("sr", {"--training.dtype=bfloat16", "--training.mixed_precision_param=bfloat16"}), truth,
        0.05));
}

TEST_CASE("the output of a run") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const fs::path out = folder / "out";
    const Arguments more = {"--validation.enable", "--validation.freq=3", "--job.description=a tiny run"};
    const Outcome run = train_tiny(out, folder / "tokens.h5", more, 2);

    SECTION("the terminal has one line per step in torchtitan's form, and eta") {
        const std::regex step_line(
            R"(^\[coeus\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - info - step: [ \d]\d  loss: [ \d]\d\.\d{5}  )"
            R"(grad_norm: [ \d]\d\.\d{4}  lr: \d\.\d\de-\d\d  memory: [ \d]\d\.\d\dGiB\(\d+\.\d\d%\)  )"
            R"(tps: [\d,]+  tflops: \d+\.\d\d  mfu: (\d+\.\d\d%|N/A)  eta: .+ \([1-6]/6\)$)");
        const std::regex validation_line(R"(- info - validate step: [ \d]\d  loss: [ \d]\d\.\d{4}  )"
                                         R"(memory: [ \d]\d\.\d\dGiB\(\d+\.\d\d%\)  tps: [\d,]+$)");
        int step_lines = 0, validation_lines = 0;
        for (const std::string& line : lines_of(run.output)) {
            step_lines += std::regex_match(line, step_line);
            validation_lines += std::regex_search(line, validation_line);
        }
        INFO(run.output);
        CHECK(step_lines == 6);
        CHECK(count_of(" step: ", run.output) == 6 + 3);
        CHECK(validation_lines == 3);
        CHECK(run.output.find('\033') == std::string::npos);
        CHECK(count_of("Model: llama3 debugmodel", run.output) == 1);
        CHECK(count_of("Mesh: 2 ranks: dp_shard 2", run.output) == 1);
        CHECK_THAT(run.output, Contains("Job: a tiny run"));
    }
    SECTION("metrics.jsonl has every value with all digits") {
        std::vector<std::string> keys, validation_keys;
        const std::string text = read_file(out / "metrics.jsonl");
        for (const std::string& line : lines_of(text)) {
            const JsonDocument document = JsonDocument::parse(line, "metrics.jsonl");
            if (document.root().contains("checkpoint_step")) continue;
            auto& found = document.root().contains("validation_loss") ? validation_keys : keys;
            found.clear();
            for (const auto& [key, value] : document.root().items()) found.push_back(key);
        }
        CHECK(keys == std::vector<std::string>{"step", "loss", "loss_max", "grad_norm", "lr", "tokens_seen",
                                               "epoch", "tps", "tflops", "mfu", "memory_gib",
                                               "memory_percent", "resident_gib", "step_s", "data_s",
                                               "data_percent", "eta_s", "time", "run_s"});
        CHECK(validation_keys == std::vector<std::string>{"step", "validation_loss", "validation_tokens",
                                                          "validation_s", "validation_tps", "memory_gib",
                                                          "memory_percent", "time", "run_s"});
        // 1e-2 after the warm-up of 2 steps, then down to 1/5 in the last step: the decay has one virtual
        // step more than 4
        const MetricLines lines = read_metrics(out);
        const std::vector<double> factors = {0.5, 1, 1, 0.75, 0.5, 0.25};
        for (size_t i = 0; i < 6; ++i) CHECK(relatively_close(lines.steps[i].lr, 1e-2 * factors[i], 1e-14));
        std::smatch digits;
        REQUIRE(std::regex_search(text, digits, std::regex(R"("loss":\d\.(\d+))")));
        CHECK(digits[1].length() >= 10);
    }
    SECTION("every rank has its log, without colours") {
        for (int rank : {0, 1}) {
            const std::string log = read_file(out / "log" / fmt::format("rank_{}.log", rank));
            CHECK(count_of(" step: ", log) == 6 + 3);
            CHECK(log.find('\033') == std::string::npos);
        }
    }
    SECTION("deck.toml is a deck that repeats the run") {
        const Outcome again = run_coeus(
            {"train", (out / "deck.toml").string(), "--job.dump_folder=" + (folder / "again").string()}, 2);
        INFO(again.output);
        CHECK(again.exit_code == 0);
        const MetricLines a = read_metrics(out), b = read_metrics(folder / "again");
        REQUIRE(b.steps.size() == 6);
        CHECK(b.losses() == a.losses());
        CHECK(b.validations.at(2).loss == a.validations.at(2).loss);
        const auto without_folder = [](const std::string& deck) {
            return std::regex_replace(deck, std::regex("(#|dump_folder = ).*\n"), "");
        };
        CHECK(without_folder(read_file(folder / "again" / "deck.toml")) ==
              without_folder(read_file(out / "deck.toml")));
    }
}

TEST_CASE("the output on the terminal can be chosen") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const auto run = [&](const Arguments& more, const std::map<std::string, std::string>& environment = {}) {
        const Outcome outcome = run_coeus(
            tiny_run(folder / "out", folder / "tokens.h5", Arguments{steps(2)} + more), 2, environment);
        INFO(outcome.output);
        CHECK(outcome.exit_code == 0);
        return outcome.output;
    };
    const std::string both = run({"--log.ranks=0,1"}), second = run({}, {{"LOG_RANK", "1"}});
    CHECK(count_of(" loss: ", both) == 4);
    CHECK(count_of(" - rank 0: step: ", both) == 2);
    CHECK(count_of(" - rank 1: step: ", both) == 2);
    CHECK(count_of(" loss: ", second) == 2);
    CHECK(count_of(" - rank 1: step: ", second) == 2);
    CHECK(count_of("rank 0: ", run({})) == 0);
    CHECK(run({"--quiet"}).empty());
    CHECK_THAT(run({"--training.threads=999"}), Contains("Hint: 2 ranks x 999 threads must share "));
    const std::string quiet = run({"--log.quiet"});
    CHECK(quiet.empty());
    CHECK(count_of(" loss: ", read_file(folder / "out/log/rank_0.log")) > 0);
    CHECK(count_of(" loss: ", run({"--metrics.log_freq=50"})) == 2);  // the first and the last step
    CHECK_THAT(run({"--job.print_config", "--job.save_config_file=saved.toml"}), Contains("seq_len = 16"));
    CHECK(read_file(folder / "out/saved.toml") == read_file(folder / "out/deck.toml"));
}

TEST_CASE("a profile shows where the time went") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const Outcome plain = train_tiny(folder / "plain", folder / "tokens.h5");
    CHECK(count_of("Profile of rank", plain.output) == 0);
    const Outcome run = train_tiny(folder / "out", folder / "tokens.h5", {"--profile"}, 2);
    CHECK(count_of("Profile of rank 0: 4 steps of ", run.output) == 1);  // the first two are the warm-up
    for (const char* line :
         {"  gemm ", "  attention ", "  attention_backward ", "  adam ", "  gather_weights ",
          "  reduce_gradients ", "  cross_entropy ", "  waiting for data ", "  outside of kernels "})
        CHECK(count_of(line, run.output) == 1);
    CHECK(count_of("Profile of rank 1: 4 steps of ", read_file(folder / "out/log/rank_1.log")) == 1);
    CHECK(read_metrics(folder / "out").losses().size() == 6);
    const Outcome one = train_tiny(folder / "one", folder / "tokens.h5", {"--profile", steps(1)});
    CHECK(count_of("Profile of rank 0: 1 step of ", one.output) == 1);
    const Outcome more = train_tiny(folder / "more", folder / "tokens.h5", {"--profile", steps(8)});
    CHECK(count_of("Profile of rank 0: 4 steps of ", more.output) == 1);  // the last ones
}

TEST_CASE("traces are written for the steps of the cycle, by every rank") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const Outcome run = train_tiny(
        folder / "out", folder / "tokens.h5",
        {"--profiling.enable_profiling", "--profiling.profile_freq=3", "--profiling.profiler_active=2",
         "--profiling.profiler_warmup=1", "--profiling.save_traces_folder=traces", steps(7)},
        2);
    CHECK(count_of("Trace of step 3 in ", run.output) == 1);
    CHECK(count_of("Trace of step 6 in ", run.output) == 1);
    CHECK(count_of("Trace of step", run.output) == 2);
    for (const char* iteration : {"iteration_3", "iteration_6"})
        for (const char* rank : {"rank0", "rank1"}) {
            const fs::path file = folder / "out/traces" / iteration / rank;
            const JsonDocument trace = JsonDocument::read(file.string() + "_trace.json");
            int adams = 0, gathers = 0;
            for (const JsonView& event : trace.root()["traceEvents"].elements()) {
                adams += event.string("name") == "finish_norm";
                gathers += event.string("name") == "all_gather";
            }
            CHECK(adams == 2);  // one per step
            CHECK(gathers > 2 * 4);
            CHECK_THAT(read_file(file.string() + "_overlap.txt"), Contains("\ndp_shard, gradients "));
        }
}

TEST_CASE("memory does not grow") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5",
                     {.tokens = learnable_tokens(100 * 17), .documents = {0, 700, 1700}});
    const Arguments more = {
        steps(3000),           "--training.document_mask", "--training.shuffle",
        "--validation.enable", "--validation.freq=100",    "--training.mixed_precision_param=bfloat16",
        "--log.quiet"};
    train_tiny(folder / "out", folder / "tokens.h5", more);
    const MetricLines lines = read_metrics(folder / "out");
    const auto memory = [&](size_t step) {
        return lines.steps.at(step - 1).resident_gib * 1024 * 1024;
    };  // KiB
    // A leak of a hundred bytes per step would be visible in every window of steps. What a thread takes once,
    // however late it first works, is in one of them.
    double least_growth = 1e9;
    for (const size_t begin : {1500, 2000, 2500})
        least_growth = std::min(least_growth, memory(begin + 500) - memory(begin));
    CHECK(least_growth <= 32);
    CHECK(memory(10) > 4096);
    CHECK(lines.steps.at(2999).memory_gib >= lines.steps.at(2999).resident_gib);
}
