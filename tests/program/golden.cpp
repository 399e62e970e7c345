// SPDX-License-Identifier: Apache-2.0
// The ten steps of golden/models from the command line: a Hugging Face folder as start, the batches as a
// token file, the figures read off metrics.jsonl. Tolerances: golden/README.md.
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "program/tiny_run.hpp"

#include <catch2/catch.hpp>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

struct Tolerances {
    double loss, grad_norm, lr;
};
constexpr Tolerances in_float32 = {1e-5, 5e-5, 1e-12}, in_float64 = {1e-10, 1e-9, 1e-12};

// Windows of a row of `tokens` [10, B, S + 1] each, in order. The case's documents are those of the inputs;
// the last token of a window belongs to the document before it, and each window begins one.
TokenData batches_as_stream(const Safetensors& batches) {
    TokenData data;
    const auto tokens = batches.read_all<int64_t>("tokens");
    data.tokens.assign(tokens.begin(), tokens.end());
    if (!batches.has("document_ids")) return data;
    const auto ids = batches.read_all<int64_t>("document_ids");
    const int64_t length = batches.entry("document_ids").shape.cols();
    for (int64_t row = 0; row < int64_t(ids.size()) / length; ++row)
        for (int64_t t = 0; t < length; ++t)
            if (t == 0 || ids[size_t(row * length + t)] != ids[size_t(row * length + t - 1)])
                data.documents.push_back(uint64_t(row * (length + 1) + t));
    data.documents.push_back(uint64_t(tokens.size()));
    return data;
}

void compare_run(const fs::path& model, const fs::path& reference, const Arguments& more, int ranks,
                 const Tolerances& allowed) {
    const TemporaryFolder folder;
    const Safetensors batches = Safetensors::open((reference / "batch.safetensors").string());
    const Shape shape = batches.entry("tokens").shape;
    write_token_file(folder / "tokens.h5", batches_as_stream(batches));
    const Outcome run = run_coeus(
        Arguments{"train", "--job.dump_folder=" + (folder / "out").string(),
                  "--training.dataset_path=" + (folder / "tokens.h5").string(), "--model.flavor=hf",
                  "--model.hf_assets_path=" + model.string(), "--checkpoint.initial_load_in_hf",
                  fmt::format("--training.seq_len={}", shape.cols() - 1), "--training.local_batch_size=1",
                  fmt::format("--training.global_batch_size={}", shape[1]),
                  "--training.mixed_precision_param=float32", "--training.threads=1", "--training.steps=10",
                  "--optimizer.lr=8e-4", "--lr_scheduler.warmup_steps=2", "--metrics.log_freq=1"} +
            more,
        ranks);
    INFO(run.output);
    REQUIRE(run.exit_code == 0);
    CHECK_THAT(run.output, Contains("Starting from the weights of " + model.string()));
    const JsonDocument expected = JsonDocument::read(reference / "expected.json");
    const std::vector<JsonView> should = expected.root()["training"]["steps"].elements();
    const std::vector<StepLine> is = read_metrics(folder / "out").steps;
    REQUIRE(should.size() == 10);
    REQUIRE(is.size() == 10);
    for (size_t i = 0; i < 10; ++i) {
        CAPTURE(i);
        CHECK(is[i].step == should[i].integer("step"));
        CHECK(relatively_close(is[i].loss, should[i].number("loss"), allowed.loss));
        CHECK(relatively_close(is[i].grad_norm, should[i].number("grad_norm"), allowed.grad_norm));
        CHECK(relatively_close(is[i].lr, should[i].number("lr"), allowed.lr));
    }
}

}  // namespace

TEST_CASE("Ten steps from a Hugging Face folder have the golden figures") {
    struct Case {
        const char* name;
        Arguments arguments;
        int ranks;
    };
    const Case cases[] = {{"llama2_mha", {"--model.name=llama2"}, 2},
                          {"llama3_gqa", {}, 0},
                          {"llama3_docmask", {"--training.document_mask"}, 3},
                          {"llama3_tied", {}, 0},
                          {"sharded_bf16", {}, 0},
                          {"sharded_f16", {}, 2}};
    for (const Case& c : cases) {
        CAPTURE(c.name);
        const fs::path model = golden(std::string("models/") + c.name);
        if (model.empty()) return;
        compare_run(model, model, c.arguments + Arguments{"--training.dtype=float64"}, c.ranks, in_float64);
        compare_run(model, model, c.arguments, 0, in_float32);
        // config.json as transformers wrote it before version 5
        const TemporaryFolder older;
        for (const auto& entry : fs::directory_iterator(model))
            if (entry.path().filename() != "config.json")
                fs::create_symlink(entry.path(), older / entry.path().filename().string());
        fs::copy_file(model / "config_4x.json", older / "config.json");
        compare_run(older.path(), model, c.arguments + Arguments{"--training.dtype=float64"}, 0, in_float64);
    }
}

TEST_CASE("Ten steps have the golden figures where ranks divide each sequence") {
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
        compare_run(
            model, model,
            c.arguments + Arguments{"--training.dtype=float64", "--parallelism.context_parallel_degree=2"}, 2,
            in_float64);
    }
}

TEST_CASE("Ten steps have the golden figures where ranks divide each layer, or the sequences") {
    // an even length, where each rank has a part of the tokens
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
        compare_run(model, model, c.arguments + Arguments{"--training.dtype=float64"}, 2, in_float64);
    }
}

TEST_CASE("Ten steps on a pipeline have the golden figures") {
    const Arguments pipeline = {"--training.dtype=float64", "--parallelism.pipeline_parallel_degree=2"};
    // what is given later counts: a local batch of two micro-batches
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
        compare_run(model, model, pipeline + c.arguments, c.ranks, in_float64);
    }
}
