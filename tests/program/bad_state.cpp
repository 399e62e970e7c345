// SPDX-License-Identifier: Apache-2.0
// States that a run must not accept or save as if they were good: tokens beyond the vocabulary in a file that
// claims otherwise, and weights that are not finite.
#include "coeus/hdf5/hdf5.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

/// A token file with one changed token, whose max_token attribute is still that of the others.
void write_changed_tokens(const fs::path& path, size_t position, uint16_t token) {
    std::vector<uint16_t> tokens = learnable_tokens(40 * 17);
    tokens.at(position) = token;
    write_token_file(path, {.tokens = tokens});
    hdf5::File file = hdf5::File::open_for_update(path.string());
    file.set_attribute("max_token", int64_t(63));
    file.close();
}

}  // namespace

TEST_CASE("A token beyond the vocabulary is found where it is read, in training and in validation data") {
    const TemporaryFolder folder;
    const fs::path data = folder / "data.h5", good = folder / "good.h5", out = folder / "out";
    write_changed_tokens(good, 0, 1);
    const auto message = [&](int64_t position, int token) {
        return fmt::format(
            " - error - {}: token {} at position {} is not in the model's vocabulary of 64, although the "
            "attribute "
            "max_token is 63: the file is damaged, or was changed after it was made; make it again",
            data.string(), token, position);
    };
    // a token of the second step's samples that is only a label, of the last input
    write_changed_tokens(data, 5 * 17 + 16, 64);
    const Outcome run = run_coeus(tiny_run(out, data));
    INFO(run.output);
    CHECK(run.exit_code == 2);
    CHECK(count_of(message(5 * 17 + 16, 64), run.output) == 1);
    CHECK(read_metrics(out).steps.size() == 1);
    write_changed_tokens(data, 3, 65535);
    const Outcome validated =
        run_coeus(tiny_run(out, good,
                           {"--validation.enable", "--validation.dataset_path=" + data.string(),
                            "--validation.freq=1", steps(1)}));
    INFO(validated.output);
    CHECK(validated.exit_code == 2);
    CHECK(count_of(message(3, 65535), validated.output) == 1);
}

TEST_CASE("Weights that are not finite are not saved, and the last good checkpoint stays") {
    const TemporaryFolder folder;
    const fs::path data = folder / "data.h5", out = folder / "out";
    write_token_file(data, {.tokens = learnable_tokens(40 * 17)});
    const Arguments saving = {"--checkpoint.enable", "--checkpoint.interval=1",
                              "--checkpoint.keep_latest_k=2", "--lr_scheduler.warmup_steps=0"};
    const Arguments overflow = saving + Arguments{"--optimizer.lr=1e39"};
    const Arguments beside = {"--checkpoint.async_mode=async"};
    train_tiny(out, data, saving + Arguments{steps(2)});
    const std::string state = read_file(out / checkpoint_of(2));
    for (const Arguments& more : {overflow, overflow + beside}) {
        const Outcome run = run_coeus(tiny_run(out, data, more), 2);
        INFO(run.output);
        CHECK(run.exit_code == 4);
        CHECK(count_of(" - error - ", run.output) == 1);
        CHECK_THAT(
            run.output,
            Contains((out / checkpoint_of(3)).string() + " is not saved: ") &&
                Contains(" has elements that are not finite; the newest good checkpoint is " +
                         (out / checkpoint_of(2)).string() + ". Usual remedies: a lower optimizer.lr, "));
        CHECK(files_in(out / "checkpoint") ==
              std::vector<std::string>{"model-00000002.h5", "step-00000001.h5", "step-00000002.h5"});
        CHECK(read_file(out / checkpoint_of(2)) == state);
    }
    // with the usual learning rate the run continues
    train_tiny(out, data, saving + Arguments{steps(3)});
}

TEST_CASE(
    "A checkpoint that a disk cannot read to the end is not treated as damaged, and nothing replaces it") {
    const TemporaryFolder folder;
    const fs::path data = folder / "data.h5";
    write_token_file(data, {.tokens = learnable_tokens(40 * 17)});
    const auto check = [&](const Arguments& more, const std::string& bad_file, int ranks) {
        const fs::path out = folder / bad_file;
        train_tiny(out, data, Arguments{"--checkpoint.enable", "--checkpoint.interval=1", steps(2)} + more);
        const fs::path file = out / "checkpoint" / bad_file;
        const std::string state = read_file(file);
        const auto size = int64_t(state.size());
        // errors in the superblock, in the elements, in the layout guard
        for (const int64_t from : {int64_t(40), size / 2, size - 9}) {
            const Outcome run =
                run_coeus(tiny_run(out, data, Arguments{"--checkpoint.enable", steps(3)} + more), ranks,
                          {{"LD_PRELOAD", paths::disk()},
                           {"COEUS_READ_PATIENCE", "0.01"},
                           {"COEUS_TEST_BAD_FILE", bad_file},
                           {"COEUS_TEST_BAD_FROM", std::to_string(from)}});
            INFO(run.output);
            CHECK(run.exit_code == 3);
            CHECK_THAT(run.output,
                       Contains(file.string() + " cannot be read: Input/output error. It may be intact: "));
            CHECK(count_of("checkpoint skipped", run.output) == 0);
            CHECK(read_file(file) == state);
            CHECK_FALSE(fs::exists(out / checkpoint_of(3)));
        }
        train_tiny(out, data, Arguments{"--checkpoint.enable", steps(3)} + more);
    };
    check({}, "step-00000002.h5", 2);
    check({"--checkpoint.files=2"}, "step-00000002.parts/1.h5", 0);
}
