// SPDX-License-Identifier: Apache-2.0
// Generation on a GPU writes the same texts as on the CPU.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

// Trains a run on the CPU that learns a few sentences.
void train_on_text(const TemporaryFolder& folder) {
    std::string text;
    for (int i = 0; i < 40; ++i)
        text += "The dog sat on the mat, and the cat sat on the log.\nA bird sang all day in the old tree.\n";
    write_file(folder / "text.txt", text);
    const std::string tokens = (folder / "tokenizer").string();
    REQUIRE(run_coeus({"tokenizer", (folder / "text.txt").string(), "--vocab_size=270", "--output", tokens})
                .exit_code == 0);
    train_tiny(folder / "run", folder / "text.txt",
               {"--model.hf_assets_path=" + tokens, "--model.vocab_size=288", steps(60),
                "--training.seq_len=32", "--metrics.log_freq=60", "--checkpoint.enable", "--device=cpu"});
}

}  // namespace

TEST_CASE("GPU: generate writes the same text as on the CPU") {
    const TemporaryFolder folder;
    train_on_text(folder);
    write_file(folder / "prompts.txt", "The dog\nA bird sang\nThe\nthe old\nA\n");
    const auto write = [&](const std::string& device, const Arguments& more) {
        const Outcome outcome = run_coeus(Arguments{"generate", "--checkpoint", (folder / "run").string(),
                                                    "--device=" + device, "--length=40"} +
                                          more);
        INFO(outcome.output);
        CHECK(outcome.exit_code == 0);
        return outcome.output;
    };
    const Arguments prompts = {"--prompts", (folder / "prompts.txt").string()};
    for (const Arguments& more : {Arguments{"--prompt", "The dog sat", "--temperature=0"},
                                  // several texts at once, some longer than the context
                                  prompts + Arguments{"--temperature=0", "--batch=3", "--context=20"},
                                  prompts + Arguments{"--temperature=0.7", "--top_k=20", "--seed=3"}}) {
        INFO(more.back());
        const std::string text = write("cuda", more);
        CHECK(text.size() > 40);
        CHECK(text == write("cpu", more));
    }
    CHECK_THAT(write("cuda", {"--stats"}), Contains("tokens/s, on ") && Contains("key/value cache"));
    const Outcome wrong = run_coeus({"generate", "--checkpoint", (folder / "run").string(), "--device=cud"});
    CHECK(wrong.exit_code == 2);
    CHECK_THAT(
        wrong.output,
        Contains(
            "coeus generate: --device must be one of auto, cuda, cpu, but is \"cud\"; did you mean cuda?"));
}
