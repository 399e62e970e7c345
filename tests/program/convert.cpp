// SPDX-License-Identifier: Apache-2.0
// coeus convert, and Hugging Face folders written after the last step: both preserve every bit.
#include "coeus/data/tokenizer.hpp"
#include "coeus/file/json.hpp"
#include "coeus/file/safetensors.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "coeus/models/hub_model.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/write_safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

void convert_well(const fs::path& source, const fs::path& target, const Arguments& more = {}, int ranks = 0) {
    const Outcome run = convert_folder(source, target, more, ranks);
    INFO(run.output);
    REQUIRE(run.exit_code == 0);
    CHECK_THAT(run.output, Contains(target.string() + ": ") && Contains(" arrays in "));
    CHECK_FALSE(fs::exists(target.string() + ".part"));
}

// Names of tensors whose type, shape or bytes differ, or that only one folder has.
std::vector<std::string> differing_tensors(const fs::path& a, const fs::path& b) {
    const Safetensors first = Safetensors::open(a.string()), second = Safetensors::open(b.string());
    std::vector<std::string> differ;
    for (const std::string& name : first.names()) {
        if (!second.has(name)) {
            differ.push_back(name);
            continue;
        }
        const auto &x = first.entry(name), &y = second.entry(name);
        if (x.dtype != y.dtype || x.shape != y.shape ||
            std::memcmp(x.data, y.data, size_t(x.shape.count() * size_of(x.dtype))) != 0)
            differ.push_back(name);
    }
    for (const std::string& name : second.names())
        if (!first.has(name)) differ.push_back(name);
    return differ;
}

// Names of files that are not the same in both folders.
std::vector<std::string> differing_files(const fs::path& a, const fs::path& b) {
    std::set<std::string> names;
    for (const fs::path& folder : {a, b})
        for (const auto& entry : fs::directory_iterator(folder))
            names.insert(entry.path().filename().string());
    std::vector<std::string> differ;
    for (const std::string& name : names)
        if (!fs::exists(a / name) || !fs::exists(b / name) || read_file(a / name) != read_file(b / name))
            differ.push_back(name);
    return differ;
}

const std::vector<std::string> nothing;

}  // namespace

TEST_CASE("convert: from a Hugging Face folder to a checkpoint and back, the bits are the same") {
    for (const char* name :
         {"llama2_mha", "llama3_gqa", "llama3_tied", "llama31_rope_scaled", "sharded_bf16", "sharded_f16"}) {
        CAPTURE(name);
        const fs::path model = golden(std::string("models/") + name);
        if (model.empty()) return;
        const TemporaryFolder folder;
        const int ranks = std::string(name) == "llama3_gqa" ? 3 : 0;
        convert_well(model, folder / "weights.h5", {}, ranks);
        const Outcome verified = run_coeus({"info", (folder / "weights.h5").string(), "--verify"});
        CHECK_THAT(verified.output, Contains("weights only") && Contains("match their checksum"));
        const bool sharded = std::string(name).starts_with("sharded");
        convert_well(folder / "weights.h5", folder / "back",
                     sharded ? Arguments{"--max_shard_size", "73kB"} : Arguments{}, ranks);
        CHECK(fs::exists(folder / "back/model-00003-of-00003.safetensors") == sharded);
        CHECK(differing_tensors(model, folder / "back") == nothing);
        CHECK(model_from_hub((folder / "back").string()) == model_from_hub(model.string()));
    }
}

TEST_CASE("convert: layers of multi-token prediction that only config.json names are left out") {
    const fs::path model = golden("models/deepseek_v3_full");
    if (model.empty()) return;
    const TemporaryFolder folder;
    fs::copy(model, folder / "hf");
    std::string config = read_file(folder / "hf/config.json");
    const std::string key = "\"num_nextn_predict_layers\": ";
    const size_t at = config.find(key + "0");
    REQUIRE(at != std::string::npos);
    config.replace(at, key.size() + 1, key + "1");
    write_file(folder / "hf/config.json", config);
    const Outcome converted = convert_folder(folder / "hf", folder / "weights.h5");
    CHECK(converted.exit_code == 0);
    CHECK_THAT(converted.output,
               Contains("config.json has 1 layers of multi-token prediction, and the files have "
                        "0: the others are left out"));
    CHECK_THAT(run_coeus({"info", (folder / "hf").string()}).output, !Contains("missing"));
    // a run has what the files have
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(200)});
    const Outcome run = run_coeus(run_from_folder(folder / "out", folder / "tokens.h5", folder / "hf",
                                                  "deepseek_v3", {"--training.steps=1"}));
    INFO(run.output);
    CHECK(run.exit_code == 0);
    CHECK_THAT(run.output,
               Contains("config.json has 1 layers of multi-token prediction, and the files have 0: "));
}

TEST_CASE("convert: weights of several types are written to a folder without loss") {
    const fs::path model = golden("models/llama3_gqa");
    if (model.empty()) return;
    const TemporaryFolder folder;
    const Safetensors weights = Safetensors::open(model.string());
    std::map<std::string, std::vector<float>> exact;  // the weights of the norms
    std::map<std::string, std::vector<bf16>> rounded;
    std::vector<test::NamedTensor> mixed;
    for (const std::string& name : weights.names()) {
        const Shape shape = weights.entry(name).shape;
        exact[name] = weights.read_all<float>(name);
        mixed.push_back({name, Tensor(exact[name].data(), Dtype::f32, shape)});
        if (shape.rank == 1) continue;
        rounded[name] = weights.read_all<bf16>(name);
        mixed.back().tensor = Tensor(rounded[name].data(), Dtype::bf16, shape);
        std::transform(rounded[name].begin(), rounded[name].end(), exact[name].begin(),
                       [](bf16 x) { return float(x); });
    }
    fs::create_directories(folder / "mixed");
    fs::copy_file(model / "config.json", folder / "mixed/config.json");
    test::write_safetensors(folder / "mixed/model.safetensors", mixed);
    convert_well(folder / "mixed", folder / "weights.h5");
    convert_well(folder / "weights.h5", folder / "back");
    const Safetensors back = Safetensors::open((folder / "back").string());
    for (const auto& [name, values] : exact) {
        CHECK(back.entry(name).dtype == Dtype::f32);
        CHECK((back.read_all<float>(name) == values));
    }
}

TEST_CASE("convert: a run's checkpoint becomes the folder that the run itself writes, on any mesh") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17), .documents = {0, 80 * 17}});
    const Arguments saving = {"--checkpoint.enable", "--checkpoint.last_save_in_hf",
                              "--checkpoint.export_dtype=bfloat16", steps(2)};
    int number = 0;
    for (const Arguments& mesh :
         {Arguments{}, Arguments{"--parallelism.tensor_parallel_degree=2"},
          Arguments{"--parallelism.data_parallel_replicate_degree=2"},
          Arguments{"--parallelism.pipeline_parallel_degree=2", "--training.local_batch_size=4"}}) {
        CAPTURE(mesh);
        const fs::path run = folder / std::to_string(number);
        const Outcome trained = train_tiny(run, folder / "tokens.h5", saving + mesh, 2);
        const fs::path written = run / "checkpoint/hf-00000002";
        CHECK_THAT(trained.output,
                   Contains("Saved the model weights as " + written.string() + " (bfloat16)"));
        const fs::path converted = folder / fmt::format("converted {}", number++);
        convert_well(run, converted, {"--dtype", "bfloat16"});
        CHECK(differing_files(written, converted) == nothing);
    }
    // training can start from the folder
    const Outcome started =
        train_tiny(folder / "more", folder / "tokens.h5",
                   {"--model.flavor=hf", "--checkpoint.initial_load_in_hf",
                    "--model.hf_assets_path=" + (folder / "0/checkpoint/hf-00000002").string(), steps(1)});
    CHECK_THAT(started.output, Contains("Starting from the weights of"));
}

TEST_CASE("convert: both forms of config.json become the same one, which has both") {
    const fs::path model = golden("models/llama31_rope_scaled");
    if (model.empty()) return;
    const TemporaryFolder folder;
    fs::create_directories(folder / "older");
    fs::create_symlink(model / "model.safetensors", folder / "older/model.safetensors");
    fs::copy_file(model / "config_4x.json", folder / "older/config.json");
    for (const auto& [source, name] : {std::pair{model, "newer"}, std::pair{folder / "older", "old"}}) {
        convert_well(source, folder / (std::string(name) + ".h5"));
        convert_well(folder / (std::string(name) + ".h5"), folder / (std::string(name) + "-hf"));
    }
    const fs::path written = folder / "newer-hf/config.json";
    CHECK(read_file(written) == read_file(folder / "old-hf/config.json"));
    const JsonDocument ours = JsonDocument::read(written), newer = JsonDocument::read(model / "config.json"),
                       older = JsonDocument::read(model / "config_4x.json");
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor",
                            "original_max_position_embeddings", "rope_theta"}) {
        const double expected = newer.root()["rope_parameters"].number(key);
        CHECK(ours.root()["rope_parameters"].number(key) == expected);
        if (std::string(key) != "rope_theta")
            CHECK(ours.root()["rope_scaling"].number(key) == older.root()["rope_scaling"].number(key));
    }
    CHECK(ours.root()["rope_parameters"].string("rope_type") == "llama3");
    CHECK(ours.root()["rope_scaling"].string("rope_type") == "llama3");
    CHECK(ours.root().number("rope_theta") == older.root().number("rope_theta"));
    CHECK(ours.root().string("dtype") == newer.root().string("dtype"));
    CHECK(ours.root().string("torch_dtype") == older.root().string("torch_dtype"));
    for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                            "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings"})
        CHECK(ours.root().integer(key) == newer.root().integer(key));
    CHECK(ours.root().number("rms_norm_eps") == newer.root().number("rms_norm_eps"));
}

TEST_CASE("convert: several files have the content of one file, on any number of ranks") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17), .documents = {0, 80 * 17}});
    train_tiny(folder / "run", folder / "tokens.h5", {"--checkpoint.enable", steps(2)});
    const fs::path whole = folder / "run" / checkpoint_of(2);
    for (const std::string dtype : {"float32", "bfloat16", "float16"}) {
        CAPTURE(dtype);
        const fs::path single = folder / (dtype + " single"), weights = folder / (dtype + ".h5");
        convert_well(whole, single, {"--dtype", dtype});
        convert_well(whole, weights, {"--dtype", dtype, "--only", "model"});
        fs::path first;
        for (const int ranks : {1, 2, 4}) {
            CAPTURE(ranks);
            const fs::path several = folder / fmt::format("{} several {}", dtype, ranks);
            convert_well(whole, several, {"--dtype", dtype, "--max_shard_size", "8kB"}, ranks);
            CHECK(fs::exists(several / "model.safetensors.index.json"));
            CHECK_FALSE(fs::exists(several / "model.safetensors"));
            CHECK(differing_tensors(single, several) == nothing);
            if (ranks == 1) first = several;
            CHECK(differing_files(first, several) == nothing);
            convert_well(several, several.string() + ".h5", {}, ranks);
            CHECK(differing_arrays(weights, several.string() + ".h5") == nothing);
        }
    }
}

TEST_CASE("a run on any mesh exports the same bytes") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17), .documents = {0, 80 * 17}});
    struct Case {
        Arguments mesh;
        int ranks;
    };
    int number = 0;
    for (const auto& [mesh, ranks] :
         {Case{{}, 0},
          Case{{"--parallelism.data_parallel_shard_degree=4", "--training.mixed_precision_param=bfloat16",
                "--training.gradient_dtype=bfloat16"},
               4},
          Case{{"--parallelism.tensor_parallel_degree=2", "--parallelism.data_parallel_shard_degree=2"}, 4},
          Case{{"--parallelism.tensor_parallel_degree=2", "--parallelism.pipeline_parallel_degree=2",
                "--training.local_batch_size=4"},
               4},
          Case{{"--parallelism.data_parallel_replicate_degree=2", "--parallelism.context_parallel_degree=2"},
               4}}) {
        CAPTURE(mesh);
        // the initial weights are the same on every mesh; with a rate of 0 they stay unchanged
        const std::string name = std::to_string(number++);
        train_tiny(folder / name, folder / "tokens.h5",
                   Arguments{"--checkpoint.enable", "--checkpoint.last_save_in_hf", "--optimizer.lr=0",
                             "--training.global_batch_size=4", "--training.local_batch_size=1", steps(1)} +
                       mesh,
                   ranks);
        CHECK(differing_files(folder / "0/checkpoint/hf-00000001",
                              folder / (name + "/checkpoint/hf-00000001")) == nothing);
    }
}

TEST_CASE("convert: ranks that divide the experts write the folder of one rank") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17)});
    // one step, in which only the experts' biases change: they follow from integers
    const Arguments model = {"--model.name=deepseek_v3",
                             "--model.flavor=671B",
                             "--model.n_heads=2",
                             "--model.n_kv_heads=2",
                             "--model.head_dim=12",
                             "--model.v_head_dim=8",
                             "--model.qk_rope_head_dim=4",
                             "--model.kv_lora_rank=8",
                             "--model.q_lora_rank=8",
                             "--model.n_dense_layers=1",
                             "--model.moe.num_experts=16",
                             "--model.moe.top_k=2",
                             "--model.moe.hidden=8",
                             "--training.dtype=float64",
                             "--checkpoint.enable",
                             "--checkpoint.last_save_in_hf",
                             "--optimizer.lr=0",
                             "--training.global_batch_size=4",
                             "--training.local_batch_size=1",
                             steps(1)};
    const auto written = [&](const std::string& name) { return folder / (name + "/checkpoint/hf-00000001"); };
    train_tiny(folder / "one", folder / "tokens.h5", model);
    for (const auto& [name, ranks, tp, ep, etp] :
         {std::tuple("two", 2, 1, 2, 1), {"four", 4, 2, 4, 1}, {"divided", 4, 2, 2, 2}}) {
        CAPTURE(name);
        train_tiny(folder / name, folder / "tokens.h5",
                   model + Arguments{fmt::format("--parallelism.tensor_parallel_degree={}", tp),
                                     fmt::format("--parallelism.expert_parallel_degree={}", ep),
                                     fmt::format("--parallelism.expert_tensor_parallel_degree={}", etp)},
                   ranks);
        CHECK(differing_files(written("one"), written(name)) == nothing);
        convert_well(folder / name, folder / (std::string(name) + " converted"), {"--dtype", "float32"});
        CHECK(differing_files(written(name), folder / (std::string(name) + " converted")) == nothing);
    }
}

TEST_CASE("convert: the folder has the tokenizer, and names the tokens at the begin and end of a text") {
    const TemporaryFolder folder;
    write_file(folder / "text.txt", "a rose is a rose is a rose, said she; and so it is\n");
    REQUIRE(run_coeus({"tokenizer", (folder / "text.txt").string(), "--vocab_size", "260", "--output",
                       (folder / "tokenizer").string()})
                .exit_code == 0);
    const Tokenizer tokenizer(folder / "tokenizer");
    REQUIRE((tokenizer.bos_id() && tokenizer.eos_id()));
    const auto check_ids = [&](const fs::path& file) {
        const JsonDocument document = JsonDocument::read(file);
        CHECK(document.root().integer("bos_token_id") == *tokenizer.bos_id());
        CHECK(document.root().integer("eos_token_id") == *tokenizer.eos_id());
    };
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17), .documents = {0, 80 * 17}});
    // the run's own tokenizer, by the option's older name
    train_tiny(folder / "run", folder / "tokens.h5",
               {"--checkpoint.enable", "--checkpoint.last_save_in_hf", "--model.vocab_size=260",
                "--model.tokenizer_path=" + (folder / "tokenizer").string(), steps(1)});
    convert_well(folder / "run", folder / "converted");
    for (const fs::path& written : {folder / "run/checkpoint/hf-00000001", folder / "converted"}) {
        check_ids(written / "config.json");
        check_ids(written / "generation_config.json");
        CHECK(Tokenizer(written).hash() == tokenizer.hash());
    }
    // a given tokenizer, for an imported model
    convert_well(folder / "converted", folder / "weights.h5");
    convert_well(folder / "weights.h5", folder / "back", {"--tokenizer", (folder / "tokenizer").string()});
    CHECK(differing_files(folder / "converted", folder / "back") == nothing);
    // of a run whose tokenizer was moved
    fs::rename(folder / "tokenizer", folder / "moved");
    const Outcome without = convert_folder(folder / "run", folder / "without");
    CHECK(without.exit_code == 0);
    CHECK_THAT(without.output,
               Contains("will have no tokenizer: there is none at " + (folder / "tokenizer").string()));
}

TEST_CASE("convert: checkpoints of another type, or without the optimizer") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17), .documents = {0, 80 * 17}});
    train_tiny(folder / "run", folder / "tokens.h5", {"--checkpoint.enable", steps(2)});
    const fs::path whole = folder / "run" / checkpoint_of(2);
    convert_well(whole, folder / "same.h5");
    CHECK(differing_arrays(whole, folder / "same.h5") == nothing);
    convert_well(whole, folder / "weights.h5", {"--only", "model", "--dtype", "bfloat16"}, 2);
    const Outcome info = run_coeus({"info", (folder / "weights.h5").string(), "--verify"});
    CHECK_THAT(info.output, Contains("weights only") && Contains("bfloat16") && !Contains("float32"));
    const Outcome same = run_coeus({"info", whole.string(), "--diff", (folder / "same.h5").string()});
    CHECK(same.exit_code == 0);
    CHECK_THAT(same.output, Contains(": 63 arrays in both, none differ"));
    const Outcome rounded = run_coeus({"info", whole.string(), "--diff", (folder / "weights.h5").string()});
    CHECK_THAT(rounded.output, Contains(": 21 arrays in both, ") && Contains("model/output.weight ") &&
                                   Contains("of its norm") && Contains("only in " + whole.string()) &&
                                   Contains("... and 34 more"));
    // resumes at the step of the first run
    fs::create_directories(folder / "other/checkpoint");
    fs::rename(folder / "same.h5", folder / "other" / checkpoint_of(2));
    const Outcome resumed =
        train_tiny(folder / "other", folder / "tokens.h5", {"--checkpoint.enable", steps(3)});
    CHECK_THAT(resumed.output, Contains("Resuming from") && Contains("step 2"));
}

TEST_CASE("convert: an impossible conversion is reported, and leaves no files") {
    const TemporaryFolder folder;
    write_token_file(folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17), .documents = {0, 80 * 17}});
    train_tiny(folder / "run", folder / "tokens.h5", {"--checkpoint.enable", steps(2)});
    const fs::path whole = folder / "run" / checkpoint_of(2), target = folder / "target";
    const auto refuses = [&](const fs::path& source, const fs::path& to, const Arguments& more,
                             const std::string& message) {
        const Outcome run = convert_folder(source, to, more);
        CAPTURE(run.output);
        CHECK(run.exit_code == 2);
        CHECK_THAT(run.output, Contains(message));
        CHECK_FALSE(fs::exists(target));
        CHECK_FALSE(fs::exists(target.string() + ".part"));
    };
    refuses(whole, folder / "run", {}, "already exists; --force replaces it");
    refuses(whole, folder / "run", {"--force"},
            "run already exists and is not a Hugging Face folder: --force does not replace it");
    write_file(folder / "mine/notes.txt", "");
    refuses(whole, folder / "mine", {"--force"}, "mine already exists and is not a Hugging Face folder");
    const fs::path hub = folder / "hub", file = folder / "file.h5";
    for (const fs::path& to : {hub, file}) {
        CHECK(convert_folder(whole, to).exit_code == 0);
        refuses(whole, to, {}, to.string() + " already exists; --force replaces it");
        write_file(to == hub ? hub / "model-old.safetensors" : file, "old");
        CHECK(convert_folder(whole, to, {"--force"}).exit_code == 0);
    }
    const std::string replaces = " would replace ", read = ", which the command reads; give another TARGET";
    for (const fs::path& source : {whole, folder / "run"})
        refuses(source, folder / "run/checkpoint/.." / checkpoint_of(2), {"--force"}, read);
    fs::copy_file(whole, hub / "inside.h5");
    refuses(hub / "inside.h5", hub, {"--force"},
            "coeus convert: TARGET " + hub.string() + replaces + (hub / "inside.h5").string() + read);
    CHECK(fs::exists(hub / "inside.h5"));
    CHECK_FALSE(fs::exists(hub / "model-old.safetensors"));
    CHECK(run_coeus({"info", file.string(), "--verify"}).exit_code == 0);
    for (const std::string ending : {".gguf", ".GGUF", ".safetensors", ".pt", ".hdf5"}) {
        refuses(whole, target.string() + ending, {},
                "target" + ending + ": coeus convert does not write " + ending +
                    " files; it writes a checkpoint (a name that ends with .h5) or a Hugging Face folder");
        CHECK_FALSE(fs::exists(target.string() + ending));
    }
    refuses(folder / "no.h5", target, {}, "no.h5: this file or folder does not exist");
    refuses(folder / "tokens.h5", target, {},
            "a token file becomes a token file (a name that ends with .h5)");
    refuses(whole, target, {"--dtype", "int8"}, "--dtype int8: must be float32, bfloat16 or float16");
    refuses(whole, target.string() + ".h5", {"--dtype", "float16"},
            "--dtype float16: the optimizer's moments do not fit into its range");
    CHECK_FALSE(fs::exists(target.string() + ".h5"));
    refuses(whole, target, {"--only", "model"}, "--only model: a Hugging Face folder contains only a model");
    refuses(whole, target.string() + ".h5", {"--tokenizer", "x"},
            "--tokenizer: a checkpoint does not contain a tokenizer");
    refuses(whole, target, {"--tokenizer", (folder / "no").string()}, "no: there is no tokenizer");
    refuses(whole, target, {"--max_shard_size", "big"},
            "--max_shard_size big: must be a size of at least one byte, such as 5GB, 500MB or 2GiB");
    refuses(whole, target.string() + ".h5", {"--max_shard_size", "1GB"},
            "--max_shard_size: a checkpoint is one file");

    const int64_t at = *hdf5::File::open(whole.string()).dataset("model/norm.weight").offset();
    std::string bytes = read_file(whole);
    bytes[size_t(at)] = char(bytes[size_t(at)] ^ 1);
    write_file(whole, bytes);
    refuses(whole, target, {}, "is damaged: rows 0 to 31 of model/norm.weight do not match their checksum");

    train_tiny(folder / "other", folder / "tokens.h5",
               {"--checkpoint.enable", "--model.norm_type=layernorm", steps(1)});
    refuses(folder / "other", target, {},
            "norm_type = \"layernorm\" cannot be written as a Hugging Face folder");
    const Outcome early = run_coeus(
        tiny_run(folder / "third", folder / "tokens.h5",
                 {"--checkpoint.enable", "--model.norm_type=layernorm", "--checkpoint.last_save_in_hf"}));
    CHECK(early.exit_code == 2);
    CHECK_THAT(early.output, Contains("cannot be written as a Hugging Face folder"));
}
