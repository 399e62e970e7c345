// SPDX-License-Identifier: Apache-2.0
// Decks, models and token files that only rank 0 can read.
#include "coeus/base/error.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/data/token_file.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/train/training_data.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// A path that exists only on rank 0.
std::string with_rank_0(const Communicator& world, const std::filesystem::path& path) {
    return world.rank() == 0 ? path.string() : "/no/such/path";
}

}  // namespace

TEST_CASE("config: all ranks get what rank 0 reads") {
    const Communicator world = Communicator::world("world");
    const TemporaryFolder folder;
    write_file(folder / "base.toml", "[training]\nsteps = 7\ndataset_path = \"x y.h5\"\n");
    write_file(folder / "deck.toml",
               "include = \"base.toml\"\n[optimizer]\nlr = 3e-5\n[training]\ngc_freq = 3\n"
               "[parallelism]\npipeline_parallel_schedule_csv = \"" +
                   (folder / "table.csv").string() + "\"\n");
    write_file(folder / "table.csv", "0F0,0B0\n");
    const std::string deck = with_rank_0(world, folder / "deck.toml");
    const CommandLine line = parse_command_line({deck, "--training.seq_len=64", "--log.quiet"}, world);
    CHECK(line.config.training.steps == 7);
    CHECK(line.config.training.seq_len == 64);
    CHECK(line.config.validation.seq_len == 64);
    CHECK(line.config.training.dataset_path == Words{"x y.h5"});
    CHECK(line.config.optimizer.lr == 3e-5);
    CHECK(line.config.log.quiet);
    CHECK(line.config.parallelism.schedule_table == "0F0,0B0\n");
    CHECK(line.config.job.config_file == broadcast_text(world, line.config.job.config_file));
    CHECK(deck_text(line.config) == broadcast_text(world, deck_text(line.config)));
    REQUIRE(line.notices.size() == 1);
    CHECK_THAT(line.notices[0], Contains("gc_freq"));
    CHECK(parse_command_line({deck, "--dry_run", "--ranks=512"}, world).ranks == 512);
    CHECK_THROWS_WITH(parse_command_line({deck, "--training.stepps=3"}, world), Contains("training.steps"));
}

TEST_CASE("config: a Hugging Face folder is read by rank 0") {
    const Communicator world = Communicator::world("world");
    const TemporaryFolder folder;
    write_file(folder / "config.json",
               R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"num_hidden_layers":2,)"
               R"("num_attention_heads":4,"intermediate_size":96,"vocab_size":100,"rms_norm_eps":1e-5,)"
               R"("rope_theta":123456.7})");
    Config config;
    config.model.flavor = "hf";
    config.model.hf_assets_path = with_rank_0(world, folder.path());
    const DecoderConfig model = model_from_deck(config, world);
    CHECK(model.dim == 64);
    CHECK(model.rope.theta == 123456.7);
    CHECK(model.head_sizes().kv_heads == 4);
    config.model.hf_assets_path = "/no/such/path";
    CHECK_THROWS_AS(model_from_deck(config, world), ConfigError);
}

TEST_CASE("data: rank 0 checks token files, the other ranks map them") {
    const Communicator world = Communicator::world("world");
    const TemporaryFolder folder;
    const std::vector<uint16_t> tokens = learnable_tokens(300);
    std::vector<uint8_t> mask(300, 1);
    mask[5] = 0;
    if (world.rank() == 0)
        write_token_file(folder / "t.h5", {.tokens = tokens, .documents = {0, 17, 300}, .loss_mask = mask});
    Config config;
    config.training.dataset_path = {broadcast_text(world, (folder / "t.h5").string())};
    config.training.seq_len = 16;
    const TrainingData data(config, 64, "/no/such/cache", world, 1);
    CHECK_THAT(data.summary(), Contains("300 tokens in 2 documents"));
    std::vector<int32_t> row(16), labels(16), starts(16);
    SampleStream stream = data.training();
    CHECK(stream.sample(0, row, labels, starts) == 15);
    CHECK(row[15] == tokens[15]);
    world.barrier();  // the file must exist until all have read it
}
