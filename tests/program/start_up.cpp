// SPDX-License-Identifier: Apache-2.0
// How often a start asks the file system and MPI for something, counted by a preloaded library in runs of 2
// to 16 ranks: it is as doc/scale.md says. And the log says where the time of a start goes.
#include "coeus/comm/mpi.hpp"
#include "coeus/file/json.hpp"
#include "coeus/state/storage.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <fstream>
#include <map>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

using Counts = std::map<std::string, int64_t>;

Counts read_counts(const fs::path& file) {
    Counts counts;
    std::ifstream in(file);
    std::string name;
    for (int64_t value = 0; in >> name >> value;) counts[name] = value;
    return counts;
}

// as in doc/scale.md
constexpr int64_t most_communicators = 24, most_collectives = 64;
constexpr int64_t communicator_bytes = 24, communicators_of_all = 9, name_bytes = 32, times_bytes = 96;

// The counts of each rank, in a run that is already at its last step: it starts, loads, and ends.
std::vector<Counts> counts_of_start(const fs::path& folder, const Arguments& arguments, int ranks) {
    const std::string to = (folder / fmt::format("counts.{}", ranks)).string();
    // a start would read the end of an earlier start's log
    fs::remove_all(folder / "run/log");
    // each start measures the machine's peak, which takes one more sum than a start that knows it from a
    // cache
    const TemporaryFolder cache;
    const Outcome outcome = run_coeus(arguments, ranks,
                                      {{"LD_PRELOAD", paths::counter()},
                                       {"COEUS_COUNT_BELOW", folder.string()},
                                       {"COEUS_COUNT_TO", to},
                                       {"XDG_CACHE_HOME", cache.path().string()}});
    INFO(outcome.output);
    CHECK(outcome.exit_code == 0);
    CHECK_THAT(outcome.output, Contains("already at step 1"));
    std::vector<Counts> counts;
    for (int rank = 0; rank < ranks; ++rank) counts.push_back(read_counts(fmt::format("{}.{}", to, rank)));
    return counts;
}

}  // namespace

TEST_CASE("start-up: a rank's numbers of files and messages are the same on 16 ranks as on 2") {
    const TemporaryFolder folder;
    write_token_file(folder / "a.h5", {.tokens = learnable_tokens(400), .documents = {0, 100, 400}});
    write_token_file(folder / "b.h5", {.tokens = learnable_tokens(400)});
    write_file(folder / "base.toml", "[checkpoint]\nenable = true\n");
    write_file(folder / "deck.toml", "include = \"base.toml\"\n");
    const Arguments arguments =
        tiny_run(folder / "run", (folder / "a.h5").string() + "," + (folder / "b.h5").string(),
                 {"--training.steps=1", "--checkpoint.last_save_model_only=false",
                  "--job.config_file=" + (folder / "deck.toml").string()});
    CHECK(run_coeus(arguments, 2).exit_code == 0);
    constexpr int64_t data_files = 2, parameters = 19616, state_bytes = 3 * 4 * parameters;
    constexpr int64_t introduction = 64, fewer_runs = 2 * sizeof(OwnedRun);
    const bool open_mpi = MpiRuntime::library_version().starts_with("Open MPI");
    // of rank 0 on 2 ranks: deck, layout of the data, places of the checkpoint's arrays
    Counts first, second;
    int64_t known_by_all = 0, texts = 0;
    for (const int64_t ranks : {2, 4, 8, 16}) {
        std::vector<Counts> counts = counts_of_start(folder.path(), arguments, int(ranks));
        const int64_t share = state_bytes / ranks;  // the mesh divides all rows
        if (ranks == 2) {
            first = counts[0], second = counts[1];
            known_by_all = first["bytes_read"] - share;
            texts = first["collective_bytes"] - 16 * ranks;
        }
        for (size_t rank = 0; rank < counts.size(); ++rank) {
            CAPTURE(ranks, rank);
            Counts& own = counts[rank];
            CHECK(own["communicators"] == first["communicators"]);
            CHECK(own["communicators"] <= most_communicators);
            CHECK(own["collectives"] == first["collectives"]);
            CHECK(own["collectives"] <= most_collectives);
            CHECK(own["collective_bytes"] == texts + 16 * ranks);  // 16 bytes for each rank of the host
            // the ranks introduce themselves to the watchdog
            CHECK(int64_t(1) << own["messages"] == ranks);
            CHECK(own["message_bytes"] == introduction * (ranks - 1));
            const int64_t files = rank == 0 ? first["files_opened"] : second["files_opened"];
            CHECK(own["files_opened"] == files);
            CHECK((rank == 0 || files == data_files + 2));
            CHECK(own["bytes_read"] == share + (rank == 0 ? known_by_all : 0));
            // all ranks are on one host; rank 0 has the times of all
            const int64_t of_each_rank =
                communicator_bytes * (communicators_of_all + 1) + name_bytes + (rank == 0 ? times_bytes : 0);
            const int64_t grown = own["bytes_held"] - (rank == 0 ? first : second)["bytes_held"];
            // handles of MPICH are smaller than those of Open MPI; with more ranks, each owns rows of fewer
            // parameters of a storage, so its list of runs is shorter
            if (open_mpi) CHECK(grown >= of_each_rank * (ranks - 2) - fewer_runs);
            CHECK(grown <= of_each_rank * (ranks - 2) + 8);  // some names have one more digit
        }
    }
}

TEST_CASE("start-up: its phases are logged, and goodput counts over all starts") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const auto train = [&](int64_t last, const std::string& fault = "") {
        const Outcome outcome =
            run_coeus(tiny_run(folder / "run", folder / "tokens.h5",
                               {steps(last), "--checkpoint.enable", "--checkpoint.interval=2"}),
                      2, {{"COEUS_FAULT", fault}});
        INFO(outcome.output);
        CHECK(outcome.exit_code == 0);
        return outcome;
    };
    // repeated steps take a visible part of the time, however long a start takes here
    const Outcome first = train(5, fmt::format("slow rank=0 step=3 seconds={:.2f}", patience(0.1)));
    CHECK_THAT(first.output, Contains("Start-up ") && Contains(" s: program ") && Contains(", MPI ") &&
                                 Contains(", deck ") && Contains(", data ") && Contains(", weights "));
    CHECK(count_of("Goodput ", first.output) == 1);
    CHECK_THAT(first.output, !Contains("starts): ") && !Contains("repeated"));
    // resumes from step 2, so steps 3 to 5 were wasted
    fs::remove(folder / "run" / checkpoint_of(5));
    fs::remove(folder / "run" / checkpoint_of(4));
    const Outcome second = train(6);
    CHECK_THAT(second.output, Contains("Goodput ") && Contains(" in 2 starts): "));
    CHECK_THAT(second.output, Contains("repeated steps ") && Contains("% (3)"));
    const Outcome report = run_coeus({"report", (folder / "run").string()});
    CHECK_THAT(report.output, Contains("Wall time") && Contains("repeated steps"));
    CHECK_THAT(report.output, Contains("\nStarts\n") && Contains("  1 to 5 ") && Contains("  3 to 6 ") &&
                                  Contains("2 ranks: dp_shard 2") && Contains("training.steps = 6, was 5") &&
                                  Contains("  complete\n"));
    CHECK_THAT(read_file(folder / "run/report.html"), Contains("<div class=\"bar\">"));
    // a new run has its own goodput
    fs::remove_all(folder / "run/checkpoint");
    CHECK_THAT(train(2).output, !Contains(" starts): "));
    CHECK(fs::exists(folder / "run/earlier_1/goodput.jsonl"));
}

namespace {

// On a busy machine any rank can be delayed for a while, and the report names that rank correctly. If a run
// is not as expected, its fault is therefore repeated, longer each time, until it outweighs other delays. The
// last run must be as expected.
template <class Run, class Expected>
void until_it_outweighs(const Run& run, const Expected& expected) {
    for (const double seconds : {0.2, 1.0, 5.0, 15.0})
        if (expected(run(seconds))) return;
}

}  // namespace

TEST_CASE("stragglers: a rank that shares its core with others is named") {
    const TemporaryFolder folder;
    const fs::path run = folder / "run";
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    // other programs use the rank's core for this many seconds of each step
    const auto train = [&](int rank, const std::string& straggler_freq, double seconds) {
        fs::remove_all(run);
        const Outcome outcome = run_coeus(
            tiny_run(
                run, folder / "tokens.h5",
                {steps(5), "--metrics.straggler_freq=" + straggler_freq, "--metrics.straggler_percent=50"}),
            3, {{"COEUS_FAULT", fmt::format("slow rank={} seconds={:.1f}", rank, seconds)}});
        INFO(outcome.output);
        CHECK(outcome.exit_code == 0);
        return outcome.output;
    };
    const auto straggler_lines = [&] {
        std::vector<JsonDocument> found;
        for (const std::string& line : lines_of(read_file(run / "metrics.jsonl")))
            if (line.find("straggler") != std::string::npos)
                found.push_back(JsonDocument::parse(line, "line"));
        return found;
    };
    for (const int rank : {0, 2}) {
        CAPTURE(rank);
        const std::string named = fmt::format("Slow rank {} (host ", rank);
        std::string output;
        until_it_outweighs([&](double seconds) { return output = train(rank, "2", seconds); },
                           [&](const std::string&) {
                               return count_of(named, output) == 2 && count_of("Slow rank", output) == 2;
                           });
        CAPTURE(output);
        CHECK(count_of(named, output) == 2);
        CHECK(count_of(" ms per step longer than others", output) == 2);
        CHECK(count_of("Slow rank", output) == 2);  // no other rank
        const std::vector<JsonDocument> lines = straggler_lines();
        REQUIRE(lines.size() == 2);
        for (size_t i = 0; i < 2; ++i) {
            const JsonView line = lines[i].root();
            CHECK(line.integer("step") == 2 * int64_t(i + 1));
            CHECK(line.integer("straggler_rank") == rank);
            CHECK(line.string("straggler_phase") == "compute");
            CHECK(line.number("straggler_percent") >= 50);
            CHECK(line.contains("straggler_change_ms") == (i == 1));
        }
        CHECK(run_coeus({"report", run.string()}).exit_code == 0);
    }
    CHECK(count_of("Slow rank", train(2, "0", 0.2)) == 0);
    CHECK(straggler_lines().empty());
}

TEST_CASE("stragglers: the rank that delays the others is named, with the cause") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    for (const auto& [fault, what] :
         {std::pair("slow", "its computation takes"), std::pair("slow_data", "it waits for its data")})
        for (const char* accumulation :
             {"--training.global_batch_size=4", "--training.global_batch_size=16"}) {
            CAPTURE(fault, accumulation);
            std::string output;
            const auto train = [&, fault = fault](double seconds) {
                fs::remove_all(folder / "run");
                const Outcome outcome =
                    run_coeus(tiny_run(folder / "run", folder / "tokens.h5",
                                       {steps(12), "--training.local_batch_size=2", accumulation,
                                        "--metrics.straggler_freq=5", "--metrics.straggler_percent=50"}),
                              2, {{"COEUS_FAULT", fmt::format("{} rank=1 seconds={:.1f}", fault, seconds)}});
                INFO(outcome.output);
                CHECK(outcome.exit_code == 0);
                return output = outcome.output;
            };
            until_it_outweighs(train, [&, what = what](const std::string&) {
                return count_of("Slow rank 1 (host ", output) == 2 && count_of(what, output) == 2 &&
                       count_of("Slow rank 0", output) == 0;
            });
            CAPTURE(output);
            CHECK(count_of("Slow rank 1 (host ", output) == 2);
            CHECK(count_of(what, output) == 2);
            CHECK(count_of("Slow rank 0", output) == 0);
        }
}
