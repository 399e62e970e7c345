// SPDX-License-Identifier: Apache-2.0
// Checkpoints as a user meets them: other numbers of ranks, damage, a full disk, `coeus info`.
#include "coeus/hdf5/hdf5.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

const Arguments saving_twice = {"--checkpoint.enable", "--checkpoint.interval=2",
                                "--lr_scheduler.total_steps=6", "--training.global_batch_size=8"};

fs::path write_data(const TemporaryFolder& folder) {
    write_token_file(folder / "tokens.h5",
                     {.tokens = learnable_tokens(80 * 17), .documents = {0, 600, 80 * 17}});
    return folder / "tokens.h5";
}

/// Changes one bit of an array in a checkpoint.
void damage(const fs::path& file) {
    const int64_t at = *hdf5::File::open(file).dataset("optimizer/exp_avg/norm.weight").offset();
    std::string bytes = read_file(file);
    bytes[size_t(at)] = char(bytes[size_t(at)] ^ 1);
    write_file(file, bytes);
}

}  // namespace

TEST_CASE("program: a run resumes with another number of ranks") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments more =
        saving_twice + Arguments{"--training.dtype=float64", "--training.local_batch_size=2"};
    train_tiny(folder / "whole", data, more, 1);
    train_tiny(folder / "moved", data, more + Arguments{steps(2)}, 4);
    train_tiny(folder / "moved", data, more + Arguments{steps(4)}, 1);
    const Outcome last = train_tiny(folder / "moved", data, more, 2);
    CHECK_THAT(last.output, Contains("Resuming from"));
    const auto whole = read_metrics(folder / "whole").losses(),
               moved = read_metrics(folder / "moved").losses();
    REQUIRE(whole.size() == 6);
    REQUIRE(moved.size() == 6);
    for (size_t i = 0; i < 6; ++i) CHECK(relatively_close(moved[i], whole[i], 1e-12));
    const Outcome again = train_tiny(folder / "moved", data, more, 2);
    CHECK_THAT(again.output, Contains("already at step 6"));
}

TEST_CASE("program: asynchronous checkpoints are the same as synchronous ones") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments more = saving_twice + Arguments{"--checkpoint.interval=1", "--checkpoint.keep_latest_k=0",
                                                    "--checkpoint.no_last_save_model_only"};
    train_tiny(folder / "at_once", data, more, 2);
    for (const char* mode : {"async", "async_with_pinned_mem"}) {
        CAPTURE(mode);
        const fs::path run = folder / mode;
        const Arguments beside = more + Arguments{std::string("--checkpoint.async_mode=") + mode};
        const Outcome begun = train_tiny(run, data, beside + Arguments{steps(3)}, 2);
        const Outcome resumed = train_tiny(run, data, beside, 1);
        CHECK_THAT(begun.output, Contains("copies for checkpoints") && Contains("of which training waited"));
        CHECK_THAT(resumed.output, Contains("Resuming from") && Contains(checkpoint_of(3)));
        CHECK(files_in(run / "checkpoint") == files_in(folder / "at_once/checkpoint"));
        for (int64_t step : {1, 2, 3})
            CHECK(differing_arrays(run / checkpoint_of(step), folder / "at_once" / checkpoint_of(step)) ==
                  std::vector<std::string>{});
        const MetricLines lines = read_metrics(run);
        REQUIRE(lines.checkpoints.size() == 6);
        for (const auto& line : lines.checkpoints) {
            CHECK(line.at_step >= line.step);
            CHECK(line.seconds_waited <= line.seconds);
        }
    }
}

TEST_CASE("program: checkpoints of several files work like those of one file") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder), run = folder / "run";
    const Arguments parts = saving_twice + Arguments{"--checkpoint.files=3", "--checkpoint.keep_latest_k=2"};
    train_tiny(folder / "one", data, saving_twice);
    train_tiny(run, data, parts + Arguments{steps(4)}, 2);
    const Outcome resumed = train_tiny(run, data, parts + Arguments{"--checkpoint.async_mode=async"}, 1);
    CHECK_THAT(resumed.output, Contains("Resuming from") && Contains(checkpoint_of(4)));
    const std::vector<std::string> expected = {
        "model-00000004.h5", "model-00000004.parts", "model-00000006.h5", "model-00000006.parts",
        "step-00000004.h5",  "step-00000004.parts",  "step-00000006.h5",  "step-00000006.parts"};
    CHECK(files_in(run / "checkpoint") == expected);
    const auto whole = read_metrics(folder / "one").losses(), spread = read_metrics(run).losses();
    REQUIRE(spread.size() == 6);
    for (size_t i = 0; i < 6; ++i) CHECK(relatively_close(spread[i], whole[i], 1e-5));
    const std::string file = run / checkpoint_of(6);
    const Outcome info = run_coeus({"info", file, "--verify"});
    CHECK(info.exit_code == 0);
    CHECK_THAT(info.output, Contains("this file and 3 parts in ") && Contains("match their checksums"));
    // conversions of it, and a diff with it
    REQUIRE(run_coeus({"convert", file, (folder / "whole.h5").string()}).exit_code == 0);
    const Outcome difference = run_coeus({"info", file, "--diff", (folder / "whole.h5").string()});
    CHECK_THAT(difference.output, Contains("arrays in both, none differ"));
    CHECK(run_coeus({"convert", run.string(), (folder / "hub").string()}).exit_code == 0);
    // if a part is missing, it is damaged
    fs::remove(run / "checkpoint/step-00000006.parts/2.h5");
    const Outcome broken = run_coeus({"info", file});
    CHECK(broken.exit_code == 2);
    CHECK_THAT(broken.output, Contains("is incomplete: ") && Contains("2.h5: this file does not exist"));
    const Outcome before = train_tiny(run, data, parts, 2);
    CHECK(count_of("checkpoint skipped: " + file + " is incomplete", before.output) == 1);
    CHECK_THAT(before.output, Contains("Resuming from") && Contains(checkpoint_of(4)));
    CHECK(files_in(run / "checkpoint").size() == 8);
    const Outcome bad = run_coeus(tiny_run(run, data, saving_twice + Arguments{"--checkpoint.files=0"}));
    CHECK_THAT(bad.output,
               Contains("checkpoint.files = 0: must be from 1 to 256; the nearest valid value is 1"));
}

TEST_CASE("program: damaged and foreign checkpoints") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder), run = folder / "run";
    train_tiny(run, data, saving_twice + Arguments{steps(4)});
    const fs::path newest = run / checkpoint_of(4);
    SECTION("truncated") {
        fs::resize_file(newest, fs::file_size(newest) / 2);
        const Outcome resumed = train_tiny(run, data, saving_twice);
        CHECK_THAT(resumed.output, Contains("checkpoint skipped: " + newest.string() + " is truncated"));
        CHECK_THAT(resumed.output, Contains("Resuming from") && Contains(checkpoint_of(2)));
    }
    SECTION("a flipped bit") {
        damage(newest);
        const Outcome resumed = train_tiny(run, data, saving_twice, 2);
        CHECK(count_of("checkpoint skipped: " + newest.string() + " is damaged: rows", resumed.output) == 1);
        CHECK_THAT(resumed.output, Contains(checkpoint_of(2)));
    }
    SECTION("all are damaged") {
        for (int64_t step : {2, 4}) write_file(run / checkpoint_of(step), "not a checkpoint");
        const Outcome resumed = run_coeus(tiny_run(run, data, saving_twice), 2);
        CHECK(resumed.exit_code == 2);
        CHECK_THAT(resumed.output, Contains("none of the checkpoints in ") &&
                                       Contains("step-00000002.h5 is not an HDF5 file"));
        CHECK(count_of("move them away to start over", resumed.output) == 1);
    }
    SECTION("from another model") {
        const Outcome resumed =
            run_coeus(tiny_run(run, data, saving_twice + Arguments{"--model.ffn_hidden=64"}));
        CHECK(resumed.exit_code == 2);
        CHECK_THAT(resumed.output,
                   Contains("is of another model: layers.0.feed_forward.w1.weight is [48, 32] in "
                            "the file, [64, 32] in this model"));
    }
    SECTION("a token file as the start") {
        const Outcome started =
            run_coeus(tiny_run(folder / "new", data,
                               saving_twice + Arguments{"--checkpoint.initial_load_path=" + data.string()}));
        CHECK(started.exit_code == 2);
        CHECK_THAT(started.output, Contains("is an HDF5 file, but not a checkpoint of Coeus"));
    }
    SECTION("a folder as the initial checkpoint") {
        const Outcome started = run_coeus(
            tiny_run(
                folder / "new", data,
                saving_twice + Arguments{"--checkpoint.initial_load_path=" + (run / "checkpoint").string(),
                                         "--checkpoint.no_initial_load_model_only"}),
            2);
        CHECK(started.exit_code == 2);
        CHECK(count_of("/checkpoint\": is a folder; with checkpoint.initial_load_model_only = false give one "
                       "of its files, step-*.h5",
                       started.output) == 1);
    }
    SECTION("a missing step") {
        const Outcome resumed =
            run_coeus(tiny_run(run, data, saving_twice + Arguments{"--checkpoint.load_step=3"}));
        CHECK(resumed.exit_code == 2);
        CHECK_THAT(resumed.output,
                   Contains("checkpoint.load_step = 3: there is no checkpoint of step 3 in ") &&
                       Contains("; existing steps: 2, 4"));
    }
}

TEST_CASE("program: the room for checkpoints is checked before the first step") {
    if (run_shell("unshare -m sh -c 'mount -t tmpfs none /mnt'").exit_code != 0)
        return skip("this user cannot mount a small file system");
    const TemporaryFolder folder;
    const fs::path data = write_data(folder), run = folder / "run";
    fs::create_directories(run / "checkpoint");
    const auto on_disk_of = [&](const std::string& size) {
        std::string line = "'" + paths::program() + "'";
        for (const std::string& word :
             tiny_run(run, data, saving_twice + Arguments{"--checkpoint.keep_latest_k=5"}))
            line += " '" + word + "'";
        write_file(folder / "line.sh", "mount -t tmpfs -o size=" + size + " none '" +
                                           (run / "checkpoint").string() + "' && exec " + line + "\n");
        return run_shell("unshare -m sh '" + (folder / "line.sh").string() + "'");
    };
    const Outcome none = on_disk_of("1m");
    INFO(none.output);
    CHECK(none.exit_code == 3);
    CHECK_THAT(none.output, Contains("there is no room for a checkpoint: ") && Contains(" needed in ") &&
                                Contains("are free; make room, or choose another checkpoint.folder") &&
                                !Contains("step:  1"));
    const Outcome some = on_disk_of("4m");
    INFO(some.output);
    CHECK_THAT(some.output, Contains("warning - the disk has room for ") && Contains("of the ") &&
                                Contains("checkpoints that the run will keep at the same time") &&
                                Contains("step:  1"));
    const Outcome all = on_disk_of("64m");
    CHECK(all.exit_code == 0);
    CHECK_THAT(all.output, !Contains("the disk has room for"));
    CHECK(fs::is_empty(run / "checkpoint"));  // the folder under the mount point
    const Outcome planned = run_coeus(tiny_run(run, data, saving_twice + Arguments{"--dry_run"}));
    CHECK_THAT(planned.output, Contains("A checkpoint takes ") && Contains("on disk; "));
}

TEST_CASE("program: a full disk while saving") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder), run = folder / "run";
    train_tiny(run, data, saving_twice + Arguments{steps(2)});
    const std::string mode = GENERATE("disabled", "async");
    const Outcome full =
        run_coeus(tiny_run(run, data, saving_twice + Arguments{"--checkpoint.async_mode=" + mode}), 0,
                  {{"LD_PRELOAD", paths::disk()},
                   {"COEUS_TEST_FULL_FILE", "/checkpoint/step-"},
                   {"COEUS_TEST_FULL_FROM", "65536"}});
    INFO(full.output);
    CHECK(full.exit_code == 3);
    CHECK_THAT(full.output, Contains("step-00000004.h5 is not saved") &&
                                Contains("No space left on device") &&
                                Contains("the newest good checkpoint is") && Contains(checkpoint_of(2)));
    CHECK(files_in(run / "checkpoint") == std::vector<std::string>{"model-00000002.h5", "step-00000002.h5"});
    const Outcome resumed = train_tiny(run, data, saving_twice);
    CHECK_THAT(resumed.output, Contains("Resuming from") && Contains(checkpoint_of(2)));
    CHECK(fs::exists(run / checkpoint_of(6)));
}

TEST_CASE("program: info") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder), run = folder / "run";
    SECTION("a checkpoint") {
        train_tiny(run, data, saving_twice + Arguments{steps(2), "--training.dtype=bfloat16"});
        const std::string file = run / checkpoint_of(2);
        const Outcome info = run_coeus({"info", file, "--verify"});
        INFO(info.output);
        CHECK(info.exit_code == 0);
        CHECK_THAT(info.output, Contains("checkpoint of Coeus, weights and optimizer") &&
                                    Contains("tokens seen") && Contains("256") &&
                                    Contains("optimizer/exp_avg_sq/norm.weight") && Contains("bfloat16") &&
                                    Contains("[48, 32]") && Contains("match their checksums"));
        CHECK_THAT(run_coeus({"info", (run / "checkpoint").string()}).output,
                   Contains("step-00000002.h5: checkpoint"));
        damage(file);
        const Outcome damaged = run_coeus({"info", "--verify", file});
        CHECK(damaged.exit_code == 2);
        CHECK_THAT(damaged.output, Contains("  damaged: rows 0 to") &&
                                       Contains("is damaged: 1 of its blocks do not match their checksum"));
        CHECK(run_coeus({"info", file}).exit_code == 0);
    }
    SECTION("a token file") {
        const Outcome info = run_coeus({"info", data.string(), "--verify"});
        CHECK(info.exit_code == 0);
        CHECK_THAT(info.output, Contains("token file") && Contains("1,360 (uint16)") &&
                                    Contains("documents") && Contains("the largest id is 63"));
    }
    SECTION("neither") {
        const Outcome none = run_coeus({"info"});
        CHECK(none.exit_code == 2);
        CHECK_THAT(none.output, Contains("coeus info needs a file or folder"));
        const Outcome option = run_coeus({"info", "--all"});
        CHECK(option.exit_code == 2);
        CHECK_THAT(option.output,
                   Contains("unknown option --all; options: --verify, --diff, --model, --ranks"));
        const Outcome absent = run_coeus({"info", (folder / "no.h5").string()});
        CHECK(absent.exit_code == 2);
        CHECK_THAT(absent.output, Contains("no.h5: this file or folder does not exist"));
        write_file(folder / "text.h5", "hello");
        CHECK_THAT(run_coeus({"info", (folder / "text.h5").string()}).output,
                   Contains("text.h5 is a text file that begins with \"hello\""));
        const Outcome empty = run_coeus({"info", folder.path().string()});
        CHECK(empty.exit_code == 2);
        CHECK_THAT(empty.output,
                   Contains("is a folder that contains text.h5, tokens.h5; coeus info shows checkpoints"));
    }
}

TEST_CASE("initial weights that were trained with other constants cause a warning that names these") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    train_tiny(folder / "first", folder / "tokens.h5",
               {"--checkpoint.enable", steps(1), "--model.norm_type=layernorm", "--model.rope_theta=5e3"});
    const std::string weights =
        "--checkpoint.initial_load_path=" + (folder / "first/checkpoint/model-00000001.h5").string();
    const auto output = [&](const char* run, const Arguments& more) {
        return run_coeus(tiny_run(folder / run, folder / "tokens.h5",
                                  Arguments{"--checkpoint.enable", steps(1), weights} + more))
            .output;
    };
    CHECK_THAT(
        output("second", {"--model.rope_scaling_factor=1"}),
        Contains("was trained with other constants (rope_theta is 500000.0 in this run, 5000.0 there, ") &&
            Contains("rope_scaling is none in this run, {\"factor\":8.0,") &&
            Contains("norm_type is \"rmsnorm\" in this run, \"layernorm\" there)"));
    CHECK_THAT(output("third", {"--model.norm_type=layernorm", "--model.rope_theta=5e3"}),
               !Contains("other constants"));
}
