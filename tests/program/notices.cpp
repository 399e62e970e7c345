// SPDX-License-Identifier: Apache-2.0
// A run reports settings that cost quality, although it can train with them.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/hub_folder.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// Two tokenizers of the same text, "tok" and "other", and a token file made with "tok".
struct Corpus {
    TemporaryFolder folder;
    Corpus() {
        std::string text;
        for (int i = 0; i < 60; ++i) text += "The dog sat on the mat, the cat sat on the log.\n";
        write_file(folder / "text" / "a.txt", text);
        for (const auto& [name, tokens] : {std::pair("tok", 270), std::pair("other", 264)})
            REQUIRE(run_coeus({"tokenizer", path("text"), fmt::format("--vocab_size={}", tokens),
                               "--output=" + path(name)})
                        .exit_code == 0);
        REQUIRE(
            run_coeus({"tokenize", path("text"), "--tokenizer", path("tok"), "--output", path("tokens.h5")})
                .exit_code == 0);
    }
    std::string path(const std::string& name) const { return (folder / name).string(); }
    // one step
    Outcome run(const std::string& out, const Arguments& more) const {
        return run_coeus(tiny_run(
            folder / out, folder / "tokens.h5",
            Arguments{"--model.vocab_size=270", "--training.shuffle", "--checkpoint.enable", steps(1)} +
                more));
    }
};

}  // namespace

TEST_CASE("data of another tokenizer is a notice, and an error if a run begins from weights") {
    const Corpus corpus;
    const Outcome same = corpus.run("same", {"--model.hf_assets_path=" + corpus.path("tok")});
    CHECK(same.exit_code == 0);
    CHECK_THAT(same.output, !Contains(" - warning - "));
    const Outcome other = corpus.run("other_run", {"--model.hf_assets_path=" + corpus.path("other")});
    CHECK(other.exit_code == 0);
    CHECK(count_of(" - warning - another tokenizer than the one in model.hf_assets_path made " +
                       corpus.path("tokens.h5"),
                   other.output) == 1);
    const Arguments weights = {"--checkpoint.initial_load_path=" + corpus.path("same/" + checkpoint_of(1))};
    const Outcome loads =
        corpus.run("loads", weights + Arguments{"--model.hf_assets_path=" + corpus.path("tok")});
    CHECK(loads.exit_code == 0);
    const Outcome refused =
        corpus.run("refused", weights + Arguments{"--model.hf_assets_path=" + corpus.path("other")});
    INFO(refused.output);
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.output, Contains("training.dataset_path: another tokenizer than the one in ") &&
                                   Contains("made " + corpus.path("tokens.h5")) &&
                                   Contains("coeus tokenize INPUT --tokenizer " + corpus.path("other")));
    // the remedy of the message
    const Outcome advised =
        corpus.run("advised", weights + Arguments{"--model.hf_assets_path=" + corpus.path("other"),
                                                  "--model.tokenizer_path=" + corpus.path("tok")});
    CHECK(advised.exit_code == 0);
    // a run that began this way can resume
    CHECK(
        corpus
            .run("other_run", weights + Arguments{"--model.hf_assets_path=" + corpus.path("other"), steps(2)})
            .exit_code == 0);
}

TEST_CASE("a vocabulary much larger than the tokenizer's is a notice") {
    const Corpus corpus;
    const Arguments tokenizer = {"--model.hf_assets_path=" + corpus.path("tok")};
    const Outcome large = corpus.run("large", tokenizer + Arguments{"--model.vocab_size=5000"});
    CHECK(large.exit_code == 0);
    CHECK(count_of(" - warning - the model has a vocabulary of 5,000, but the tokenizer in " +
                       corpus.path("tok") + " has 270 tokens",
                   large.output) == 1);
    CHECK_THAT(corpus.run("rounded", tokenizer + Arguments{"--model.vocab_size=4000"}).output,
               !Contains(" - warning - "));
}

TEST_CASE("weights from which a run does not begin are a notice, in dry runs too") {
    const Corpus corpus;
    REQUIRE(corpus.run("out", {"--model.hf_assets_path=" + corpus.path("tok")}).exit_code == 0);
    REQUIRE(convert_folder(corpus.folder / "out", corpus.folder / "hub").exit_code == 0);
    const Arguments hub = {"--model.hf_assets_path=" + corpus.path("hub"),
                           "--model.tokenizer_path=" + corpus.path("tok")};
    const std::string notice = corpus.path("hub") + " (model.hf_assets_path) contains weights (";
    const Outcome random = corpus.run("random", hub);
    CHECK(random.exit_code == 0);
    CHECK(count_of(" - warning - " + notice, random.output) == 1);
    CHECK(count_of("Notice: " + notice, corpus.run("dry", hub + Arguments{"--dry_run"}).output) == 1);
    CHECK(count_of(notice, corpus.run("random", hub + Arguments{steps(2)}).output) == 0);  // it resumes
    // the remedy of the notice works
    const Outcome loads = corpus.run("loads", hub + Arguments{"--checkpoint.initial_load_in_hf"});
    INFO(loads.output);
    CHECK(loads.exit_code == 0);
    CHECK(count_of(notice, loads.output) == 0);
}

TEST_CASE("data that is not shuffled is a notice, in dry runs too") {
    const Corpus corpus;
    const Arguments in_order = {"--model.hf_assets_path=" + corpus.path("tok"), "--training.shuffle=false"};
    CHECK(count_of("Notice: training.shuffle = false: ", corpus.run("out", in_order).output) == 1);
    CHECK(count_of("Notice: training.shuffle = false: ",
                   corpus.run("dry", in_order + Arguments{"--dry_run"}).output) == 1);
}

TEST_CASE("a run from a folder with dropout and noise of routers says that it applies neither") {
    const TemporaryFolder folder;
    const std::filesystem::path from = folder / "from", config = from / "config.json";
    DecoderConfig model = small_model("mistral", "debugmodel", 32, 2, 8);
    model.feed_forward.hidden = 48;
    write_random_folder(from, model);
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    const auto output_of = [&](const std::string& name) {
        const Outcome run =
            run_coeus(run_from_folder(folder / name, folder / "tokens.h5", from, "mistral", {steps(1)}));
        INFO(run.output);
        CHECK(run.exit_code == 0);
        return run.output;
    };
    CHECK_THAT(output_of("without"), !Contains("Coeus trains without"));
    std::string text = read_file(config);
    text.insert(text.find('{') + 1, "\"attention_dropout\": 0.1, \"router_jitter_noise\": 0.01, ");
    write_file(config, text);
    CHECK(count_of(
              "Notice: " + config.string() +
                  ": attention_dropout = 0.1, router_jitter_noise = 0.01: Coeus trains without dropout and "
                  "without noise of routers, as if they were 0",
              output_of("with")) == 1);
    CHECK(read_metrics(folder / "with").losses() == read_metrics(folder / "without").losses());
}
