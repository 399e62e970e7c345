// SPDX-License-Identifier: Apache-2.0
// Files that earlier versions wrote can be read and resumed: decks, token files and checkpoints of each
// commit for which tests/data has an archive (version_COMMIT*.tar.xz; `without_shuffle`: the deck does not
// mention the shuffling of windows, and they were not shuffled). An archive has
// - deck.toml, tokens.h5: 8 steps in float64, and their data
// - one_file, in_parts: the dump folders of that run after step 4, with checkpoint.files = 1 and 2
// - whole/metrics.jsonl: the metrics that this commit wrote in all 8 steps
#include "coeus/hdf5/hdf5.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> no_files;

void unpack(const fs::path& archive, const fs::path& folder) {
    const Outcome tar = run_shell("tar xJf '" + archive.string() + "' -C '" + folder.string() + "'");
    INFO(tar.output);
    REQUIRE(tar.exit_code == 0);
}

Outcome coeus_in(const fs::path& folder, const Arguments& arguments, int ranks = 0) {
    const Outcome outcome = run_coeus(arguments, ranks, {}, folder);
    INFO(outcome.output);
    CHECK(outcome.exit_code == 0);
    return outcome;
}

int64_t format_version(const fs::path& checkpoint) {
    return hdf5::File::open(checkpoint.string()).int_attribute("format_version");
}

// `run` resumes at step 4 and takes 4 steps, whose losses equal those of `before` except for the last bits,
// which depend on the processor's products.
void check_resumed(const fs::path& folder, const std::string& run, const MetricLines& before, int ranks) {
    CAPTURE(run);
    const Outcome resumed = coeus_in(
        folder,
        {"train", "deck.toml", "--job.dump_folder=" + run, "--training.steps=8", "--checkpoint.files=1"},
        ranks);
    CHECK_THAT(resumed.output, Contains("Resuming from") && Contains(checkpoint_of(4)));
    CHECK_THAT(resumed.output, !Contains("the data differs from the checkpoint's"));
    const MetricLines now = read_metrics(folder / run);
    REQUIRE(before.steps.size() == 8);
    REQUIRE(now.steps.size() == 8);
    for (size_t i = 0; i < 8; ++i) {
        CAPTURE(i);
        CHECK(now.steps[i].step == int64_t(i) + 1);
        CHECK(relatively_close(now.steps[i].loss, before.steps[i].loss, 1e-11));
        CHECK(relatively_close(now.steps[i].grad_norm, before.steps[i].grad_norm, 1e-9));
        CHECK(now.steps[i].lr == before.steps[i].lr);
        CHECK(now.steps[i].tokens_seen == before.steps[i].tokens_seen);
    }
}

}  // namespace

TEST_CASE("program: checkpoints, token files and decks of earlier versions are read and resumed") {
    size_t versions = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(paths::source() + "/tests/data")) {
        if (!entry.path().filename().string().starts_with("version_")) continue;
        CAPTURE(entry.path().filename().string());
        ++versions;
        const TemporaryFolder temporary;
        const fs::path folder = temporary.path();
        unpack(entry.path(), folder);
        const std::string step = checkpoint_of(4), last = checkpoint_of(8);
        for (const char* run : {"one_file", "in_parts"}) {
            CAPTURE(run);
            const std::string file = (fs::path(run) / step).string(), copy = std::string(run) + ".h5";
            CHECK(format_version(folder / file) == 1);
            coeus_in(folder, {"info", file, "--verify"});
            // reading and writing again keeps every bit
            coeus_in(folder, {"convert", file, copy});
            CHECK(differing_arrays(folder / copy, folder / "one_file" / step) == no_files);
            CHECK(format_version(folder / copy) == 1);
        }
        const MetricLines before = read_metrics(folder / "whole");
        check_resumed(folder, "one_file", before, 1);
        check_resumed(folder, "in_parts", before, 1);
        CHECK(differing_arrays(folder / "one_file" / last, folder / "in_parts" / last) == no_files);
        CHECK(format_version(folder / "one_file" / last) == 1);
    }
    CHECK(versions > 0);
}
