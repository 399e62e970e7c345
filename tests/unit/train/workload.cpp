// SPDX-License-Identifier: Apache-2.0
// The workload of a language model: what its reader reads, with and without document starts.
#include "coeus/train/workload.hpp"

#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"
#include "unit/data/token_files.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

TEST_CASE(
    "workload: a reader of text has the windows in the order of the run, and starts if documents are "
    "masked") {
    const TemporaryFolder folder;
    counting_file(folder / "a.h5", 24 * 4, {9, 30});
    Config config;
    config.training.dataset_path = {(folder / "a.h5").string()};
    config.training.seq_len = 3;
    DecoderConfig model = tiny_config();
    model.vocab = 1000;
    for (const bool masks : {false, true}) {
        config.training.document_mask = masks;
        const auto workload = make_workload(config, model, "/no/such/cache", Communicator::self(), 1);
        workload->set_shuffled(false);
        CHECK(workload->tokens_per_sample() == 3);
        CHECK(workload->samples_per_epoch() == 24);
        CHECK_FALSE(workload->validates());
        CHECK(std::string(workload->nothing_counts(2, 4, 7).what()) ==
              "step 2: no token is a label, so there is no loss (samples 4 to 7); check /loss_mask of the "
              "training data");
        const auto reader = workload->reader();
        reader->reserve(2);
        const ReadSamples read = reader->read(5, 2, 1);
        CHECK(read.counted == 6);
        CHECK(read.samples.text.sequences == 2);
        CHECK(std::ranges::equal(read.samples.text.tokens, std::vector<int32_t>{20, 21, 22, 24, 25, 26}));
        CHECK(read.samples.text.document_start.empty() == !masks);
        CHECK(read.samples.slice(1, 1).text.tokens[0] == 24);
    }
}

TEST_CASE("workload: a dry run names the tokenizer that tasks of validations need") {
    const TemporaryFolder folder;
    counting_file(folder / "a.h5", 24 * 4, {9, 30});
    Config config;
    config.training.dataset_path = {(folder / "a.h5").string()};
    config.training.seq_len = config.validation.seq_len = 3;
    config.validation.enable = true;
    config.validation.dataset_path = config.training.dataset_path;
    config.validation.tasks = {(folder / "tasks.jsonl").string()};
    config.model.hf_assets_path = (folder / "absent").string();
    DecoderConfig model = tiny_config();
    model.vocab = 1000;
    const DataCheck found = check_samples(config, model, "");
    CHECK(found.errors.empty());
    REQUIRE(found.absent.size() == 1);
    CHECK_THAT(found.absent[0], Catch::Contains("absent\" (model.hf_assets_path): this file or folder") &&
                                    Catch::Contains("a run needs it to encode validation.tasks"));
}
