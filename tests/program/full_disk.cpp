// SPDX-License-Identifier: Apache-2.0
// A disk becomes full for one kind of file, from a random byte on. The run ends with a message and its last
// good checkpoint, or continues without the files that only report about it. When there is room again, the
// same command ends with the results of an undisturbed run.
#include "program/random_moments.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <algorithm>
#include <limits>
#include <regex>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

enum class Loss { telemetry, checkpoint, start };
struct Kind {
    const char* in_path;
    Loss loss;
    const char* says;  // a regular expression for the message
};
const Kind kinds[] = {
    {"/checkpoint/step-", Loss::checkpoint, "\\.h5 is not saved: "},
    {"/metrics.jsonl", Loss::telemetry, "metrics\\.jsonl (is|are) lost"},
    {"/.owner", Loss::start, "/\\.owner cannot be written: No space left on device"},
    {"/tb/", Loss::telemetry, " records? of [^ ]* (is|are) lost"},
    {"/checkpoint/model-", Loss::checkpoint, "\\.h5 is not saved: "},
    {"/goodput.jsonl", Loss::telemetry, "goodput\\.jsonl (is|are) lost"},
    {"/profile_traces/", Loss::telemetry, "profile_traces (is|are) lost: "},
    {"/deck.toml", Loss::start, "/deck\\.toml cannot be written: No space left on device"},
    {"/memory_snapshot/", Loss::telemetry, " memory snapshots? of the steps (is|are) lost: "},
    {"/log/rank_", Loss::telemetry, "\\.log (is|are) lost"},
    {"/expert_loads.jsonl", Loss::telemetry, "expert_loads\\.jsonl (is|are) lost"},
};

const Arguments writing_everything = {"--checkpoint.enable",
                                      "--checkpoint.interval=2",
                                      "--checkpoint.keep_latest_k=0",
                                      "--metrics.enable_tensorboard",
                                      "--profiling.enable_profiling",
                                      "--profiling.profile_freq=3",
                                      "--profiling.profiler_warmup=0",
                                      "--profiling.enable_memory_snapshot",
                                      "--profiling.memory_snapshot_freq=3"};

// The size of the smallest file of a kind. An owner's note no longer exists when the run has ended: it has a
// fixed size.
int64_t bytes_of(const Kind& kind, const fs::path& run) {
    constexpr int64_t note = 512;
    int64_t smallest = std::numeric_limits<int64_t>::max();
    for (const auto& entry : fs::recursive_directory_iterator(run))
        if (entry.is_regular_file() && entry.path().string().find(kind.in_path) != std::string::npos)
            smallest = std::min(smallest, int64_t(entry.file_size()));
    return smallest == std::numeric_limits<int64_t>::max() ? note : smallest;
}

void full_disks(int rounds, uint64_t seed) {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17)});
    const fs::path undisturbed[] = {folder / "alone", folder / "two"};
    for (const int ranks : {0, 2})
        train_tiny(undisturbed[ranks / 2], folder / "tokens.h5", tiny_experts + writing_everything, ranks);
    for (const auto& [i, part] : random_moments("the room on a disk", seed, rounds)) {
        const Kind& kind = kinds[size_t(i) % std::size(kinds)];
        const int ranks = i / int(std::size(kinds)) % 2 == i % 2 ? 0 : 2;
        const fs::path run = folder / "run", &whole = undisturbed[ranks / 2];
        const auto room = int64_t(double(bytes_of(kind, whole)) * part);
        const Arguments arguments = tiny_run(run, folder / "tokens.h5", tiny_experts + writing_everything);
        const Outcome full = run_coeus(arguments, ranks,
                                       {{"LD_PRELOAD", paths::disk()},
                                        {"COEUS_TEST_FULL_FILE", run.string() + kind.in_path},
                                        {"COEUS_TEST_FULL_FROM", std::to_string(room)}});
        CAPTURE(i, kind.in_path, ranks, room, full.exit_code, full.output);
        CHECK(std::regex_search(full.output, std::regex(kind.says)));
        CHECK_THAT(full.output, Contains("No space left on device"));
        CHECK(full.exit_code == (kind.loss == Loss::telemetry ? 0 : 3));
        if (const auto good = list_checkpoints((run / "checkpoint").string());
            kind.loss == Loss::checkpoint && !good.empty())
            CHECK_THAT(full.output, Contains("; the newest good checkpoint is " + good.back().path));
        for (const auto& entry : fs::recursive_directory_iterator(run)) {
            CAPTURE(entry.path());
            CHECK(entry.path().extension() != ".part");
        }
        const Outcome again = run_coeus(arguments, ranks);
        CAPTURE(again.output);
        REQUIRE(again.exit_code == 0);
        CHECK(files_in(run / "checkpoint") == files_in(whole / "checkpoint"));
        for (const std::string& file : files_in(whole / "checkpoint"))
            CHECK(differing_arrays(run / "checkpoint" / file, whole / "checkpoint" / file) ==
                  std::vector<std::string>{});
        // only metrics may lack lines, those for which there was no room
        if (kind.in_path != std::string("/metrics.jsonl"))
            CHECK(read_metrics(run).losses() == read_metrics(whole).losses());
        fs::remove_all(run);
    }
}

}  // namespace

TEST_CASE("a disk that is full for any kind of file loses no checkpoint") {
    full_disks(int(std::size(kinds)), 1);
}

TEST_CASE("soak: 20 full disks for each kind of file lose no checkpoint", "[.soak]") {
    full_disks(2 * int(std::size(kinds)), 2);
}
