// SPDX-License-Identifier: Apache-2.0
// parallelism.tensor_parallel_degree: a value that breaks several rules is refused once, with all of them.
#include "../../../src/deck/tensor_parallel.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"

using namespace coeus;
using Catch::Contains;

namespace {

// llama3 debugmodel, with 16 heads.
std::string refusal(
    int64_t degree, int ranks, void (*change)(Config&) = [](Config&) {}) {
    Config config;
    config.training.seq_len = 2048;
    config.parallelism.tensor_parallel_degree = degree;
    change(config);
    try {
        deck::check_tensor_parallel(config, ranks);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("tensor parallel: all rules that a degree breaks are named at once, with the degrees that fit") {
    CHECK(refusal(3, 8) ==
          "parallelism.tensor_parallel_degree = 3: 8 ranks are not a multiple of 3, and it must divide "
          "training.seq_len = 2048 and model.n_heads = 16; with 8 ranks, 1, 2, 4 and 8 satisfy all rules");
    CHECK(
        refusal(3, 12,
                [](Config& config) {
                    config.parallelism.context_parallel_degree = 2;
                    config.model.n_kv_heads = 2;
                }) ==
        "parallelism.tensor_parallel_degree = 3: must divide training.seq_len = 2048 / 4, model.n_heads = 16 "
        "and model.n_kv_heads = 2; with 12 ranks, 1 and 2 satisfy all rules");
    CHECK_THAT(refusal(3, 1), Contains("1 rank is not a multiple of 3, and it must divide ") &&
                                  Contains("; with 1 rank, 1 satisfies all rules"));
    CHECK_THAT(refusal(3, 8, [](Config& config) { config.parallelism.data_parallel_shard_degree = 5; }),
               Contains("with 8 ranks and the other degrees no value fits"));
    CHECK_THAT(refusal(6, 4, [](Config& config) { config.parallelism.data_parallel_shard_degree = 2; }),
               Contains("with 4 ranks, 2 satisfies all rules"));
    CHECK_THAT(refusal(3, 8,
                       [](Config& config) {
                           config.validation.enable = true;
                           config.validation.seq_len = 512;
                       }),
               Contains("training.seq_len = 2048, validation.seq_len = 512 and model.n_heads = 16"));
    // heads in a folder are not known here
    CHECK_THAT(refusal(3, 8, [](Config& config) { config.model.flavor = "hf"; }),
               Contains("it must divide training.seq_len = 2048; with 8 ranks"));
}

TEST_CASE("tensor parallel: a degree that fits, or breaks one rule, is left to the check of that rule") {
    CHECK(refusal(1, 7) == "no error");
    CHECK(refusal(4, 8) == "no error");
    CHECK(refusal(4, 6) == "no error");    // the mesh
    CHECK(refusal(32, 32) == "no error");  // the heads
    CHECK(refusal(3, 3, [](Config& config) { config.training.seq_len = 96; }) == "no error");
}
