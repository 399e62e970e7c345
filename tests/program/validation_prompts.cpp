// SPDX-License-Identifier: Apache-2.0
// validation.prompts: the texts that a run writes are those of `coeus generate` with its checkpoint, on any
// mesh.
#include "coeus/file/json.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

#include <utility>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

using Texts = std::vector<std::pair<std::string, std::string>>;  // prompt, text

Texts texts_in(const fs::path& file, int64_t step = -1) {
    Texts texts;
    for (const std::string& line : lines_of(read_file(file))) {
        const JsonDocument document = JsonDocument::parse(line, file.string());
        const JsonView object = document.root();
        if (step < 0 || object.integer("step") == step)
            texts.emplace_back(object.string("prompt"), object.string("text"));
    }
    return texts;
}

// Text, a tokenizer and prompts for runs.
class PromptFiles {
public:
    PromptFiles() {
        std::string text;
        for (int i = 0; i < 80; ++i) text += "The dog sat on the mat, and the cat sat on the log.\n";
        write_file(path("text.txt"), text);
        write_file(path("prompts.txt"), "The dog sat\n\nthe cat\nOn the mat, and the cat sat on\n");
        REQUIRE(run_coeus({"tokenizer", path("text.txt"), "--vocab_size=270", "--output", path("tokenizer")})
                    .exit_code == 0);
    }
    std::string path(const std::string& name) const { return (folder_ / name).string(); }
    Arguments tiny() const {
        return {"--model.hf_assets_path=" + path("tokenizer"), "--model.vocab_size=289",
                "--training.seq_len=32", "--training.dtype=float64"};
    }
    Arguments asked(const std::string& file = "prompts.txt") const {
        return {"--validation.enable", "--validation.freq=2", "--validation.local_batch_size=2",
                "--validation.steps=1", "--validation.prompts=" + path(file)};
    }
    Texts texts_of(const std::string& run, int64_t step) const {
        return texts_in(fs::path(path(run)) / "samples.jsonl", step);
    }

private:
    TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("texts of validations: they are those of coeus generate, and in the log and the report") {
    const PromptFiles files;
    const Arguments asked =
        files.tiny() + files.asked() + Arguments{"--validation.sample_length=9", "--checkpoint.enable"};
    const Outcome run = train_tiny(files.path("run"), files.path("text.txt"), asked + Arguments{steps(4)});
    CHECK_THAT(run.output, Contains("9 tokens of 3 prompts cost as much as 18 of 1 validation batch") &&
                               Contains("validate step:  4  after \"The dog sat\": \""));
    const Outcome generated =
        run_coeus({"generate", "--checkpoint", files.path("run"), "--prompts", files.path("prompts.txt"),
                   "--temperature=0", "--length=9", "--dtype=float64", "--output", files.path("out.jsonl")});
    INFO(generated.output);
    REQUIRE(generated.exit_code == 0);
    const Texts texts = files.texts_of("run", 4);
    CHECK(texts.size() == 3);
    CHECK(texts == texts_in(files.path("out.jsonl")));
    CHECK(texts != files.texts_of("run", 1));
    CHECK(run_coeus({"report", files.path("run"), "--output", files.path("report.html")}).exit_code == 0);
    CHECK_THAT(read_file(files.path("report.html")), Contains("Texts of validations") &&
                                                         Contains("<summary>Step 4</summary>") &&
                                                         Contains("<th>The dog sat</th>"));

    // a resumed run adds lines; without an end, a text ends with the sequence
    train_tiny(files.path("run"), files.path("text.txt"),
               files.tiny() + files.asked() + Arguments{"--checkpoint.enable", steps(6)});
    CHECK(texts_in(fs::path(files.path("run")) / "samples.jsonl").size() == 12);
    CHECK(files.texts_of("run", 4) == texts);
    REQUIRE(run_coeus({"generate", "--checkpoint", files.path("run"), "--prompts", files.path("prompts.txt"),
                       "--temperature=0", "--length=64", "--dtype=float64", "--output",
                       files.path("longer.jsonl")})
                .exit_code == 0);
    const Texts longer = texts_in(files.path("longer.jsonl")), whole = files.texts_of("run", 6);
    REQUIRE(whole.size() == longer.size());
    for (size_t i = 0; i < whole.size(); ++i) {
        CHECK(longer[i].second.starts_with(whole[i].second));
        CHECK(whole[i].second.size() > 9);
    }
    CHECK(longer != whole);
}

TEST_CASE("texts of validations: any mesh writes the same, drawn at random too") {
    const PromptFiles files;
    const Arguments asked = files.tiny() + files.asked() +
                            Arguments{"--validation.sample_length=6", "--validation.sample_temperature=0.9",
                                      "--training.document_mask", "--training.global_batch_size=8", steps(2)};
    train_tiny(files.path("one"), files.path("text.txt"), asked);
    const Texts one = files.texts_of("one", 2);
    CHECK(one.size() == 3);
    const std::pair<const char*, const char*> axes[] = {{"tp", "--parallelism.tensor_parallel_degree=2"},
                                                        {"pp", "--parallelism.pipeline_parallel_degree=2"},
                                                        {"dp", "--parallelism.data_parallel_shard_degree=2"},
                                                        {"cp", "--parallelism.context_parallel_degree=2"}};
    for (const auto& [name, degree] : axes) {
        CAPTURE(name);
        train_tiny(files.path(name), files.path("text.txt"), asked + Arguments{degree}, 2);
        CHECK(files.texts_of(name, 2) == one);
    }
    train_tiny(files.path("seed"), files.path("text.txt"), asked + Arguments{"--debug.seed=3"});
    CHECK(files.texts_of("seed", 2) != one);
}

TEST_CASE(
    "texts of validations: prompts that cannot be continued are refused at the start and by a dry run") {
    const PromptFiles files;
    write_file(files.path("empty.txt"), "\n\n");
    std::string long_prompt;
    for (int i = 0; i < 40; ++i) long_prompt += "xyz ";
    write_file(files.path("long.txt"), "The dog\n" + long_prompt + "\n");
    const auto refuse = [&](const Arguments& more, const std::string& message,
                            const std::string& data = "text.txt") {
        for (const Arguments& dry : {Arguments{}, Arguments{"--dry_run"}}) {
            const Outcome run =
                run_coeus(tiny_run(files.path("run"), files.path(data), files.tiny() + more + dry));
            INFO(run.output);
            CHECK(run.exit_code == 2);
            CHECK_THAT(run.output, Contains(message));
        }
    };
    refuse(files.asked("absent.txt"), "absent.txt");
    refuse(files.asked("empty.txt"), "contains no prompts");
    refuse(files.asked("long.txt"),
           "and a sequence must have room for one more; shorten the prompt, or set ");
    refuse({"--validation.prompts=" + files.path("prompts.txt")},
           "validation.prompts: only validations read it, and validation.enable = false");
    refuse(files.asked() + Arguments{"--validation.sample_length=0"}, "validation.sample_length");
    refuse(files.asked() + Arguments{"--validation.sample_temperature=-1"}, "validation.sample_temperature");
    // a token file needs no tokenizer itself
    write_token_file(files.path("tokens.h5"), {.tokens = learnable_tokens(4000, 64)});
    refuse(files.asked() + Arguments{"--model.vocab_size=200"},
           "so it cannot encode validation.prompts; set model.vocab_size = ", "tokens.h5");
    const auto without_tokenizer = [&](const Arguments& more) {
        return run_coeus(tiny_run(files.path("run"), files.path("tokens.h5"),
                                  files.tiny() + files.asked() +
                                      Arguments{"--model.tokenizer_path=" + files.path("nowhere")} + more));
    };
    CHECK(without_tokenizer({}).exit_code == 2);
    const Outcome dry = without_tokenizer({"--dry_run"});  // the run may be on another machine
    INFO(dry.output);
    CHECK(dry.exit_code == 0);
    CHECK_THAT(dry.output,
               Contains("nowhere\" (model.hf_assets_path): this file or folder does not exist here; "
                        "a run needs it to encode validation.prompts"));
}
