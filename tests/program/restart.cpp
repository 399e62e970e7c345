// SPDX-License-Identifier: Apache-2.0
// A run that was stopped and started again ends with the same bits as an uninterrupted one.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// 30 windows: with 8 samples per step, the first epoch ends within the fourth step.
fs::path write_30_windows(const TemporaryFolder& folder) {
    const fs::path file = folder / "tokens.h5";
    write_token_file(file, {.tokens = learnable_tokens(30 * 17), .documents = {0, 7, 7, 100, 300, 510}});
    return file;
}

const Arguments saving_at_end = {"--checkpoint.enable", "--checkpoint.interval=100", "--training.shuffle",
                                 "--lr_scheduler.total_steps=7"};

}  // namespace

TEST_CASE("a run that is stopped and resumed has the bits of an uninterrupted one") {
    struct Case {
        const char* what;
        Arguments arguments;
        int ranks;
    };
    const Case all[] = {
        {"float32, 2 ranks", {"--training.document_mask"}, 2},
        {"bfloat16 compute", {"--training.mixed_precision_param=bfloat16"}, 0},
        {"bfloat16 weights", {"--training.dtype=bfloat16", "--training.mixed_precision_param=bfloat16"}, 0},
        {"bfloat16 gradients, 2 ranks",
         {"--training.gradient_dtype=bfloat16", "--training.mixed_precision_param=bfloat16"},
         2},
    };
    for (const Case& c : all) {
        CAPTURE(c.what);
        const TemporaryFolder folder;
        const fs::path data = write_30_windows(folder), whole = folder / "whole", parts = folder / "parts";
        const Arguments more = saving_at_end + c.arguments + Arguments{"--training.global_batch_size=8"};
        train_tiny(whole, data, more + Arguments{steps(7)}, c.ranks);
        for (int64_t stop : {1, 2, 5, 7}) {
            const Outcome run = train_tiny(parts, data, more + Arguments{steps(stop)}, c.ranks);
            CHECK_THAT(run.output, Contains(fmt::format("Training completed at step {}", stop)));
            if (stop > 1) CHECK_THAT(run.output, Contains("Resuming from"));
        }
        const MetricLines a = read_metrics(whole), b = read_metrics(parts);
        REQUIRE(a.steps.size() == 7);
        REQUIRE(b.steps.size() == 7);
        for (size_t i = 0; i < 7; ++i) {
            CAPTURE(i);
            CHECK(b.steps[i].step == int64_t(i) + 1);
            CHECK(b.steps[i].loss == a.steps[i].loss);
            CHECK(b.steps[i].loss_max == a.steps[i].loss_max);
            CHECK(b.steps[i].grad_norm == a.steps[i].grad_norm);
            CHECK(b.steps[i].lr == a.steps[i].lr);
            CHECK(b.steps[i].tokens_seen == a.steps[i].tokens_seen);
            CHECK(b.steps[i].run_s > (i > 0 ? b.steps[i - 1].run_s : 0));
        }
        // the time between two starts is not the run's
        CHECK(b.steps[6].run_s - b.steps[0].run_s < b.steps[6].time - b.steps[0].time);
        CHECK(close(a.steps[6].run_s - a.steps[0].run_s, a.steps[6].time - a.steps[0].time, 0.05));
        CHECK(a.losses().back() < a.losses().front());
        CHECK(differing_arrays(whole / checkpoint_of(7), parts / checkpoint_of(7)).empty());
        CHECK_FALSE(differing_arrays(parts / checkpoint_of(5), parts / checkpoint_of(7)).empty());
    }
}

TEST_CASE("a run continues on another number of ranks") {
    const TemporaryFolder folder;
    const fs::path data = write_30_windows(folder);
    const Arguments more =
        saving_at_end + Arguments{"--training.dtype=float64", "--training.local_batch_size=1",
                                  "--training.global_batch_size=4", "--validation.enable",
                                  "--validation.freq=2"};
    train_tiny(folder / "one", data, more + Arguments{steps(7)});
    train_tiny(folder / "moving", data, more + Arguments{steps(2)}, 4);
    train_tiny(folder / "moving", data, more + Arguments{steps(4)}, 1);
    train_tiny(folder / "moving", data, more + Arguments{steps(7)}, 2);
    const MetricLines one = read_metrics(folder / "one"), moving = read_metrics(folder / "moving");
    REQUIRE(moving.steps.size() == 7);
    REQUIRE(moving.validations.size() == 4);
    for (size_t i = 0; i < 7; ++i) {
        CAPTURE(i);
        CHECK(relatively_close(moving.steps[i].loss, one.steps[i].loss, 1e-11));
        CHECK(relatively_close(moving.steps[i].grad_norm, one.steps[i].grad_norm, 1e-9));
        CHECK(moving.steps[i].lr == one.steps[i].lr);
        CHECK(moving.steps[i].tokens_seen == one.steps[i].tokens_seen);
    }
    for (size_t i = 0; i < 4; ++i)
        CHECK(relatively_close(moving.validations[i].loss, one.validations[i].loss, 1e-11));
}

TEST_CASE("a resumed run with another batch size repeats and skips no sample") {
    // The weights stay constant, so the loss of a step of one sequence tells which sample it was.
    const TemporaryFolder folder;
    const fs::path data = write_30_windows(folder);
    const Arguments more = {"--optimizer.lr=0", "--training.dtype=float64", "--training.local_batch_size=1",
                            "--checkpoint.enable", "--training.shuffle"};
    train_tiny(folder / "one", data, more + Arguments{steps(40)});
    train_tiny(folder / "moving", data, more + Arguments{steps(5)}, 3);  // samples 0 to 14
    train_tiny(folder / "moving", data,
               more + Arguments{steps(12), "--training.local_batch_size=2"});  // to 28
    train_tiny(folder / "moving", data, more + Arguments{steps(20)});
    const std::vector<double> sample = read_metrics(folder / "one").losses();
    const std::vector<double> found = read_metrics(folder / "moving").losses();
    REQUIRE(found.size() == 20);
    for (size_t i = 0; i < 5; ++i)
        CHECK(relatively_close(found[i], (sample[3 * i] + sample[3 * i + 1] + sample[3 * i + 2]) / 3, 1e-12));
    for (size_t i = 5; i < 12; ++i)
        CHECK(relatively_close(found[i], (sample[5 + 2 * i] + sample[6 + 2 * i]) / 2, 1e-12));
    for (size_t i = 12; i < 20; ++i) CHECK(relatively_close(found[i], sample[17 + i], 1e-12));
    CHECK(read_metrics(folder / "moving").steps.back().tokens_seen == 37 * 16);
}

TEST_CASE("windows are shuffled by default, and a resumed run keeps the order of its checkpoint") {
    const TemporaryFolder folder;
    const fs::path data = write_30_windows(folder);
    const auto train = [&](const char* run, const Arguments& more) {
        Arguments all = tiny_run(folder / run, data, {"--checkpoint.enable", "--optimizer.lr=0"});
        std::erase(all, "--training.shuffle=false");
        const Outcome outcome = run_coeus(all + more);
        INFO(outcome.output);
        CHECK(outcome.exit_code == 0);
        return outcome.output;
    };
    train("shuffled", {"--training.shuffle"});
    train("ordered", {"--training.shuffle=false"});
    train("default", {});
    const std::vector<double> shuffled = read_metrics(folder / "shuffled").losses(),
                              ordered = read_metrics(folder / "ordered").losses();
    CHECK(shuffled != ordered);
    CHECK(read_metrics(folder / "default").losses() == shuffled);

    for (const char* start : {"--training.shuffle", "--training.shuffle=false"}) {
        CAPTURE(start);
        const bool shuffles = start == std::string("--training.shuffle");
        const char* run = shuffles ? "resumed_shuffled" : "resumed_ordered";
        train(run, {start, steps(2)});
        for (const int64_t step : {4, 6})  // the second start resumes from the first one's checkpoint
            CHECK_THAT(train(run, {steps(step)}), Contains("Resuming from") && !Contains("training.shuffle"));
        CHECK(read_metrics(folder / run).losses() == (shuffles ? shuffled : ordered));
        CHECK_THAT(read_file(folder / run / "deck.toml"),
                   Contains(shuffles ? "shuffle = true" : "shuffle = false"));
    }
    // a deck that does not set the order describes the same run, which is finished
    CHECK_THAT(train("resumed_ordered", {steps(6)}), Contains("already at step 6"));
}

TEST_CASE("a finished run says so and leaves everything as it is") {
    const TemporaryFolder folder;
    const fs::path data = write_30_windows(folder), out = folder / "out";
    train_tiny(out, data, saving_at_end + Arguments{steps(3)});
    const std::string metrics = read_file(out / "metrics.jsonl"), state = read_file(out / checkpoint_of(3)),
                      deck = read_file(out / "deck.toml");
    const Outcome again = train_tiny(out, data, saving_at_end + Arguments{steps(3)}, 2);
    CHECK(count_of("already at step 3 of training.steps = 3", again.output) == 1);
    CHECK(count_of(" loss: ", again.output) == 0);
    const Outcome fewer = train_tiny(out, data, saving_at_end + Arguments{steps(2)});
    CHECK(count_of("already at step 3 of training.steps = 2", fewer.output) == 1);
    CHECK(read_file(out / "metrics.jsonl") == metrics);
    CHECK(read_file(out / checkpoint_of(3)) == state);
    CHECK(read_file(out / "deck.toml") == deck);
    // a run that was killed between its last checkpoint and the export of the model writes the export now
    const fs::path model = out / "checkpoint/model-00000003.h5";
    const std::string exported = read_file(model);
    fs::remove(model);
    const Outcome belated = train_tiny(out, data, saving_at_end + Arguments{steps(3)}, 2);
    CHECK(count_of("Saved the model weights as " + model.string(), belated.output) == 1);
    CHECK((read_file(model) == exported));
    fs::remove(model);
    for (const char* no : {"--checkpoint.load_only", "--checkpoint.no_last_save_model_only"})
        train_tiny(out, data, saving_at_end + Arguments{steps(3), no});
    train_tiny(out, data, saving_at_end + Arguments{steps(2)});
    CHECK_FALSE(fs::exists(model));
    const Outcome hub =
        train_tiny(out, data, saving_at_end + Arguments{steps(3), "--checkpoint.last_save_in_hf"});
    CHECK(count_of("Saved the model weights as ", hub.output) == 1);
    CHECK(fs::exists(out / "checkpoint/hf-00000003/config.json"));
    const Outcome written =
        train_tiny(out, data, saving_at_end + Arguments{steps(3), "--checkpoint.last_save_in_hf"});
    CHECK(count_of("Saved the model weights as ", written.output) == 0);
    // without checkpoints every start is a new run
    const Outcome fresh = train_tiny(out, data, {steps(2)});
    CHECK(count_of("already at step", fresh.output) == 0);
    CHECK(read_metrics(out).steps.size() == 2);
}

TEST_CASE("after a resume, metrics.jsonl has each step once") {
    const TemporaryFolder folder;
    const fs::path data = write_30_windows(folder), out = folder / "out";
    const Arguments more = saving_at_end + Arguments{"--validation.enable", "--validation.freq=2"};
    train_tiny(folder / "whole", data, more + Arguments{steps(7)});
    // as if the run had been killed in step 6, while it wrote a line
    train_tiny(out, data, more + Arguments{"--checkpoint.interval=3", steps(5)});
    fs::remove(out / checkpoint_of(5));
    write_file(out / "metrics.jsonl", read_file(out / "metrics.jsonl") + "{\"step\":6,\"loss\":3.4");
    const Outcome resumed = train_tiny(out, data, more + Arguments{steps(7)});
    CHECK_THAT(resumed.output, Contains("Resuming from") && Contains("step 3, 192 tokens seen"));
    const MetricLines whole = read_metrics(folder / "whole"), parts = read_metrics(out);
    CHECK(parts.losses() == whole.losses());
    REQUIRE(parts.validations.size() == whole.validations.size());
    for (size_t i = 0; i < whole.validations.size(); ++i) {
        CHECK(parts.validations[i].step == whole.validations[i].step);
        CHECK(parts.validations[i].loss == whole.validations[i].loss);
    }
    // from a chosen step
    const Outcome chosen = train_tiny(out, data, more + Arguments{steps(7), "--checkpoint.load_step=3"});
    CHECK_THAT(chosen.output, Contains("step 3, 192 tokens seen"));
    CHECK(read_metrics(out).losses() == whole.losses());
}

TEST_CASE(
    "a resume from a chosen step begins a new branch, and the checkpoints of the old one stay readable") {
    const TemporaryFolder folder;
    const fs::path data = write_30_windows(folder), out = folder / "out";
    const Arguments more = saving_at_end + Arguments{"--checkpoint.interval=2"};
    train_tiny(out, data, more + Arguments{steps(6)});
    const std::string left = read_file(out / checkpoint_of(6));
    const Outcome branch =
        train_tiny(out, data, more + Arguments{steps(4), "--checkpoint.load_step=2", "--optimizer.lr=1e-4"});
    CHECK_THAT(branch.output, Contains("Resuming from") && Contains("step 2, 128 tokens seen"));
    CHECK(count_of(checkpoint_of(6) + " is from a later step than the checkpoint saved now: renamed to ",
                   branch.output) == 1);
    CHECK(read_file((out / checkpoint_of(6)).string() + ".abandoned") == left);
    CHECK_FALSE(fs::exists(out / checkpoint_of(6)));
    // without the chosen step, the same command continues the new branch
    const Outcome on = train_tiny(out, data, more + Arguments{steps(5), "--optimizer.lr=1e-4"});
    CHECK_THAT(on.output, Contains(checkpoint_of(4) + ": step 4, 256 tokens seen"));
    const Outcome absent = run_coeus(tiny_run(out, data, more + Arguments{"--checkpoint.load_step=3"}));
    INFO(absent.output);
    CHECK(absent.exit_code == 2);
    CHECK_THAT(absent.output, Contains("checkpoint.load_step = 3"));
}

TEST_CASE("a resumed run names changes since its checkpoint") {
    const TemporaryFolder folder;
    const fs::path data = write_30_windows(folder), out = folder / "out";
    const Arguments start = {"--checkpoint.enable", "--lr_scheduler.warmup_steps=2"};
    train_tiny(out, data, start + Arguments{steps(1)});
    const std::string schedule =
                          "the learning-rate schedule differs from the checkpoint's; the rate may jump (",
                      samples =
                          "the data differs from the checkpoint's: some samples may be used twice or never (";
    const Outcome longer = train_tiny(out, data, start + Arguments{steps(2)}, 2);
    CHECK(count_of(schedule + "training.steps was 1, is 2)", longer.output) == 1);
    CHECK(count_of(samples, longer.output) == 0);
    const Arguments fixed = {"--lr_scheduler.total_steps=6"};
    const Outcome set = train_tiny(out, data, start + fixed + Arguments{steps(3)});
    CHECK(count_of(schedule + "lr_scheduler.total_steps was not given, is 6)", set.output) == 1);
    const Outcome same = train_tiny(out, data, start + fixed + Arguments{steps(4)});
    CHECK(count_of(schedule, same.output) == 0);
    const Outcome other = train_tiny(
        out, data, start + fixed + Arguments{steps(5), "--training.shuffle", "--optimizer.lr=0.5"});
    CHECK(count_of(schedule + "optimizer.lr was 0.01, is 0.5)", other.output) == 1);
    CHECK(count_of(samples + "training.shuffle was false, is true)", other.output) == 1);
}

TEST_CASE("a checkpoint of another run can be a start") {
    const TemporaryFolder folder;
    const fs::path data = write_30_windows(folder);
    train_tiny(folder / "first", data,
               {"--checkpoint.enable", steps(3), "--lr_scheduler.total_steps=6",
                "--checkpoint.export_dtype=bfloat16"});
    const auto first_loss = [&](const std::string& name, const std::string& source, const Arguments& more) {
        const Outcome run = train_tiny(
            folder / name, data,
            more + Arguments{"--training.dataset_path=" + data.string(),
                             "--checkpoint.initial_load_path=" + (folder / "first" / source).string()});
        CHECK(count_of("Starting from the weights of ", run.output) == 1);
        return read_metrics(folder / name).steps.at(0);
    };
    // the samples start again, so step 1 sees other data: compared with a run that starts there as well
    const StepLine full = first_loss("full", checkpoint_of(3), {steps(1)});
    const StepLine on_two = [&] {
        const Outcome run = train_tiny(
            folder / "two", data,
            {steps(1), "--checkpoint.initial_load_path=" + (folder / "first" / checkpoint_of(3)).string(),
             "--training.local_batch_size=2"},
            2);
        CHECK(count_of("Starting from the weights of ", run.output) == 1);
        return read_metrics(folder / "two").steps.at(0);
    }();
    const StepLine rounded = first_loss("rounded", "checkpoint/model-00000003.h5", {steps(1)});
    CHECK(full.step == 1);
    CHECK(full.tokens_seen == 64);
    const double untrained = read_metrics(folder / "first").losses()[0];
    CHECK(full.loss < untrained - 0.1);
    CHECK(relatively_close(on_two.loss, full.loss, 1e-6));
    CHECK(rounded.loss != full.loss);
    CHECK(relatively_close(rounded.loss, full.loss, 1e-2));
    // with the optimizer, the step and the data position: the run continues in another folder
    train_tiny(folder / "whole", data, {"--checkpoint.enable"});
    const Outcome moved =
        train_tiny(folder / "moved", data,
                   {"--checkpoint.enable", "--checkpoint.no_initial_load_model_only",
                    "--checkpoint.initial_load_path=" + (folder / "first" / checkpoint_of(3)).string()});
    CHECK_THAT(moved.output, Contains("Resuming from") && Contains("step 3, 192 tokens seen"));
    CHECK(differing_arrays(folder / "moved" / checkpoint_of(6), folder / "whole" / checkpoint_of(6)).empty());
    // another run's metrics in that folder are not the run's own, whatever their steps
    train_tiny(folder / "used", data, {steps(5)});
    const std::string others = read_file(folder / "used" / "metrics.jsonl");
    const Arguments onto_other = {
        "--checkpoint.enable", "--checkpoint.no_initial_load_model_only",
        "--checkpoint.initial_load_path=" + (folder / "first" / checkpoint_of(3)).string()};
    const Outcome onto = train_tiny(folder / "used", data, onto_other);
    CHECK_THAT(onto.output, Contains("Resuming from") && Contains("earlier_1"));
    CHECK(read_file(folder / "used" / "earlier_1" / "metrics.jsonl") == others);
    CHECK(read_metrics(folder / "used").losses() == read_metrics(folder / "moved").losses());
    CHECK(read_metrics(folder / "used").steps.front().step == 4);
    const Outcome goes_on = train_tiny(folder / "used", data, onto_other + Arguments{steps(7)});
    CHECK_THAT(goes_on.output, !Contains("earlier_"));
    CHECK(read_metrics(folder / "used").steps.size() == 4);
    // a checkpoint of this folder is the run's own, however its path is given
    const Outcome back = train_tiny(
        folder / "used", data,
        {"--checkpoint.no_enable", "--checkpoint.no_initial_load_model_only",
         "--checkpoint.initial_load_path=" + (folder / "used" / checkpoint_of(6)).string(), steps(7)});
    CHECK_THAT(back.output, Contains("Resuming from") && !Contains("earlier_"));
    CHECK(read_metrics(folder / "used").steps.size() == 4);
    // a checkpoint of the run itself takes precedence
    const Arguments both = {"--checkpoint.enable", "--checkpoint.initial_load_path=" +
                                                       (folder / "first" / checkpoint_of(3)).string()};
    train_tiny(folder / "own", data, both + Arguments{steps(2)});
    const Outcome resumed = train_tiny(folder / "own", data, both + Arguments{steps(3)});
    CHECK_THAT(resumed.output, Contains("Resuming from") && !Contains("Starting from the weights"));
}

TEST_CASE("a seed checkpoint holds the weights that any run starts from") {
    const TemporaryFolder folder;
    const fs::path data = write_30_windows(folder), seeded = folder / "seeded", fresh = folder / "fresh";
    const Arguments seed = saving_at_end + Arguments{"--checkpoint.create_seed_checkpoint"};
    const Outcome made = train_tiny(seeded, data, seed);
    CHECK(count_of("Saved the initial weights as " + (seeded / checkpoint_of(0)).string(), made.output) == 1);
    CHECK_THAT(made.output, Contains("Coeus does not need this file") && !Contains(" step: "));
    CHECK_FALSE(fs::exists(seeded / "metrics.jsonl"));

    const Arguments more = saving_at_end + Arguments{"--training.global_batch_size=8"};
    const Outcome run = train_tiny(seeded, data, more, 2);
    CHECK_THAT(run.output,
               Contains("Resuming from " + (seeded / checkpoint_of(0)).string() + ": step 0, 0 tokens") &&
                   !Contains("earlier_"));
    train_tiny(fresh, data, more, 2);
    const MetricLines a = read_metrics(seeded), b = read_metrics(fresh);
    REQUIRE(a.steps.size() == 6);
    REQUIRE(b.steps.size() == 6);
    for (size_t i = 0; i < 6; ++i) CHECK(a.steps[i].loss == b.steps[i].loss);
    CHECK(differing_arrays(seeded / checkpoint_of(6), fresh / checkpoint_of(6)).empty());

    const auto refused = [&](const Arguments& arguments, const std::string& message, int ranks) {
        const Outcome outcome = run_coeus(tiny_run(seeded, data, arguments), ranks);
        INFO(outcome.output);
        CHECK(outcome.exit_code == 2);
        CHECK(count_of(" - error - checkpoint.create_seed_checkpoint = true: " + message, outcome.output) ==
              1);
    };
    refused(seed, "works on one rank only, but there are 2; start 1", 2);
    refused(seed, (seeded / "checkpoint").string() + " already has checkpoints; choose another", 0);
    refused(seed + Arguments{"--checkpoint.no_enable"}, "needs checkpoint.enable = true", 0);
    CHECK(read_metrics(seeded).steps.size() == 6);
}
