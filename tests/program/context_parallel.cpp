// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks divide each sequence, against one rank: the same losses, gradient norms and validation.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// Documents and labels that do not line up with windows.
void write_data(const fs::path& file) {
    TokenData data = {.tokens = learnable_tokens(100 * 18), .documents = {0, 5, 30, 31, 500, 900, 1800}};
    for (size_t i = 0; i < data.tokens.size(); ++i) data.loss_mask.push_back(i % 7 != 0 && i % 400 > 50);
    write_token_file(file, data);
}

}  // namespace

TEST_CASE("ranks that divide each sequence train as one rank does") {
    const TemporaryFolder folder;
    write_data(folder / "tokens.h5");
    const Arguments more = {"--training.dtype=float64",
                            "--training.steps=5",
                            "--training.local_batch_size=2",
                            "--training.global_batch_size=4",
                            "--training.document_mask",
                            "--validation.enable",
                            "--validation.freq=5",
                            "--validation.steps=1",
                            "--validation.local_batch_size=2"};
    struct Layout {
        const char* what;
        int ranks, data_ranks;
        Arguments arguments;
    };
    const Layout layouts[] = {
        {"2 ranks, allgather", 2, 1, {"--parallelism.context_parallel_degree=2"}},
        {"2 ranks, alltoall",
         2,
         1,
         {"--parallelism.context_parallel_degree=2", "--parallelism.context_parallel_rotate_method=alltoall",
          "--parallelism.context_parallel_load_balancer=none"}},
        {"4 ranks, 2 of heads",
         4,
         2,
         {"--parallelism.context_parallel_degree=2", "--parallelism.context_parallel_rotate_method=heads",
          "--validation.local_batch_size=1"}},
        {"4 ranks, alltoall",
         4,
         1,
         {"--parallelism.context_parallel_degree=4",
          "--parallelism.context_parallel_rotate_method=alltoall"}},
    };
    train_tiny(folder / "one", folder / "tokens.h5", more);
    const MetricLines one = read_metrics(folder / "one");
    REQUIRE(one.steps.size() == 5);
    REQUIRE(one.validations.size() == 2);
    for (const Layout& layout : layouts) {
        CAPTURE(layout.what);
        const fs::path out = folder / layout.what;
        const Outcome run = train_tiny(out, folder / "tokens.h5", more + layout.arguments, layout.ranks);
        CHECK_THAT(run.output,
                   Contains("of 16 tokens (load balancer ") && Contains("keys and values are exchanged by "));
        const MetricLines lines = read_metrics(out);
        REQUIRE(lines.steps.size() == 5);
        REQUIRE(lines.validations.size() == 2);
        for (size_t i = 0; i < 5; ++i) {
            CAPTURE(i);
            CHECK(relatively_close(lines.steps[i].loss, one.steps[i].loss, 1e-11));
            CHECK(relatively_close(lines.steps[i].grad_norm, one.steps[i].grad_norm, 1e-9));
            CHECK(lines.steps[i].tokens_seen == one.steps[i].tokens_seen);
            if (layout.data_ranks == 1)
                CHECK(relatively_close(lines.steps[i].loss_max, one.steps[i].loss, 1e-11));
        }
        for (size_t i = 0; i < 2; ++i) {
            CHECK(relatively_close(lines.validations[i].loss, one.validations[i].loss, 1e-11));
            CHECK(lines.validations[i].tokens == one.validations[i].tokens);
        }
    }
}

TEST_CASE("documents that divide attention unequally are told, with the exchange that divides it equally") {
    const TemporaryFolder folder;
    constexpr int64_t length = 17, windows = 40;  // with the label of the last token
    TokenData data = {.tokens = learnable_tokens(length * windows + 1), .documents = {}};
    for (int64_t first = 0; first < length * windows; first += length)
        for (int64_t i = 0; i < 5; ++i) data.documents.push_back(first + i);
    data.documents.push_back(length * windows + 1);
    write_token_file(folder / "tokens.h5", data);
    const auto said = [&](const Arguments& more) {
        const Outcome run = run_coeus(
            tiny_run(folder / "out", folder / "tokens.h5",
                     Arguments{"--training.document_mask", "--training.steps=1", "--training.seq_len=16",
                               "--training.local_batch_size=1", "--parallelism.context_parallel_degree=2"} +
                         more),
            2);
        CHECK(run.exit_code == 0);
        fs::remove_all(folder / "out");
        return run.output;
    };
    const char* const unequally =
        "documents divide the attention of context-parallel ranks unequally: in 40 samples, "
        "the busiest rank has 1.12 times the mean; with "
        "parallelism.context_parallel_rotate_method = \"heads\" all have the same";
    CHECK_THAT(said({}), Contains(unequally));
    CHECK_THAT(said({"--parallelism.context_parallel_rotate_method=heads"}), !Contains("unequally"));
    CHECK_THAT(said({"--training.document_mask=false"}), !Contains("unequally"));
}

TEST_CASE("a deck that asks for something that context parallelism cannot do ends the run with exit code 2") {
    const TemporaryFolder folder;
    write_data(folder / "tokens.h5");
    const auto refused = [&](const Arguments& more, int ranks) {
        const Outcome run = run_coeus(tiny_run(folder / "out", folder / "tokens.h5", more), ranks);
        CHECK(run.exit_code == 2);
        return run.output;
    };
    CHECK_THAT(refused({"--parallelism.context_parallel_degree=2", "--training.seq_len=18"}, 2),
               Contains("training.seq_len = 18: must be a multiple of 4, tensor_parallel_degree x "
                        "context_parallel_degree x 2 (context_parallel_load_balancer = \"headtail\"); the "
                        "nearest valid value is 20"));
    const Arguments heads = {"--parallelism.context_parallel_degree=4",
                             "--parallelism.context_parallel_rotate_method=heads"};
    const auto names_the_degrees = Contains(
        "parallelism.context_parallel_degree = 4: must divide the heads that are exchanged "
        "(context_parallel_rotate_method = \"heads\", and generation), model.n_kv_heads / "
        "tensor_parallel_degree = 2; "
        "valid are 1, 2");
    CHECK_THAT(refused(heads, 4), names_the_degrees);
    CHECK_THAT(refused(heads + Arguments{"--dry_run", "--ranks=4"}, 0), names_the_degrees);
    const std::string ptrr = "--parallelism.context_parallel_load_balancer=ptrr";
    CHECK_THAT(
        refused({ptrr, "--parallelism.context_parallel_degree=2"}, 2),
        Contains("parallelism.context_parallel_load_balancer = \"ptrr\": Coeus moves no tokens to balance a "
                 "mask; set parallelism.context_parallel_rotate_method = \"heads\""));
    const Arguments by_heads = {ptrr, "--parallelism.context_parallel_degree=2",
                                "--parallelism.context_parallel_rotate_method=heads"};
    for (const auto& [more, ranks] : {std::pair(by_heads, 2), std::pair(Arguments{ptrr}, 0)})
        CHECK(run_coeus(tiny_run(folder / "ptrr", folder / "tokens.h5", more), ranks).exit_code == 0);
}
