// SPDX-License-Identifier: Apache-2.0
// Folders of models that also take images, in the form in which Llama 4 is published and in that of
// transformers 5: runs, `coeus convert`, `coeus generate` and `coeus info` give what they give for a folder
// of the text model alone.
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/hub_folder.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

DecoderConfig tiny_llama4() {
    DecoderConfig model = small_model("llama4", "debugmodel_irope", 32, 2, 8);
    model.layers = 4;
    model.grouped().chunk = 8;
    model.grouped().qk_norm = QkNorm::after_rope;
    model.grouped().temperature = {.scale = 0.1, .floor = 4};
    model.feed_forward.hidden = 48;
    model.moe.experts = 3;
    model.moe.hidden = model.moe.shared_hidden = 24;
    return model;
}

struct Folders {
    TemporaryFolder folder;
    fs::path text = folder / "text", images = folder / "images", data = folder / "tokens.h5";

    Folders() {
        write_folder_with_images(text, images, tiny_llama4(), "Llama4ForConditionalGeneration");
        write_token_file(data, {.tokens = learnable_tokens(40 * 17)});
    }
};

std::string succeeded(const Outcome& run) {
    INFO(run.output);
    CHECK(run.exit_code == 0);
    return run.output;
}

}  // namespace

TEST_CASE("a run from a folder with images takes the steps of a run from its text model") {
    const Folders folders;
    const auto losses = [&](const fs::path& from, int ranks) {
        const fs::path run = folders.folder / fmt::format("{} {}", from.filename().string(), ranks);
        const std::string text =
            succeeded(run_coeus(run_from_folder(run, folders.data, from, "llama4"), ranks));
        CHECK(count_of("Notice: 3 tensors of " + from.string() +
                           " do not belong to the text model and are ignored",
                       text) == (from == folders.images ? 1 : 0));
        CHECK_THAT(text, !Contains("Coeus ignores"));
        return read_metrics(run).losses();
    };
    const std::vector<double> expected = losses(folders.text, 0);
    CHECK(expected.size() == 3);
    CHECK(losses(folders.images, 0) == expected);
    CHECK(losses(folders.images, 2) == losses(folders.text, 2));
}

TEST_CASE("convert, generate and info read the text model of a folder with images") {
    const Folders folders;
    const fs::path a = folders.folder / "a.h5", b = folders.folder / "b.h5", back = folders.folder / "back";
    succeeded(convert_folder(folders.text, a));
    succeeded(convert_folder(folders.images, b, {}, 2));
    CHECK(differing_arrays(a, b).empty());
    succeeded(convert_folder(b, back));
    CHECK_THAT(read_file(back / "config.json"),
               Contains("\"Llama4ForCausalLM\"") && !Contains("text_config"));
    CHECK_THAT(succeeded(run_coeus({"info", folders.images.string(), "--diff", back.string()})),
               Contains("arrays in both, none differ"));
    const std::string shown = succeeded(run_coeus({"info", folders.images.string(), "--verify"}));
    CHECK_THAT(shown, Contains("complete       yes") &&
                          Contains("ignored        3 tensors do not belong to the text model") &&
                          Contains("Llama4ForCausalLM (the text model of Llama4ForConditionalGeneration)") &&
                          !Contains("unknown keys"));
    write_file(folders.folder / "text.txt", "The dog sat on the mat, and the cat sat on the log.\n");
    succeeded(run_coeus({"tokenizer", (folders.folder / "text.txt").string(), "--vocab_size=270", "--output",
                         (folders.folder / "tokenizer").string()}));
    const auto generated = [&](const fs::path& weights) {
        const Arguments arguments = {"generate",
                                     "--checkpoint",
                                     weights.string(),
                                     "--tokenizer",
                                     (folders.folder / "tokenizer").string(),
                                     "--prompt=The dog",
                                     "--length=20",
                                     "--temperature=0",
                                     "--ignore_eos"};
        return succeeded(run_shell(coeus_line(arguments) + " 2> /dev/null"));  // without the notice
    };
    CHECK(generated(folders.images) == generated(folders.text));
}

TEST_CASE("the tensors of a text model have names of either form, with a head of their own and without one") {
    const TemporaryFolder folder;
    DecoderConfig model = small_model("mistral", "debugmodel", 32, 2, 8);
    model.feed_forward.hidden = 48;
    for (const TextNames names : {TextNames::inside, TextNames::outside}) {
        const bool tied = names == TextNames::outside;  // a head of its own is at another place inside
        CAPTURE(tied, int(names));
        model.tied = tied;
        const fs::path at = folder / fmt::format("{}", int(names)), text = at / "text",
                       images = at / "images", a = at / "a.h5", b = at / "b.h5";
        write_folder_with_images(text, images, model, "Mistral3ForConditionalGeneration", names);
        succeeded(convert_folder(text, a));
        CHECK_THAT(succeeded(convert_folder(images, b)),
                   Contains("3 tensors of " + images.string() + " do not belong to the text model"));
        CHECK(differing_arrays(a, b).empty());
        CHECK(tied ==
              (read_file(text / "config.json").find("\"tie_word_embeddings\": true") != std::string::npos));
    }
}

TEST_CASE("an incomplete text model of a folder with images is reported with the names in the folder") {
    const Folders folders;
    const fs::path config = folders.images / "config.json";
    std::string text = read_file(config);
    const std::string layers = "\"num_key_value_heads\": 2";
    REQUIRE(count_of(layers, text) == 1);
    write_file(config, text.replace(text.find(layers), layers.size(), "\"num_key_value_heads\": 4"));
    const Outcome run = convert_folder(folders.images, folders.folder / "a.h5");
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.output,
               Contains("is of another model: language_model.model.layers.0.self_attn.k_proj.weight is "
                        "[16, 32] in the file, [32, 32] in this model"));
}
