// SPDX-License-Identifier: Apache-2.0
// Multi-token prediction in the program: a DeepSeek V3 is trained with it on a mesh, written as a checkpoint
// and as a Hugging Face folder, and read from both with and without its layers.
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/models/hub_model.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <sstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// The router of the flavour 671B has 8 groups of experts.
const Arguments small_v3 = {
    "--model.name=deepseek_v3",   "--model.flavor=671B",        "--model.n_heads=2",
    "--model.n_kv_heads=2",       "--model.head_dim=12",        "--model.v_head_dim=8",
    "--model.qk_rope_head_dim=4", "--model.kv_lora_rank=8",     "--model.q_lora_rank=8",
    "--model.n_dense_layers=1",   "--model.moe.num_experts=16", "--model.moe.top_k=2",
    "--model.moe.hidden=8",       "--training.dtype=float64",   "--model.n_layers=3",
    "--checkpoint.enable",        "--checkpoint.interval=2"};
const Arguments one_depth = {"--model.num_mtp_layers=1", "--loss.loss_fn=MTPLoss"};

std::vector<double> mtp_losses(const fs::path& run) {
    std::vector<double> losses;
    std::istringstream lines(read_file(run / "metrics.jsonl"));
    for (std::string text; std::getline(lines, text);) {
        const JsonDocument line = JsonDocument::parse(text, "metrics.jsonl");
        if (line.root().contains("mtp_loss")) losses.push_back(line.root().number("mtp_loss"));
    }
    return losses;
}

}  // namespace

TEST_CASE(
    "multi-token prediction: a run on a mesh, its folder, and runs from it with and without the layers") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5";
    write_token_file(data, {.tokens = learnable_tokens(3000)});
    const auto losses = [&](const std::string& name, const Arguments& more, int ranks = 0) {
        train_tiny(folder / name, data, small_v3 + more, ranks);
        return read_metrics(folder / name).losses();
    };
    const Arguments few = {"--training.steps=2", "--lr_scheduler.total_steps=4"};
    const std::vector<double> one = losses("one", one_depth + few),
                              many = losses("many",
                                            one_depth + few +
                                                Arguments{"--parallelism.pipeline_parallel_degree=2",
                                                          "--parallelism.pipeline_parallel_schedule=1F1B",
                                                          "--training.local_batch_size=4"},
                                            2);
    REQUIRE(one.size() == 2);
    REQUIRE(many.size() == 2);
    const std::vector<double> parts = mtp_losses(folder / "one"), parts_of_many = mtp_losses(folder / "many");
    REQUIRE(parts.size() == 2);
    REQUIRE(parts_of_many.size() == 2);
    for (size_t i = 0; i < 2; ++i) {
        CHECK(relatively_close(many[i], one[i], 1e-11));
        CHECK(relatively_close(parts_of_many[i], parts[i], 1e-11));
        CHECK(parts[i] > 0.2 * one[i] * 0.3);
        CHECK(parts[i] < 0.5 * one[i]);
    }

    // a folder, whose layer 3 is that of the first depth
    const fs::path hub = folder / "hub";
    const Outcome converted = convert_folder(folder / "one" / checkpoint_of(2), hub);
    INFO(converted.output);
    REQUIRE(converted.exit_code == 0);
    CHECK(model_from_hub(hub.string()).mtp.layers == 1);
    const Safetensors tensors = Safetensors::open((hub / "model.safetensors").string());
    for (const char* name : {"enorm", "hnorm", "eh_proj", "shared_head.norm", "self_attn.o_proj"})
        CHECK(tensors.has(std::string("model.layers.3.") + name + ".weight"));
    const fs::path back = folder / "back.h5";
    CHECK(convert_folder(hub, back).exit_code == 0);

    // runs that start from these weights
    const Arguments next = {"--training.steps=1"};
    const auto from = [](const fs::path& path) {
        return Arguments{"--checkpoint.initial_load_path=" + path.string()};
    };
    const std::vector<double> from_file = losses("from_file", one_depth + next + from(back)),
                              from_hub = losses("from_hub", one_depth + next + from(hub) +
                                                                Arguments{"--checkpoint.initial_load_in_hf"}),
                              shorter = losses("shorter", next + from(back)),
                              shorter_hub =
                                  losses("shorter_hub",
                                         next + from(hub) + Arguments{"--checkpoint.initial_load_in_hf"});
    REQUIRE(from_file.size() == 1);
    CHECK(from_hub == from_file);
    CHECK(shorter_hub == shorter);
    CHECK(relatively_close(shorter.at(0), from_file[0] - mtp_losses(folder / "from_file").at(0), 1e-12));
    CHECK(mtp_losses(folder / "shorter").empty());

    // a run that asks for more layers is refused, and its dry run says so
    const auto refuses = [&](const Arguments& start, const std::string& message) {
        for (const bool dry : {false, true}) {
            Arguments arguments = tiny_run(folder / "longer", data, small_v3 + next + start);
            if (dry) arguments.insert(arguments.end(), {"--dry_run", "--strict"});
            const Outcome outcome = run_coeus(arguments);
            CAPTURE(dry, outcome.output);
            CHECK(outcome.exit_code == 2);
            CHECK_THAT(outcome.output, Contains(message));
        }
    };
    const std::string more =
        "has 1 layers of multi-token prediction, but the model has 2; set "
        "model.num_mtp_layers = 1";
    refuses(from(back) + Arguments{"--model.num_mtp_layers=2"}, more);
    const Arguments from_folder = from(hub) + Arguments{"--checkpoint.initial_load_in_hf"};
    refuses(from_folder + Arguments{"--model.num_mtp_layers=2"}, more);
    const Outcome planned =
        run_coeus(tiny_run(folder / "longer", data, small_v3 + next + from_folder + one_depth) +
                  Arguments{"--dry_run", "--strict"});
    INFO(planned.output);
    CHECK(planned.exit_code == 0);
    // as transformers writes a folder: its config.json has layers that its files lack
    REQUIRE(
        convert_folder(folder / "shorter" / "checkpoint" / "model-00000001.h5", folder / "cut").exit_code ==
        0);
    std::string config = read_file(folder / "cut/config.json");
    const std::string none = "\"num_nextn_predict_layers\": 0";
    REQUIRE(config.find(none) != std::string::npos);
    config.replace(config.find(none) + none.size() - 1, 1, "1");
    write_file(folder / "cut/config.json", config);
    const Outcome cut = run_coeus(tiny_run(folder / "from_cut", data, small_v3 + next) +
                                  Arguments{"--model.flavor=hf", "--checkpoint.initial_load_in_hf",
                                            "--model.hf_assets_path=" + (folder / "cut").string()});
    INFO(cut.output);
    CHECK(cut.exit_code == 0);
    CHECK(count_of("config.json has 1 layers of multi-token prediction, and the files have 0: ",
                   cut.output) == 1);
    CHECK(mtp_losses(folder / "from_cut").empty());
}

TEST_CASE("multi-token prediction: a notice says that it makes the last stage of a pipeline the longest") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5";
    write_token_file(data, {.tokens = learnable_tokens(3000)});
    const auto plan = [&](const Arguments& more) {
        const Outcome outcome = run_coeus(
            tiny_run(folder / "run", data,
                     Arguments{"--model.n_layers=4", "--training.local_batch_size=4",
                               "--parallelism.pipeline_parallel_degree=2",
                               "--parallelism.pipeline_parallel_schedule=1F1B", "--dry_run", "--ranks=2"} +
                         more));
        INFO(outcome.output);
        CHECK(outcome.exit_code == 0);
        return outcome.output;
    };
    const char* const notice = "make the last stage longer than all others, so their ranks will wait for it";
    CHECK_THAT(plan({}), !Contains(notice) && Contains("layers 2 to 3, norm, output (rank 1)"));
    CHECK_THAT(plan(one_depth),
               Contains("layers 2 to 3, norm, output, 1 for further tokens (rank 1)") &&
                   Contains(std::string(notice) +
                            "; set parallelism.pipeline_parallel_last_stage_less_layers = 2\n"));
    CHECK_THAT(plan(one_depth + Arguments{"--parallelism.pipeline_parallel_last_stage_less_layers=2"}),
               !Contains(notice) && Contains("layer 3, norm, output, 1 for further tokens"));
    const std::string by_names =
        "tok_embeddings,layers.0,layers.1;layers.2,layers.3,norm,output,mtp_layers.0";
    CHECK_THAT(plan(one_depth + Arguments{"--parallelism.module_fqns_per_model_part=" + by_names}),
               Contains(std::string(notice) +
                        "; move layers to earlier stages in parallelism.module_fqns_per_model_part\n"));
    // no cost of the last stage helps if it has too few layers to give away
    CHECK_THAT(plan(one_depth + Arguments{"--model.n_layers=2", "--model.num_mtp_layers=3"}),
               Contains(std::string(notice) + "\n"));
}
