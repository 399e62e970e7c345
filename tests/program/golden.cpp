// SPDX-License-Identifier: Apache-2.0
// The ten steps of golden/models and golden/families from the command line, on one rank and on every axis of
// the mesh.
#include "support/golden.hpp"

#include "coeus/file/json.hpp"
#include "coeus/models/hub_model.hpp"
#include "program/golden_run.hpp"
#include "support/catch.hpp"
#include "support/part.hpp"

using namespace coeus;
using namespace coeus::test;

namespace fs = std::filesystem;

// Without llama3_positions_reset: no option restarts positions in each document if attention crosses
// documents. In llama3_docmask_reset they restart, but with a document mask RoPE depends only on differences
// of positions.
TEST_CASE("ten steps from a Hugging Face folder give the golden values") {
    struct Case {
        const char* name;
        Arguments arguments;
        int ranks;
    };
    const Case cases[] = {{"llama2_mha", {"--model.name=llama2"}, 2},
                          {"llama3_gqa", {}, 0},
                          {"llama31_rope_scaled", {}, 3},
                          {"llama3_docmask", {"--training.document_mask"}, 3},
                          {"llama3_docmask_reset", {"--training.document_mask"}, 0},
                          {"llama3_tied", {}, 0},
                          {"sharded_bf16", {}, 0},
                          {"sharded_f16", {}, 2}};
    for (const Case& c : cases) {
        CAPTURE(c.name);
        const fs::path model = golden(std::string("models/") + c.name);
        if (model.empty()) return;
        check_golden_run(model, model, c.arguments + Arguments{"--training.dtype=float64"}, c.ranks,
                         golden_float64);
        check_golden_run(model, model, c.arguments, 0, golden_float32);
        // config.json as transformers wrote it before version 5
        const TemporaryFolder older;
        for (const auto& entry : fs::directory_iterator(model))
            if (entry.path().filename() != "config.json")
                fs::create_symlink(entry.path(), older / entry.path().filename().string());
        fs::copy_file(model / "config_4x.json", older / "config.json");
        check_golden_run(older.path(), model, c.arguments + Arguments{"--training.dtype=float64"}, 0,
                         golden_float64);
    }
}

TEST_CASE(
    "ten steps from the folder of every other family give the golden values, on one rank and on a mesh") {
    size_t number = 0;
    const auto compare = [&](const fs::path& model, bool on_mesh) {
        const DecoderConfig config = model_from_hub(model.string());
        if (config.family == "llama3") return;  // the test above
        Arguments arguments = {"--model.name=" + config.family, "--training.dtype=float64"};
        if (config.moe.experts > 0) arguments = arguments + Arguments{"--model.moe.load_balance_coeff=0"};
        check_golden_run(model, model, arguments, 0, golden_float64);
        if (!on_mesh) return;
        // one of the meshes that the model and its rows allow
        const JsonDocument expected = JsonDocument::read(model / "expected.json");
        std::vector<Arguments> meshes = {{"--parallelism.data_parallel_shard_degree=2"},
                                         {"--parallelism.pipeline_parallel_degree=2"}};
        const int64_t length = expected.root()["batch"].integer("length");
        if (length % 4 == 0) meshes.push_back({"--parallelism.context_parallel_degree=2"});
        if (length % 2 == 0 && config.head_sizes().kv_heads % 2 == 0)
            meshes.push_back({"--parallelism.tensor_parallel_degree=2"});
        check_golden_run(model, model, arguments + meshes[number++ % meshes.size()], 2, golden_float64);
    };
    Part part("ten steps of further families on a mesh", 1, {.check_all = 1, .short_list = 3});
    std::vector<GoldenCase> cases;
    for (const std::string& name : golden_models()) {
        const fs::path model = golden(name);
        const bool on_mesh = !name.starts_with("families/") || part.takes_next();
        cases.push_back(
            {name, [=] { return unknown_architecture(model); }, [=] { compare(model, on_mesh); }});
    }
    compare_golden(cases);
}

TEST_CASE("ten steps give the golden values if ranks divide each sequence") {
    struct Case {
        const char* name;
        Arguments arguments;
    };
    const Case cases[] = {
        {"llama3_gqa", {}},
        {"llama3_docmask",
         {"--training.document_mask", "--parallelism.context_parallel_rotate_method=alltoall"}},
        {"llama3_gqa", {"--parallelism.context_parallel_rotate_method=heads"}}};
    for (const Case& c : cases) {
        CAPTURE(c.name);
        const fs::path model = golden(std::string("models/") + c.name);
        if (model.empty()) return;
        check_golden_run(
            model, model,
            c.arguments + Arguments{"--training.dtype=float64", "--parallelism.context_parallel_degree=2"}, 2,
            golden_float64);
    }
}

TEST_CASE("ten steps give the golden values if ranks divide each layer, or the sequences") {
    // an even length: each rank has a part of the tokens
    const std::string divided = "--parallelism.tensor_parallel_degree=2",
                      copied = "--parallelism.data_parallel_replicate_degree=2";
    struct Case {
        const char* name;
        Arguments arguments;
    };
    for (const Case& c :
         {Case{"llama3_gqa", {divided}},
          Case{"llama3_gqa", {divided, "--parallelism.enable_async_tensor_parallel"}},
          Case{"llama3_gqa", {divided, "--parallelism.disable_loss_parallel"}},
          Case{"llama3_docmask", {divided, "--training.document_mask"}}, Case{"llama3_gqa", {copied}},
          Case{"llama2_mha", {copied, "--model.name=llama2"}}, Case{"llama3_tied", {copied}},
          Case{"llama3_tied", {"--parallelism.data_parallel_shard_degree=2"}}}) {
        CAPTURE(c.name, c.arguments);
        const fs::path model = golden(std::string("models/") + c.name);
        if (model.empty()) return;
        check_golden_run(model, model, c.arguments + Arguments{"--training.dtype=float64"}, 2,
                         golden_float64);
    }
}

TEST_CASE("ten steps on a pipeline give the golden values") {
    const Arguments pipeline = {"--training.dtype=float64", "--parallelism.pipeline_parallel_degree=2"};
    // later arguments take precedence: a local batch of two micro-batches
    const Arguments two = {"--training.local_batch_size=2"},
                    three = {"--training.local_batch_size=3", "--training.document_mask"};
    const Arguments three_axes = {"--parallelism.pipeline_parallel_schedule=GPipe",
                                  "--parallelism.tensor_parallel_degree=2",
                                  "--parallelism.data_parallel_shard_degree=2"};
    struct Case {
        const char* name;
        Arguments arguments;
        int ranks;
    };
    for (const Case& c :
         {Case{"llama3_gqa", two, 2}, Case{"llama3_tied", two, 2}, Case{"llama3_docmask", three, 2},
          Case{"llama2_mha", two + Arguments{"--model.name=llama2"}, 2}, Case{"llama3_gqa", three_axes, 8}}) {
        CAPTURE(c.name, c.ranks);
        const fs::path model = golden(std::string("models/") + c.name);
        if (model.empty()) return;
        check_golden_run(model, model, pipeline + c.arguments, c.ranks, golden_float64);
    }
}
