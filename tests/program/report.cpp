// SPDX-License-Identifier: Apache-2.0
// report.html at the end of a run, and `coeus report`.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace fs = std::filesystem;

TEST_CASE("a run leaves a report, and runs are compared") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const auto path = [&](const char* name) { return (folder / name).string(); };
    const Outcome run = train_tiny(folder / "a", folder / "tokens.h5", {"--validation.enable"}, 2);
    CHECK(count_of("Plots of this run: ", run.output) == 1);
    CHECK_THAT(read_file(folder / "a/report.html"), Contains("<title>a</title>") && Contains("validation"));
    // a run does not fail if only its report cannot be written
    fs::create_directories(folder / "b/report.html/inside");
    CHECK_THAT(train_tiny(folder / "b", folder / "tokens.h5", {"--optimizer.lr=2e-2"}).output,
               Contains("warning - The page ") && Contains("b/report.html"));

    const Outcome both =
        run_coeus({"report", path("a"), path("b"), "--output", path("both.html"), "--csv", path("both.csv")});
    INFO(both.output);
    CHECK(both.exit_code == 0);
    CHECK_THAT(both.output, Contains("Loss (nats per token)") && Contains("optimizer.lr") &&
                                Contains("0.01") && Contains("0.02") && Contains("both.html"));
    CHECK(both.output.find('\033') == std::string::npos);
    CHECK_THAT(read_file(folder / "both.html"), Contains("2 training runs"));
    const std::string csv = read_file(folder / "both.csv");
    CHECK(csv.starts_with("run,step,loss,loss_max,grad_norm,lr,tokens_seen,epoch,tps,"));
    CHECK(count_of("\n", csv) == 1 + 6 + 6);

    // a device or pipe is written to, not replaced
    const Outcome piped = run_shell(coeus_line({"report", path("a"), "--csv", "/dev/stdout"}) + " | cat");
    CHECK_THAT(piped.output, Contains("run,step,loss,loss_max,grad_norm,lr,"));
    CHECK(fs::is_symlink("/dev/stdout"));

    // names of folders are printed so that they cannot control the terminal
    fs::copy(folder / "a", folder / "b\033[31m", fs::copy_options::recursive);
    const Outcome odd = run_coeus({"report", path("a"), path("b\033[31m")});
    CHECK(odd.exit_code == 0);
    CHECK_THAT(odd.output, Contains("b\\x1b[31m"));
    CHECK(odd.output.find('\033') == std::string::npos);

    // a wrong argument does not overwrite a run's metrics
    const std::string metrics = read_file(folder / "a/metrics.jsonl");
    for (const char* flag : {"--csv", "--output"}) {
        const Outcome kept = run_coeus({"report", path("a"), flag, path("a/metrics.jsonl"), "--force"});
        CHECK(kept.exit_code == 2);
        CHECK(count_of("a/metrics.jsonl, which the command reads; give another", kept.output) == 1);
        CHECK(read_file(folder / "a/metrics.jsonl") == metrics);
    }
    CHECK(run_coeus({"report", path("a"), "--csv", path("both.csv"), "--force"}).exit_code == 0);
    CHECK(count_of("\n", read_file(folder / "both.csv")) == 1 + 6);
}

TEST_CASE("coeus report names what is wrong") {
    const TemporaryFolder folder;
    write_file(folder / "empty/metrics.jsonl", "");
    write_file(folder / "broken/metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":}\n{\"step\":3}\n");
    const auto refused = [&](const Arguments& arguments, const std::string& message) {
        const Outcome outcome = run_coeus(Arguments{"report"} + arguments);
        INFO(outcome.output);
        CHECK(outcome.exit_code == 2);
        CHECK_THAT(outcome.output, Contains(message));
        CHECK(count_of("\n", outcome.output) == 1);
    };
    refused({}, "coeus report needs the folder of a run");
    refused({(folder / "nowhere").string()}, "nowhere does not exist");
    refused({folder.path().string()}, "is not the folder of a run: it has no metrics.jsonl; runs in it: ");
    refused({(folder / "empty").string()}, "empty/metrics.jsonl has no logged step yet");
    refused({(folder / "broken").string()}, "broken/metrics.jsonl:2");
    refused({(folder / "broken").string(), "--ouput", "x"}, "did you mean --output?");
    std::filesystem::create_directory_symlink(folder.path(), folder / "again");
    const std::string metrics = read_file(folder / "broken/metrics.jsonl");
    for (const char* flag : {"--output", "--csv"})
        refused(
            {(folder / "broken").string(), "--force", flag, (folder / "again/broken/metrics.jsonl").string()},
            std::string("coeus report: ") + flag + " " + (folder / "again/broken/metrics.jsonl").string() +
                " would replace " + (folder / "broken/metrics.jsonl").string());
    CHECK(read_file(folder / "broken/metrics.jsonl") == metrics);
    refused({(folder / "broken").string(), "--output", (folder / "x").string(), "--csv",
             (folder / "again/empty/../x").string()},
            "coeus report: --output and --csv name the same file, ");
}
