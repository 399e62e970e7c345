// SPDX-License-Identifier: Apache-2.0
// `coeus info` for every kind of file that it recognises, by content and under any name, and for unknown and
// damaged files. (For checkpoints and token files see checkpoint.cpp.)
#include "coeus/device/memory.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/kernels/algorithm_cache.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/pretrained/pretrained.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/part.hpp"
#include "support/paths.hpp"
#include "support/write_safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <regex>
#include <set>
#include <sstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

std::string shown(const Arguments& arguments) {
    const Outcome outcome = run_coeus(Arguments{"info"} + arguments);
    INFO(outcome.output);
    CHECK(outcome.exit_code == 0);
    return outcome.output;
}

std::string refused_info(const Arguments& arguments) {
    const Outcome outcome = run_coeus(Arguments{"info"} + arguments);
    INFO(outcome.output);
    CHECK(outcome.exit_code == 2);
    CHECK(count_of(" - error - ", outcome.output) == 1);
    return outcome.output;
}

// A Hugging Face folder of a tiny Llama. Tensors can be left out, or get another shape.
struct HubFolder {
    TemporaryFolder folder;
    std::vector<HubTensor> tensors;

    HubFolder() {
        write_file(folder / "config.json",
                   R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": 3,
                      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 20, "vocab_size": 30})");
        DecoderConfig model = {.family = "llama3",
                               .flavor = "hf",
                               .dim = 16,
                               .layers = 3,
                               .vocab = 30,
                               .attention = GroupedAttentionConfig{.heads = 4, .kv_heads = 2, .head_dim = 4},
                               .feed_forward = {.hidden = 20}};
        tensors = hub_tensors(model);
    }
    /// `bad`: one element of the last tensor is not finite.
    void write(Dtype dtype = Dtype::f32, bool bad = false) {
        std::vector<OwnedTensor> memory;
        std::vector<test::NamedTensor> named;
        for (const HubTensor& tensor : tensors) memory.emplace_back(dtype, tensor.shape);
        for (size_t i = 0; i < tensors.size(); ++i)
            named.push_back({tensors[i].places.front().name, memory[i].view});
        if (bad) set_element(memory.back(), 1, std::nan(""));
        test::write_safetensors(folder / "model.safetensors", named);
    }
    std::string path() const { return folder.path().string(); }
};

}  // namespace

TEST_CASE("info: a tokenizer, as a folder and as a file of any name") {
    const TemporaryFolder folder;
    write_file(folder / "text.txt", "the cat and the dog and the cat\n");
    REQUIRE(run_coeus({"tokenizer", folder / "text.txt", "--vocab_size=265", "--output", folder / "tok"})
                .exit_code == 0);
    const std::string text = shown({(folder / "tok").string(), "--verify"});
    CHECK_THAT(text,
               Contains("tok: tokenizer, byte-level BPE (tokenizer.json)") &&
                   Contains("vocabulary     265\n") && Contains("BOS            263 <|begin_of_text|>\n") &&
                   Contains("EOS            264 <|end_of_text|>\n") &&
                   Contains("own template   263 <|begin_of_text|> | text | none\n") &&
                   Contains("special tokens 263 <|begin_of_text|>, 264 <|end_of_text|>\n") &&
                   Contains("Hello, world!") && Contains("|w|o|r|l|d|!|") && Contains("\\xe6|\\x9d|\\xb1") &&
                   Contains("265 ids have a token; the sample decodes to itself"));
    fs::copy_file(folder / "tok/tokenizer.json", folder / "renamed");
    CHECK_THAT(shown({(folder / "renamed").string()}),
               Contains("renamed: tokenizer") && Contains("vocabulary     265"));

    // GPT-2's two files: the path may be either of them
    fs::create_directory(folder / "gpt2");
    write_file(folder / "gpt2/vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
    write_file(folder / "gpt2/merges.txt", "#version: 0.2\na b\n");
    for (const char* name : {"gpt2", "gpt2/vocab.json", "gpt2/merges.txt"})
        CHECK_THAT(shown({folder / name}), Contains("byte-level BPE (vocab.json and merges.txt)\n"));

    std::string damaged = read_file(folder / "tok/tokenizer.json");
    write_file(folder / "damaged.json", damaged.substr(0, damaged.size() / 2));
    CHECK_THAT(refused_info({folder / "damaged.json"}),
               Contains("damaged.json") && Contains("not valid JSON"));
    write_file(folder / "other.json",
               R"({"model": {"type": "WordPiece", "vocab": {"a": 0}}, "added_tokens": []})");
    CHECK_THAT(refused_info({folder / "other.json"}), Contains("other.json") && Contains("WordPiece"));
}

TEST_CASE("info: SentencePiece and tiktoken files are recognised by their content") {
    const fs::path cases = golden("tokenizer");
    if (cases.empty()) return;
    const TemporaryFolder folder;
    fs::copy_file(cases / "sentencepiece_llama2/tokenizer.model", folder / "a");
    CHECK_THAT(shown({folder / "a"}), Contains("a: tokenizer, SentencePiece\n") &&
                                          Contains("vocabulary     2,000") && Contains("BOS            1\n"));
    CHECK_THAT(shown({(cases / "gpt2").string()}), Contains("1000 <|endoftext|>"));
    fs::copy_file(cases / "tiktoken_llama3/tokenizer.model", folder / "b");
    CHECK_THAT(refused_info({folder / "b"}),
               Contains("b: a tiktoken file"));  // shortened, so that its number of ranks matches no model
}

TEST_CASE("info: the frozen parameters of a deck are marked") {
    const TemporaryFolder folder;
    write_file(folder / "deck",
               "[model]\nflavor = \"debugmodel\"\nvocab_size = 300\n"
               "frozen = [\"tok_embeddings\", 'layers\\.[01]\\.attention\\.', \"ffn_norm\"]\n"
               "[training]\nseq_len = 100\n");
    const std::string table = shown({folder / "deck", "--model"});
    const auto ending = [&](const std::string& name) {
        const size_t at = table.find("\n  " + name);
        REQUIRE(at != std::string::npos);
        const std::string line = table.substr(at + 1, table.find('\n', at + 1) - at - 1);
        const size_t mark = line.find("frozen");
        return mark == std::string::npos ? "" : line.substr(mark);
    };
    CHECK(ending("tok_embeddings") == "frozen");
    CHECK(ending("layers.*.attention.wq") == "frozen in 0-1");
    CHECK(ending("layers.*.ffn_norm") == "frozen");
    CHECK(ending("layers.*.feed_forward.w1").empty());
    CHECK(ending("output").empty());
}

TEST_CASE("info: the parameters of a deck add up to the numbers of its model") {
    const TemporaryFolder folder;
    struct Case {
        const char *family, *flavor;
        int mtp_layers;
    };
    for (const auto& [family, flavor, mtp_layers] : {Case{"llama3", "debugmodel", 0},
                                                     {"qwen3", "debugmodel_moe", 0},
                                                     {"qwen3", "debugmodel", 2},
                                                     {"deepseek_v3", "debugmodel", 1}}) {
        write_file(folder / "deck",
                   fmt::format("[model]\nname = \"{}\"\nflavor = \"{}\"\nnum_mtp_layers = {}\n"
                               "[training]\nseq_len = 100\n",
                               family, flavor, mtp_layers));
        const std::string text = shown({folder / "deck", "--model"});
        INFO(text);
        std::smatch of_model, total;
        REQUIRE(std::regex_search(text, of_model,
                                  std::regex(R"(Model: .*, ([0-9,]+) parameters.* (\S+) FLOPs per token)")));
        REQUIRE(std::regex_search(text, total, std::regex(R"(\n  total +(\S+) +(\S+)\n)")));
        CHECK(total[1] == of_model[1]);
        CHECK(total[2] == of_model[2]);
    }
}

TEST_CASE("info: a deck") {
    const TemporaryFolder folder;
    write_file(folder / "deck",
               "# ours\n\n[job]\ndescription = \"a tiny one\"\n[model]\nflavor = \"debugmodel\"\n"
               "vocab_size = 300\n[training]\nseq_len = 100\nlocal_batch_size = 2\n"
               "[parallelism]\ntensor_parallel_degree = 4\n");
    const std::string deck = folder / "deck", text = shown({deck});
    CHECK_THAT(text, Contains("deck: deck, a tiny one\n") && Contains("Mesh: 4 ranks: tp 4") &&
                         Contains("FLOPs per token") &&
                         Contains("Batch: 2 sequences of 100 tokens per step") &&
                         Contains("    optimizer moments") && Contains("(a run needs it)"));
    CHECK_THAT(text, !Contains("tok_embeddings"));
    CHECK_THAT(shown({deck, "--ranks=8"}), Contains("Mesh: 8 ranks") && Contains("Batch: 4 sequences"));
    CHECK_THAT(refused_info({deck, "--ranks=6"}),
               Contains("parallelism.tensor_parallel_degree = 4: 6 ranks are not a multiple of 4"));

    const std::string table = shown({deck, "--model"});
    const DecoderConfig model = [] {
        DecoderConfig debug = find_flavor(find_family("llama3"), "debugmodel");
        debug.vocab = 300;
        return debug;
    }();
    const auto row = [&](const std::string& name) {
        const size_t at = table.find("\n  " + name);
        REQUIRE(at != std::string::npos);
        std::string line = table.substr(at + 1, table.find('\n', at + 1) - at - 1);
        while (line.find("  ") != std::string::npos) line.replace(line.find("  "), 2, " ");
        return line;
    };
    CHECK(row("tok_embeddings") == " tok_embeddings.weight [300, 256] 76,800 0");
    CHECK(row("layers.*.attention.wq") == " layers.*.attention.wq.weight [256, 256] x 6 393,216 2.359e+06");
    CHECK(row("output") == " output.weight [300, 256] 76,800 4.608e+05");
    CHECK(row("total") == fmt::format(" total 5,268,736 {:.4g}", model.flops_per_token(100)));
    CHECK(model.parameters() == 5268736);

    // a deck that a run would refuse
    const std::string tiny = "[model]\nflavor = \"debugmodel\"\nn_heads = 4\nn_kv_heads = 2\n";
    write_file(folder / "heads.toml", tiny +
                                          "[training]\nseq_len = 64\n[parallelism]\n"
                                          "context_parallel_degree = 4\n"
                                          "context_parallel_rotate_method = \"heads\"\n");
    CHECK_THAT(refused_info({folder / "heads.toml"}),
               Contains("parallelism.context_parallel_degree = 4: must divide the heads that are exchanged "
                        "(context_parallel_rotate_method = \"heads\", and generation)") &&
                   Contains("= 2; valid are 1, 2"));
    write_file(folder / "wide.toml",
               "[model]\nname = \"llama3\"\nflavor = \"8B\"\n"
               "[parallelism]\ntensor_parallel_degree = 16\n");
    CHECK_THAT(
        refused_info({folder / "wide.toml"}),
        Contains("parallelism.tensor_parallel_degree = 16: must divide model.n_kv_heads = 8; valid are "
                 "1, 2, 4, 8"));

    write_file(folder / "wrong.toml", "[training]\nstpes = 7\n");
    CHECK_THAT(refused_info({folder / "wrong.toml"}),
               Contains("wrong.toml:2:1") && Contains("training.steps"));
    write_file(folder / "broken.toml", "[training\nsteps = 7\n");
    CHECK_THAT(refused_info({folder / "broken.toml"}), Contains("broken.toml"));
    write_file(folder / "later.toml", "[model]\nname = \"flux\"\nflavor = \"flux-dev\"\n");
    CHECK_THAT(refused_info({folder / "later.toml"}), Contains("flux") && Contains("not implemented yet"));
}

TEST_CASE("info: safetensors") {
    const TemporaryFolder folder;
    OwnedTensor a(Dtype::f32, {2, 3}), b(Dtype::bf16, {5}), c(Dtype::i32, {4});
    test::write_safetensors(folder / "weights", {{"a", a.view}, {"b", b.view}, {"c", c.view}});
    CHECK_THAT(shown({folder / "weights", "--verify"}),
               Contains("weights: safetensors\n") && Contains("3 in 1 file, 50 B") &&
                   Contains("15: 5 of bfloat16, 6 of float32, 4 of int32") && Contains("[2, 3]") &&
                   Contains("50 B read, all elements are finite"));
    set_element(b, 4, HUGE_VAL);
    test::write_safetensors(folder / "infinite", {{"a", a.view}, {"b", b.view}});
    CHECK(shown({folder / "infinite"}).find("not finite") == std::string::npos);
    CHECK_THAT(refused_info({folder / "infinite", "--verify"}),
               Contains("infinite: 1 elements are not finite, the first of them in tensor 'b'"));

    const std::string whole = read_file(folder / "weights");
    write_file(folder / "short", whole.substr(0, whole.size() - 7));
    CHECK_THAT(refused_info({folder / "short"}),
               Contains("short is truncated: tensor 'c' needs 7 bytes more"));
    write_file(folder / "shorter", whole.substr(0, 40));
    CHECK_THAT(refused_info({folder / "shorter"}), Contains("shorter is truncated: its header needs"));
    std::string header = whole;
    header[20] = '\x01';
    write_file(folder / "header", header);
    CHECK_THAT(refused_info({folder / "header"}), Contains("header: not valid JSON"));
    write_file(folder / "index", R"({"weight_map": {"a": "weights", "z": "weights"}})");
    fs::rename(folder / "index", folder / "model.safetensors.index.json");
    CHECK_THAT(shown({folder / "model.safetensors.index.json"}),
               Contains("missing        1 that the index names and no file has, such as z\n"));
}

TEST_CASE("info: a Hugging Face folder, complete or not") {
    HubFolder hub;
    CHECK_THAT(shown({hub.path()}), Contains("Hugging Face folder\n  architecture   LlamaForCausalLM\n") &&
                                        Contains("weights        none, only shapes"));
    hub.write(Dtype::bf16);
    const std::string text = shown({hub.path(), "--verify"});
    CHECK_THAT(text, Contains("parameters     6,256\n") && Contains("tensors        30 in 1 file") &&
                         Contains("6,256 of bfloat16") && Contains("model.layers.2.mlp.up_proj.weight") &&
                         Contains("complete       yes: all 30 tensors that config.json requires exist") &&
                         Contains("all elements are finite"));
    CHECK_THAT(shown({hub.folder / "config.json"}),
               Contains("Hugging Face folder") && Contains("complete       yes"));

    hub.write(Dtype::f32, true);
    CHECK_THAT(refused_info({hub.path(), "--verify"}), Contains("1 elements are not finite"));
    HubFolder less;
    less.tensors.erase(less.tensors.begin() + 4, less.tensors.begin() + 8);
    less.write();
    CHECK_THAT(
        refused_info({less.path()}),
        Contains("is not complete: config.json requires 30 tensors, but 4 are missing: model.layers.0.") &&
            Contains(", ..."));
    HubFolder other;
    other.tensors[0].shape = {31, 16};
    other.write();
    CHECK_THAT(
        refused_info({other.path()}),
        Contains("do not fit the model of config.json: model.embed_tokens.weight is [31, 16], not [30, 16]"));
    HubFolder foreign;
    foreign.write();
    write_file(foreign.folder / "config.json", R"({"architectures": ["MambaForCausalLM"]})");
    CHECK_THAT(shown({foreign.path()}),
               Contains("MambaForCausalLM (not implemented yet: Coeus cannot train or run it)") &&
                   Contains("tensors        30") && !Contains("complete"));
    HubFolder capped;
    capped.write();
    std::string config = read_file(capped.folder / "config.json");
    config.insert(config.find('{') + 1, "\"logit_softcap\": 30, \"attention_dropout\": 0.25, ");
    write_file(capped.folder / "config.json", config);
    CHECK_THAT(run_coeus({"info", capped.path()}).output,
               Contains("Coeus ignores logit_softcap\n") && Contains(": attention_dropout = 0.25: Coeus"));
    write_file(foreign.folder / "config.json", R"({"architectures": )");
    CHECK_THAT(refused_info({foreign.path()}), Contains("config.json: not valid JSON"));
}

TEST_CASE("info: a run's folder") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5",
                     {.tokens = learnable_tokens(80 * 17), .documents = {0, 600, 80 * 17}});
    const fs::path run = folder / "run";
    train_tiny(run, folder / "tokens.h5",
               {"--checkpoint.enable", "--checkpoint.interval=2", steps(4), "--validation.enable",
                "--validation.freq=2"});
    const std::string text = shown({run});
    CHECK_THAT(text, Contains("run: folder of a run\n") && Contains("model          llama3 debugmodel\n") &&
                         Contains("step           4 of 4\n") && Contains("last loss      ") &&
                         Contains("256 tokens seen") && Contains("validation     ") &&
                         Contains(" at step 4\n") &&
                         Contains("step-00000002.h5: step 2, weights and optimizer, ") &&
                         Contains("step-00000004.h5: step 4") &&
                         Contains("model-00000004.h5: step 4, weights only"));
    CHECK(count_of("match their checksums", shown({run, "--verify"})) == 3);
    // several runs at once, and a last line that a killed run left incomplete
    write_file(run / "metrics.jsonl", read_file(run / "metrics.jsonl") + "{\"step\": 5, \"lo");
    const std::string both = shown({run, folder / "tokens.h5"});
    CHECK_THAT(both,
               Contains("step           4 of 4\n") && Contains("\n\n") && Contains("tokens.h5: token file"));
    write_file(run / "metrics.jsonl", "{\"step\": 5, \"lo\n");
    CHECK_THAT(refused_info({run}), Contains("metrics.jsonl, line 1"));
    fs::remove(run / "metrics.jsonl");
    CHECK_THAT(shown({run}), Contains("step           0 of 4\n") && !Contains("last loss"));
    write_file(run / "checkpoint/step-00000004.h5", "");
    CHECK_THAT(refused_info({run}), Contains("step-00000004.h5"));
}

TEST_CASE("info names what it does not recognise") {
    const TemporaryFolder folder;
    const auto of = [&](const std::string& name, const std::string& content) {
        write_file(folder / name, content);
        const std::string text = refused_info({folder / name});
        CHECK_THAT(text, Contains("coeus info shows checkpoints, token files, encoded images, tokenizers,") &&
                             Contains(" Hugging Face folders and run folders"));
        return text;
    };
    write_file(folder / "empty", "");
    CHECK_THAT(refused_info({folder / "empty"}), Contains("empty is empty"));
    CHECK_THAT(of("a.toml", "Once upon a time = there was\n"),
               Contains("a.toml is a text file that begins with \"Once upon"));
    CHECK_THAT(of("b.json", R"({"lr": 1, "steps": 2})"), Contains("b.json is JSON with the keys lr, steps;"));
    CHECK_THAT(of("c.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n"),
               Contains("c.jsonl is a JSON Lines file whose first object has the keys text;"));
    CHECK_THAT(of("d.gz", std::string("\x1f\x8b\x08\x00\x01", 5)),
               Contains("d.gz is compressed (gzip): decompress it first"));
    CHECK_THAT(of("e.png", "\x89PNG\r\n\x1a\n"),
               Contains("it begins with the bytes 89 50 4e 47 0d 0a 1a 0a"));
    fs::create_directory(folder / "folder");
    CHECK_THAT(refused_info({folder / "folder"}), Contains("folder is a folder that contains nothing;"));
    CHECK_THAT(refused_info({folder / "none"}), Contains("none: this file or folder does not exist"));
    // options that are only for decks
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(20)});
    CHECK_THAT(refused_info({folder / "tokens.h5", "--model"}),
               Contains("coeus info --model: is for decks, but " + (folder / "tokens.h5").string() +
                        " is not a deck\n"));
    CHECK_THAT(refused_info({folder / "tokens.h5", "--ranks=2"}),
               Contains("coeus info --ranks: is for decks, but "));
    write_file(folder / "run/deck.toml", "[training]\nsteps = 2\n");
    CHECK_THAT(refused_info({folder / "run", "--model"}),
               Contains("run is not a deck; the deck of this run is " + (folder / "run/deck.toml").string()));
    CHECK_THAT(refused_info({folder / "d.gz", "--ranks=x"}), Contains("--ranks must be a whole number"));
}

TEST_CASE("the program names the compiler and libraries of its build") {
    const std::string build = shown({"--build"});
    for (const char* name :
         {"compiler", "architecture", "flags", "MPI", "HDF5", "oneDNN", "OpenBLAS", "CUDA"})
        CHECK_THAT(build, Catch::Matches("(.|\n)*\n  " + std::string(name) + " +[^ ](.|\n)*"));
    CHECK_THAT(build, Catch::Matches("(.|\n)*\n  MPI +(Open MPI|MPICH) [0-9](.|\n)*"));
    CHECK_THAT(build, Contains("-march=") && Contains("libhdf5"));
    CHECK_THAT(refused_info({"--build", "here"}), Contains("here"));
}

TEST_CASE("info shows which algorithms of products are kept, and how fast they were") {
    const TemporaryFolder folder;
    const auto keep = [&](const fs::path& place, const std::string& problem,
                          const std::optional<cuda::Timing>& timing) {
        const cuda::KeptAlgorithm kept = {problem, {1, 2, 3}, timing};
        const fs::path file = folder / "products" / place / problem;
        write_file(file, kept.text());
        if (timing) write_file(file.string() + cuda::timing_suffix, kept.timing_text());
    };
    const std::string large = "bfloat16-float32-4096x512x2048-nt-add-ld2048,2048,512,512",
                      small = "float8_e4m3,float8_e5m2-bfloat16-16x16x32-nn-put-whole",
                      earlier = "float32-float32-6x4x8-nn-put";
    keep("H100-cublasLt-130000", large,
         cuda::Timing{2.5e-5, 1795724208, "node17", 12040, cuda::Timing::Steady{655, 1590}});
    keep("H100-cublasLt-130000", small, cuda::Timing{1.5e-6, 1795724208, "a", 13000});
    keep("A100-cublasLt-120400", earlier, {});
    const std::string root = (folder / "products").string(),
                      of_a100 =
                          root +
                          "/A100-cublasLt-120400: 1 product\n"
                          "   TFLOP/s         ms    W   MHz  date        host  driver  algorithm  product\n"
                          "         -          -    -     -  -           -          -  ",
                      of_h100 =
                          root +
                          "/H100-cublasLt-130000: 2 products\n"
                          "   TFLOP/s         ms    W   MHz  date        host    driver  algorithm  product\n"
                          "     343.6     0.0250  655  1590  2026-11-26  node17    12.4  ";
    const std::string text = shown({"--products", root});
    CHECK_THAT(text, Catch::StartsWith(of_a100) && Contains("  " + earlier + "\n\n" + of_h100));
    CHECK_THAT(text, Contains("       0.0     0.0015    -     -  2026-11-26  a         13.0  ") &&
                         Contains("  " + large + "\n"));
    CHECK(shown({"--products", root + "/H100-cublasLt-130000"}) == text.substr(text.find(root + "/H100")));
    // the timing of an algorithm that is not kept any more is not shown
    write_file(
        folder / "products/A100-cublasLt-120400" / (earlier + cuda::timing_suffix),
        cuda::KeptAlgorithm{earlier, {4, 5, 6}, cuda::Timing{1, 1795724208, "b", 13000}}.timing_text());
    write_file(folder / "products/before" / (earlier + cuda::timing_suffix), "");
    CHECK(shown({"--products", root}) == text);
    const std::string backward = "attention of 1 x 64 tokens, in a fixed order";
    write_file(folder / "backwards" / cuda::file_name_of(backward),
               cuda::KeptAlgorithm{backward, {1}, std::nullopt}.text());
    CHECK_THAT(shown({"--products", folder / "backwards"}), Contains("  own        " + backward + "\n"));
    // files of others are named and skipped
    write_file(folder / "products/H100-cublasLt-130000/notes", "text\n");
    fs::copy_file(folder / "products/A100-cublasLt-120400" / earlier, folder / "products/renamed");
    const std::string with_others = shown({root, "--products"});
    CHECK_THAT(with_others, Contains("  skipped notes: it is not an algorithm that Coeus has kept\n") &&
                                Contains("  skipped renamed: it is not an algorithm that Coeus has kept\n") &&
                                Contains(of_h100));
    fs::create_directory(folder / "none");
    CHECK_THAT(refused_info({"--products", folder / "none"}),
               Contains((folder / "none").string() +
                        " has no algorithms of products; a run on a GPU with kernels.autotune = true keeps "
                        "them in ~/.cache/coeus/products"));
    CHECK_THAT(
        refused_info({"--products", folder / "absent"}),
        Contains("coeus info --products: " + (folder / "absent").string() + ": this folder does not exist"));
    CHECK_THAT(refused_info({"--products", folder / "products/renamed"}),
               Contains("products/renamed is a file; give its folder"));
    CHECK_THAT(refused_info({"--products", root, "--verify"}),
               Contains("coeus info --products: takes only one FOLDER, but got " + root + " --verify"));
}

TEST_CASE("info plans a deck for devices that this machine does not have") {
    const std::string deck = paths::source() + "/inputs/base/llama3_8b.toml";
    const Outcome fits = run_coeus({"info", deck, "--ranks=8", "--gpu=h100"});
    CHECK(fits.exit_code == 0);
    CHECK_THAT(fits.output,
               Contains("Planned for an NVIDIA H100 with 79.6 GiB") && Contains(" of 79.6 GiB\n"));
    const Outcome beyond = run_coeus({"info", deck, "--ranks=8", "--memory=20GiB"});
    CHECK(beyond.exit_code == 2);
    CHECK_THAT(beyond.output, Contains("  Refused: a rank does not fit into the memory of "));
    // this deck asks for layers in 8 bits
    const std::string large = paths::source() + "/inputs/base/llama3_405b.toml";
    const Outcome converted = run_coeus({"info", large, "--ranks=512", "--gpu=h100"});
    CHECK_THAT(converted.output, Contains("\n  Linear layers:\n") && Contains("  In 8 bits: ") &&
                                     Contains("    layers.0-125.attention.wq     [16384, 16384]"));
    const Outcome lacking = run_coeus({"info", large, "--ranks=512", "--gpu=a100"});
    CHECK(lacking.exit_code == 2);
    CHECK_THAT(lacking.output, Contains("NVIDIA A100 (sm_80) has no 8-bit products"));
    const Outcome unknown = run_coeus({"info", deck, "--gpu=h1000"});
    CHECK(unknown.exit_code == 2);
    CHECK_THAT(unknown.output, Contains("did you mean h100?"));
}

namespace {

// What a program tells: the first line of a finding, and those that are indented below it.
using Told = std::vector<std::string>;

// `indentation`: of every line. `mark` takes the mark of a finding from its first line, and returns what is
// put before the rest.
Told told(const std::string& output, size_t indentation,
          const std::function<std::string(std::string&)>& mark) {
    Told all;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
        line.erase(0, std::min(indentation, line.size()));
        if (line.starts_with("  ") && !all.empty())
            all.back() += "\n";
        else
            all.push_back(mark(line));
        all.back() += line;
    }
    return all;
}

// "warning: " before what is one; the same for a log and for `coeus info`.
Told told_by_dry_run(const std::string& log) {
    Told all = told(log, 0, [](std::string& line) {
        for (const std::string level : {" - info - ", " - warning - "})
            if (const size_t at = line.find(level); line.starts_with("[coeus] ") && at != std::string::npos) {
                line.erase(0, at + level.size());
                return std::string(level == " - info - " ? "" : "warning: ");
            }
        return std::string("no line of a log: ");
    });
    // what only a dry run tells: length, files, roofline and verdict
    std::erase_if(all, [](const std::string& text) {
        return std::regex_search(
            text, std::regex("^(Run: |Planned for [0-9]+ ranks, the fewest|A checkpoint takes |Roofline |"
                             "No roofline|(warning: )?Dry run: )|: this file or folder does not exist here"));
    });
    // `coeus info` tells at the end what is told of the deck
    std::ranges::rotate(all, std::ranges::find_if(all, [](const std::string& text) {
                            return text.starts_with("Planned for ");
                        }));
    return all;
}

Told told_by_info(const std::string& output) {
    Told all = told(output.substr(output.find('\n') + 1), 2, [](std::string& line) {
        for (const std::string mark : {"Warning: ", "Refused: ", "Refused on this host: "})
            if (line.starts_with(mark)) {
                line.erase(0, mark.size());
                return std::string("warning: ");
            }
        return std::string();
    });
    std::erase_if(all, [](const std::string& text) { return text.starts_with("Groups:"); });
    return all;
}

void require_same_plan(const Arguments& arguments) {
    const Outcome planned = run_coeus(Arguments{"train"} + arguments + Arguments{"--dry_run"}),
                  info = run_coeus(Arguments{"info"} + arguments);
    INFO(planned.output << "\n---\n" << info.output);
    CHECK(planned.exit_code == info.exit_code);
    const Told by_dry_run = told_by_dry_run(planned.output), by_info = told_by_info(info.output);
    CHECK(by_info.size() > 4);
    CHECK(by_dry_run == by_info);
}

void require_same_plans_of(const fs::path& folder) {
    std::set<std::string> decks;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
        if (entry.path().extension() == ".toml") decks.insert(entry.path().string());
    REQUIRE(decks.size() > 9);
    Part part("info and dry run of " + folder.filename().string(), 1, {.check_all = 1, .short_list = 3});
    for (const std::string& deck : decks)
        if (part.takes_next()) require_same_plan({deck, "--gpu=b200"});
}

}  // namespace

TEST_CASE("info prints the plan of a dry run, line by line") {
    const std::string inputs = paths::source() + "/inputs/";
    const TemporaryFolder folder;
    const std::string without_list = (folder / "deck.toml").string();
    write_file(without_list, "include = \"" + inputs + "llama3_debug_float8.toml\"\n[model]\n" +
                                 "print_after_conversion = false\n");
    require_same_plan({inputs + "llama3_debug.toml"});
    require_same_plan({inputs + "llama3_debug.toml", "--memory=64MiB"});
    require_same_plan({inputs + "llama3_debug_float8.toml", "--gpu=b200"});
    require_same_plan({without_list, "--gpu=b200"});
    require_same_plan({inputs + "deepseek_v3_16b.toml", "--gpu=h100"});
    const std::string idle = (folder / "idle.toml").string();
    write_file(idle, "include = \"" + inputs + "llama3_debug_float8.toml\"\n[quantize.linear.float8]\n" +
                         "filter_fqns = [\"layers\", \"output\"]\n");
    require_same_plan({idle, "--gpu=b200"});
    CHECK_THAT(shown({idle, "--gpu=b200"}), Contains("\n  Warning: quantize.linear.float8 converts nothing"));
}

TEST_CASE("info prints all of the plan, for every deck under inputs") {
    require_same_plans_of(paths::source() + "/inputs");
}

TEST_CASE("info prints all of the plan, for every deck under inputs/base") {
    require_same_plans_of(paths::source() + "/inputs/base");
}

TEST_CASE("info ends with exit code 2 for a deck that would be refused wherever it starts") {
    const TemporaryFolder folder;
    const auto deck = [&](const std::string& name, const std::string& text) {
        const std::string file = folder / name;
        write_file(file,
                   "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[training]\nseq_len = 64\n" + text);
        return file;
    };
    // what is wrong only on this host
    const std::string absent = deck("absent.toml", "dataset_path = \"absent.h5\"\n");
    CHECK_THAT(shown({absent, "--memory=1TiB"}), !Contains("Refused: "));
    const std::string without_data = deck("data.toml", "dataset = \"c4\"\n");
    CHECK_THAT(shown({without_data, "--memory=1TiB"}),
               Contains("\n  Refused on this host: training.dataset"));
    // a value that is refused, and too small a device, whatever follows
    const std::string of_images = deck("images.toml", "[loss]\nloss_fn = \"MSELoss\"\n");
    const Outcome no_loss = run_coeus({"info", of_images, absent, "--memory=1TiB"});
    CHECK(no_loss.exit_code == 2);
    CHECK_THAT(no_loss.output, Contains("\n  Refused: loss.loss_fn = "));
    const Outcome refused = run_coeus({"info", without_data, absent, "--memory=8MiB"});
    CHECK(refused.exit_code == 2);
    CHECK(count_of("\n  Refused: a rank does not fit into the memory of ", refused.output) == 2);
    CHECK(count_of("deck, ", refused.output) == 2);
    CHECK(run_coeus({"train", absent, "--dry_run", "--memory=8MiB"}).exit_code == 2);
}
