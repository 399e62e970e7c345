// SPDX-License-Identifier: Apache-2.0
// Quantized Hugging Face folders in the program: runs, `coeus convert`, `coeus generate` and `coeus info`
// give what they give for a folder with the decoded weights. Without the option, a run refuses them.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/packed_folder.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

const std::string option = "--checkpoint.initial_load_in_hf_quantized";

class Folders {
public:
    explicit Folders(const PackedModel& of) : family_(of.model.family) {
        write_packed_folder(quantized(), decoded(), of);
        write_token_file(folder_ / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    }
    fs::path quantized() const { return folder_ / "quantized"; }
    fs::path decoded() const { return folder_ / "decoded"; }
    fs::path path(const std::string& name) const { return folder_ / name; }

    /// A run of 3 steps that starts from a folder.
    Outcome train(const fs::path& from, const fs::path& dump_folder, const Arguments& more,
                  int ranks = 0) const {
        return run_coeus(run_from_folder(dump_folder, path("tokens.h5"), from, family_, more), ranks);
    }
    /// Expects exit code 2 and this one error.
    void refuse(const fs::path& from, const Arguments& more, const std::string& message,
                int ranks = 0) const {
        const Outcome run = train(from, path("refused"), more, ranks);
        INFO(run.output);
        CHECK(run.exit_code == 2);
        CHECK(count_of(" - error - " + message, run.output) == 1);
        CHECK(count_of(" - error - ", run.output) == 1);
        CHECK(count_of(" step: ", run.output) == 0);
    }

private:
    TemporaryFolder folder_;
    std::string family_;
};

std::string succeeded(const Outcome& run) {
    INFO(run.output);
    CHECK(run.exit_code == 0);
    return run.output;
}

void replace_in(const fs::path& file, const std::string& text, const std::string& by) {
    std::string content = read_file(file);
    REQUIRE(count_of(text, content) == 1);
    write_file(file, content.replace(content.find(text), text.size(), by));
}

}  // namespace

TEST_CASE("a run from a quantized folder takes the steps of a run from the decoded folder") {
    for (const PackedModel& of : packed_models()) {
        const Folders folders(of);
        CAPTURE(of.model.family);
        for (const auto& [mesh, ranks] :
             {std::pair<Arguments, int>{{}, 0}, {{"--parallelism.tensor_parallel_degree=2"}, 2}, {{}, 2}}) {
            CAPTURE(mesh, ranks);
            const std::string name = std::to_string(ranks) + (mesh.empty() ? "" : " tp");
            const std::string text = succeeded(folders.train(
                folders.quantized(), folders.path(name + " quantized"), mesh + Arguments{option}, ranks));
            CHECK_THAT(text, Contains("Starting from the weights of " + folders.quantized().string()) &&
                                 !Contains("Coeus ignores"));
            succeeded(folders.train(folders.decoded(), folders.path(name + " decoded"), mesh, ranks));
            const std::vector<double> losses = read_metrics(folders.path(name + " quantized")).losses();
            CHECK(losses.size() == 3);
            CHECK(losses == read_metrics(folders.path(name + " decoded")).losses());
        }
    }
}

TEST_CASE("convert, generate and info read quantized folders") {
    for (const PackedModel& of : packed_models()) {
        const Folders folders(of);
        CAPTURE(of.model.family);
        write_file(folders.path("text.txt"), "The dog sat on the mat, and the cat sat on the log.\n");
        succeeded(run_coeus({"tokenizer", folders.path("text.txt").string(), "--vocab_size=270", "--output",
                             folders.path("tokenizer").string()}));
        for (const char* type : {"bfloat16", "float32"}) {
            const fs::path a = folders.path("a.h5"), b = folders.path("b.h5");
            const Arguments converted = {"--dtype", type, "--force"};
            succeeded(convert_folder(folders.quantized(), a, converted, 2));
            succeeded(convert_folder(folders.decoded(), b, converted));
            CHECK(differing_arrays(a, b).empty());
        }
        const std::string difference = succeeded(
            run_coeus({"info", folders.quantized().string(), "--diff", folders.decoded().string()}));
        CHECK_THAT(difference, Contains("arrays in both, none differ"));
        const std::string shown = succeeded(run_coeus({"info", folders.quantized().string(), "--verify"}));
        CHECK_THAT(shown, Contains("quantization   " + of.format.text() + "\n") &&
                              Contains("complete       yes") && Contains("all elements are finite") &&
                              !Contains("unknown keys"));
        const auto generated = [&](const fs::path& weights) {
            return succeeded(run_coeus({"generate", "--checkpoint", weights.string(), "--tokenizer",
                                        folders.path("tokenizer").string(), "--prompt=The dog", "--length=20",
                                        "--temperature=0", "--ignore_eos"}));
        };
        CHECK(generated(folders.quantized()) == generated(folders.decoded()));
    }
}

TEST_CASE("quantized folders that a run cannot start from") {
    const Folders folders(packed_models().front());
    const std::string folder = folders.quantized().string(), config = folder + "/config.json";
    folders.refuse(
        folders.quantized(), {},
        folder +
            " is quantized (MXFP4); set checkpoint.initial_load_in_hf_quantized = true to start from "
            "its decoded weights",
        2);
    folders.refuse(folders.decoded(), {option},
                   "checkpoint.initial_load_in_hf_quantized = true: " + folders.decoded().string() +
                       " is not quantized (its config.json has no quantization_config); set "
                       "checkpoint.initial_load_in_hf_quantized = false");
    const std::string whole = read_file(config);
    replace_in(config, "\"mxfp4\"", "\"gptq\"");
    for (const Arguments& more : {Arguments{}, Arguments{option}})
        folders.refuse(folders.quantized(), more,
                       config +
                           ": quantization_config.quant_method must be mxfp4 or fp8 (others are not "
                           "implemented), is \"gptq\"");
    const Outcome converted = convert_folder(folders.quantized(), folders.path("a.h5"));
    CHECK(converted.exit_code == 2);
    CHECK_THAT(converted.output, Contains("quantization_config.quant_method must be mxfp4 or fp8"));
    write_file(config, whole);
    replace_in(config, "\"quantization_config\"", "\"another_config\"");
    folders.refuse(
        folders.quantized(), {},
        folder +
            ": tensor 'model.layers.0.mlp.experts.gate_up_proj_blocks' is quantized, but config.json "
            "has no quantization_config with quant_method \"mxfp4\"");
}
