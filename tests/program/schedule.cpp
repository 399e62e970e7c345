// SPDX-License-Identifier: Apache-2.0
// coeus schedule as a user runs it.
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace coeus::test;
using Catch::Contains;

TEST_CASE("program: a schedule's timetable, picture and CSV") {
    const TemporaryFolder folder;
    const Outcome run = run_coeus({"schedule", "--name", "1F1B", "--pp", "4", "--microbatches", "8", "--svg",
                                   "t.svg", "--output=t.csv"},
                                  0, {}, folder.path());
    CHECK(run.exit_code == 0);
    CHECK_THAT(run.output, Contains("1F1B: 4 ranks, 8 micro-batches, 1 stage on each rank\n"));
    CHECK_THAT(run.output, Contains("rank 0  F0 F1 F2 F3 .  .  .  .  .  .  B0--- F4 B1---"));
    CHECK_THAT(run.output, Contains("\nrank 3  .  .  .  F0 B0--- F1"));
    CHECK_THAT(run.output, Contains("\ntime            33, of which each rank works 24\n"));
    CHECK_THAT(run.output, Contains("\nbubble          27.3 %\n"));
    CHECK_THAT(run.output, Contains("\nframes alive    4 3 2 1, rank by rank\n"));
    CHECK_THAT(run.output, Contains("\nmessages        48\n") && !Contains("\033"));
    CHECK_THAT(read_file(folder / "t.svg"), Contains("<svg ") && Contains("bubble 27.3 %"));
    CHECK_THAT(read_file(folder / "t.csv"), Contains("3F0,3B0,3F1,3B1,3F2"));

    // reading the file gives the same timetable
    const Outcome again =
        run_coeus({"schedule", "--csv", "t.csv", "--output", "u.csv"}, 0, {}, folder.path());
    CHECK(again.exit_code == 0);
    CHECK_THAT(again.output, Contains("t.csv: 4 ranks, 8 micro-batches, 1 stage on each rank\n"));
    CHECK(again.output.substr(again.output.find('\n')) == run.output.substr(run.output.find('\n')));
    CHECK(read_file(folder / "u.csv") == read_file(folder / "t.csv"));

    // an existing file is kept, unless --force is given
    for (const char* flag : {"--output", "--svg"}) {
        std::vector<std::string> words = {"schedule", "--csv", "t.csv", flag, "u.csv"};
        const Outcome kept = run_coeus(words, 0, {}, folder.path());
        CHECK(kept.exit_code == 2);
        CHECK(count_of("error - u.csv already exists; --force replaces it", kept.output) == 1);
        CHECK(read_file(folder / "u.csv") == read_file(folder / "t.csv"));
        words.emplace_back("--force");
        CHECK(run_coeus(words, 0, {}, folder.path()).exit_code == 0);
    }
    CHECK_THAT(read_file(folder / "u.csv"), Contains("<svg "));

    const Outcome lowered = run_coeus(
        {"schedule", "--name=dualpipev", "--pp=2", "--microbatches=4", "--output=l.csv", "--lowered"}, 0, {},
        folder.path());
    CHECK(lowered.exit_code == 0);
    CHECK_THAT(lowered.output, Contains("DualPipeV: 2 ranks, 4 micro-batches, 2 stages on each rank\n") &&
                                   Contains("3F2+0B0----") &&
                                   Contains("weights owed    1 2, rank by rank\n"));
    CHECK_THAT(read_file(folder / "l.csv"), Contains("0F0,0SEND_F0,0F1") && Contains("(0F3;3B1)OVERLAP_F_B"));
}

TEST_CASE("program: schedule names what is wrong and ends with exit code 2") {
    const TemporaryFolder folder;
    const auto check = [&](const std::vector<std::string>& arguments, const std::string& message,
                           int exit_code = 2) {
        std::vector<std::string> words = {"schedule"};
        words.insert(words.end(), arguments.begin(), arguments.end());
        const Outcome outcome = run_coeus(words, 0, {}, folder.path());
        CHECK(outcome.exit_code == exit_code);
        CHECK_THAT(outcome.output, Contains("error - " + message));
    };
    check({}, "coeus schedule needs --name or --csv; see coeus help schedule");
    check({"1F1B"}, "coeus schedule");
    check({"--name", "1F1C", "--pp", "4", "--microbatches", "8"},
          "--name 1F1C: no such schedule (did you mean 1F1B?); there are GPipe, 1F1B, Interleaved1F1B, "
          "LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV");
    check({"--name", "1F1B", "--microbatches", "8"}, "coeus schedule needs --pp");
    check({"--name", "1F1B", "--pp", "4"}, "coeus schedule needs --microbatches");
    check({"--name", "1F1B", "--pp", "0", "--microbatches", "8"},
          "coeus schedule: --pp must be a whole number of at least 1 and at most 256, but is \"0\"");
    check({"--name", "DualPipeV", "--pp", "4", "--microbatches", "3"},
          "--microbatches 3: DualPipeV on 4 ranks has 8 stages and needs at least as many micro-batches; the "
          "nearest valid value is 8");
    check({"--name", "1F1B", "--pp", "4", "--microbatches", "8", "--virtual", "2"},
          "--virtual 2: 1F1B has one stage on each rank; the nearest valid value is 1");
    check({"--name", "Interleaved1F1B", "--pp", "4", "--microbatches", "13"},
          "--microbatches 13: Interleaved1F1B on 4 ranks runs 13 micro-batches in 3 rounds, and their number "
          "must be a multiple of the rounds; the nearest valid value is 12");
    check({"--csv", "absent.csv"}, "absent.csv: cannot be read: No such file or directory");
    check({"--csv", "x.csv", "--pp", "4"}, "--pp and --csv cannot be used together: the file determines it");
    write_file(folder / "x.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
    write_file(folder / "y.csv", "0F0,0B0\n");
    check({"--csv", "y.csv", "--output", "./y.csv", "--force"},
          "coeus schedule: --csv and --output name the same file, ./y.csv; give them two names");
    check({"--csv", "x.csv"},
          "x.csv: rank 0, cell 1: 0B0 waits forever for 1B0 (rank 1, cell 2); there 1F1 (cell 1) waits for "
          "0F1 (rank 0, cell 2)");
    write_file(folder / "x.csv", "0F0,0G0\n");
    check({"--csv", "x.csv"}, "x.csv: rank 0, cell 1: \"0G0\" is not an action");
    check({"--name", "GPipe", "--pp", "1", "--microbatches", "1", "--lowered"},
          "--lowered needs --output FILE");
    check({"--name", "GPipe", "--pp", "1", "--microbatches", "1", "--svg", "absent/t.svg"},
          "cannot write absent/t.svg: No such file or directory", 3);
    const Outcome help = run_coeus({"help", "schedule"});
    CHECK(help.exit_code == 0);
    CHECK_THAT(help.output,
               Contains("usage: coeus schedule --name NAME --pp P --microbatches M | --csv FILE") &&
                   Contains("ZBVZeroBubble"));
}
