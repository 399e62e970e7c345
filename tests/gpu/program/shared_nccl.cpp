// SPDX-License-Identifier: Apache-2.0
// The program on two ranks that share a GPU and exchange tensors through NCCL (2.30 or newer). The tagged
// cases are those of tests/gpu/run.sh FOLDER nccl-shared, which prints their lines.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <iostream>
#include <regex>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

const Arguments by_nccl = {"--device=cuda", "--comm.transport=nccl", "--training.global_batch_size=4",
                           "--training.local_batch_size=2"};
const Arguments shards = {"--parallelism.data_parallel_shard_degree=2"},
                tensors = {"--parallelism.tensor_parallel_degree=2"};

std::map<std::string, std::string> shared_by(int emulated_gib, const std::string& fault = "") {
    std::map<std::string, std::string> environment = {{"NCCL_MULTI_RANK_GPU_ENABLE", "1"},
                                                      {"NCCL_MAX_CTAS", "2"},
                                                      {"NCCL_BUFFSIZE", "1048576"},
                                                      {"COEUS_FAULT", fault},
                                                      {"COEUS_EMULATED_GIB", std::to_string(emulated_gib)}};
    // mpirun waits so long after a death before it kills the other ranks
    if (!fault.empty()) environment["OMPI_MCA_odls_base_sigkill_timeout"] = std::to_string(whole_patience(5));
    return environment;
}

fs::path shared_data(const TemporaryFolder& folder) {
    const fs::path file = folder / "tokens.h5";
    write_token_file(file, {.tokens = learnable_tokens(60 * 17)});
    return file;
}

void show(int number, const std::string& text) {
    std::cout << fmt::format("\nshown {} nccl, 2 ranks of the program on 1 GPU: {}\n", number, text)
              << std::flush;
}

}  // namespace

TEST_CASE("GPU: ranks that share a GPU are refused if they plan more memory than it has together") {
    const TemporaryFolder folder;
    const Outcome run =
        run_coeus(tiny_run(folder / "run", shared_data(folder), by_nccl + shards), 2, shared_by(4));
    if (run.output.find("NCCL cannot be loaded") != std::string::npos)
        return skip("the program finds no NCCL");
    INFO(run.output);
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.output, Contains("Ranks exchange tensors through NCCL 2.") &&
                               Contains("ranks 0 and 1 share GPU ") &&
                               Contains("this is for tests, and slow"));
    CHECK_THAT(run.output, Contains("the run needs ") && Contains("The 2 ranks that share this GPU need ") &&
                               Contains(" together, and 4.00 GiB are free: start fewer ranks on it. "));
}

TEST_CASE("shared NCCL: a killed rank ends the others", "[.][nccl-shared]") {
    const TemporaryFolder folder;
    const Arguments arguments = tiny_run(
        folder / "run", shared_data(folder),
        by_nccl + shards + Arguments{fmt::format("--comm.train_timeout_seconds={}", whole_patience(10))});
    const Outcome run = run_coeus(arguments, 2, shared_by(16, "kill rank=1 step=3"));
    INFO(run.output);
    CHECK(run.exit_code != 0);
    CHECK_THAT(run.output,
               Contains("has died") && Contains("Likely cause: rank 1 ") && Contains("waiting for"));
    CHECK(processes_left(folder / "run", patience(20)) == "");
    if (run.output.find("Likely cause: rank 1 ") != std::string::npos)
        show(6,
             fmt::format("a killed rank: the other one reports it and ends (exit code {})", run.exit_code));
}

TEST_CASE("shared NCCL: a run resumes on another mesh", "[.][nccl-shared]") {
    const TemporaryFolder folder;
    const fs::path data = shared_data(folder);
    const Arguments more = {"--checkpoint.enable", "--checkpoint.interval=3", "--lr_scheduler.total_steps=6"};
    const auto trained = [&](const char* name, const Arguments& options) {
        const Outcome run =
            run_coeus(tiny_run(folder / name, data, by_nccl + more + options), 2, shared_by(16));
        INFO(run.output);
        CHECK(run.exit_code == 0);
        CHECK_THAT(run.output, Contains("Ranks exchange tensors through NCCL 2.") &&
                                   Contains("The GPU runs steps as CUDA graphs") &&
                                   Contains("NCCL's communicators: "));
        return run.output;
    };
    trained("whole", shards);
    trained("parts", shards + Arguments{steps(3)});
    const std::string resumed = trained("parts", tensors);
    CHECK_THAT(resumed, Contains("Resuming from"));
    const std::vector<double> losses = read_metrics(folder / "parts").losses(),
                              expected = read_metrics(folder / "whole").losses();
    REQUIRE(losses.size() == 6);
    REQUIRE(expected.size() == 6);
    bool close = true;
    for (size_t i = 0; i < 6; ++i) close = close && relatively_close(losses[i], expected[i], 1e-4);
    CHECK(close);
    std::smatch memory;
    std::regex_search(resumed, memory, std::regex("NCCL's communicators: .*"));
    show(7, fmt::format("a run of 2 shards resumes with 2 tensor ranks, losses {}; {}",
                        close ? "equal" : "DIFFER", memory.str()));
}
