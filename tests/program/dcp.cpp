// SPDX-License-Identifier: Apache-2.0
// Checkpoints that PyTorch wrote as torchtitan does, through coeus convert: those packed in tests/data and,
// if there is a Python with torch, new ones (tests/tools/write_dcp.py).
#include "coeus/pretrained/dcp.hpp"

#include "coeus/file/safetensors.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "coeus/io/checkpoint.hpp"
#include "program/python.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <cstring>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

const std::string tiny_deck = R"(
[model]
name = "llama3"
dim = 8
n_layers = 1
n_heads = 2
n_kv_heads = 1
ffn_hidden = 10
vocab_size = 18
[training]
seq_len = 16
local_batch_size = 4
)";
const std::string whole_deck = tiny_deck + "global_batch_size = 8\n";

struct Unpacked {
    TemporaryFolder folder;
    fs::path step = folder / "step-7";
    Unpacked() {
        const Outcome tar = run_shell("tar xzf " + paths::source() + "/tests/data/dcp.tar.gz -C '" +
                                      folder.path().string() + "'");
        INFO(tar.output);
        REQUIRE(tar.exit_code == 0);
        write_file(folder / "deck.toml", whole_deck);
    }
};

// Names of arrays that differ in any bit between a checkpoint and a safetensors file, or that only one of
// them has.
std::vector<std::string> differing(const fs::path& checkpoint, const fs::path& expected, bool weights_only) {
    const hdf5::File file = hdf5::File::open(checkpoint.string());
    const Safetensors tensors = Safetensors::open(expected.string());
    std::vector<std::string> differ;
    size_t arrays = 0;
    for (const std::string& name : tensors.names()) {
        if (weights_only && !name.starts_with("model/")) continue;
        ++arrays;
        const Safetensors::Entry& entry = tensors.entry(name);
        bool same = file.has(name);
        if (same) {
            const hdf5::Dataset array = file.dataset(name);
            std::vector<std::byte> bytes(size_t(entry.shape.count() * size_of(entry.dtype)));
            same = array.shape() == entry.shape && array.type() == hdf5::type_of(entry.dtype);
            if (same) array.read_elements(bytes.data(), array.type(), 0, entry.shape.count());
            same = same && std::memcmp(bytes.data(), entry.data, bytes.size()) == 0;
        }
        if (!same) differ.push_back(name);
    }
    CHECK(arrays == (weights_only ? 12 : 36));
    CHECK(read_checkpoint_header(checkpoint.string()).arrays.size() == arrays);
    return differ;
}

const std::vector<std::string> none;

void check_conversion(const fs::path& folder, const fs::path& deck, int ranks) {
    const fs::path target = folder / fmt::format("{} ranks", ranks);
    const auto made = [&](const std::string& name, const Arguments& more) {
        const fs::path path = target.string() + name;
        const Outcome run =
            convert_folder(folder / "step-7", path, Arguments{"--deck", deck.string()} + more, ranks);
        INFO(run.output);
        REQUIRE(run.exit_code == 0);
        return path;
    };
    const fs::path whole = made(" whole.h5", {});
    CHECK(differing(whole, folder / "expected.safetensors", false) == none);
    const CheckpointHeader header = read_checkpoint_header(whole.string());
    CHECK(header.full);
    CHECK(header.train.step == 7);
    CHECK(header.train.sample == 56);
    CHECK(header.train.tokens_seen == 56 * 16);
    const fs::path weights = made(" weights.h5", {"--only", "model"});
    CHECK(differing(weights, folder / "expected.safetensors", true) == none);
    CHECK_FALSE(read_checkpoint_header(weights.string()).full);
    // directly to a Hugging Face folder, or through a checkpoint
    const fs::path direct = made(" direct", {}), by_way = target.string() + " by way";
    REQUIRE(convert_folder(weights, by_way, {}).exit_code == 0);
    for (const char* name : {"model.safetensors", "config.json"})
        CHECK(read_file(direct / name) == read_file(by_way / name));
}

}  // namespace

TEST_CASE("convert: a checkpoint of PyTorch that four ranks wrote, bit for bit") {
    const Unpacked torch;
    check_conversion(torch.folder.path(), torch.folder / "deck.toml", 0);
    check_conversion(torch.folder.path(), torch.folder / "deck.toml", 3);
}

TEST_CASE("convert: checkpoints that this machine's PyTorch writes") {
    const std::string python = python_with("transformers");
    if (python.empty()) return skip("there is no Python with torch (doc/checkpoint.md says how to make one)");
    for (const std::string dtype : {"float32", "bfloat16"}) {
        CAPTURE(dtype);
        const TemporaryFolder folder;
        write_file(folder / "deck.toml", whole_deck);
        const Outcome written =
            run_shell(fmt::format("OMP_NUM_THREADS=1 {} {}/tests/tools/write_dcp.py '{}' {}", python,
                                  paths::source(), folder.path().string(), dtype));
        INFO(written.output);
        REQUIRE(written.exit_code == 0);
        check_conversion(folder.path(), folder / "deck.toml", 2);
    }
}

TEST_CASE("a run resumes from a checkpoint of PyTorch") {
    const Unpacked torch;
    write_token_file(torch.folder / "tokens.h5", {.tokens = learnable_tokens(80 * 17, 18)});
    const fs::path run = torch.folder / "run";
    fs::create_directories(run / "checkpoint");
    REQUIRE(
        convert_folder(torch.step, run / checkpoint_of(7), {"--deck", (torch.folder / "deck.toml").string()})
            .exit_code == 0);
    const Outcome resumed =
        run_coeus({"train", (torch.folder / "deck.toml").string(), "--job.dump_folder=" + run.string(),
                   "--checkpoint.enable", "--training.shuffle=false",
                   "--training.dataset_path=" + (torch.folder / "tokens.h5").string(), "--training.threads=1",
                   "--metrics.log_freq=1", steps(9)});
    INFO(resumed.output);
    CHECK(resumed.exit_code == 0);
    CHECK_THAT(resumed.output, Contains("Resuming from") && Contains("step 7"));
    CHECK(read_metrics(run).steps.size() == 2);
}

TEST_CASE("convert: errors in a checkpoint of PyTorch are reported, and leave no files") {
    const Unpacked torch;
    const fs::path target = torch.folder / "target.h5", deck = torch.folder / "deck.toml";
    const auto refuses = [&](const fs::path& source, const Arguments& more, const std::string& message) {
        const Outcome run = convert_folder(source, target, more);
        CAPTURE(run.output);
        CHECK(run.exit_code == 2);
        CHECK_THAT(run.output, Contains(message));
        CHECK_FALSE(fs::exists(target));
        CHECK_FALSE(fs::exists(target.string() + ".part"));
    };
    const Arguments with_deck = {"--deck", deck.string()};
    refuses(torch.step, {}, "does not describe its model: give the deck of its run with --deck");
    refuses(torch.folder.path(), with_deck,
            "--deck: " + torch.folder.path().string() + " describes its model");
    refuses(torch.folder.path(), {}, "give one of them, such as " + torch.step.string());
    refuses(torch.folder / "expected.safetensors", with_deck, "describes its model itself; remove --deck");

    write_file(deck, tiny_deck);
    refuses(torch.step, with_deck, "the deck does not determine how many sequences a step uses");
    CHECK(convert_folder(torch.step, torch.folder / "open.h5", with_deck + Arguments{"--only", "model"})
              .exit_code == 0);
    std::string other = whole_deck;
    write_file(deck, other.replace(other.find("ffn_hidden = 10"), 15, "ffn_hidden = 12"));
    refuses(torch.step, with_deck,
            "layers.0.feed_forward.w1.weight has the shape [10, 8] in the folder, but [12, 8] in the model");
    other = whole_deck;
    write_file(deck, other.replace(other.find("n_layers = 1"), 12, "n_layers = 2"));
    refuses(torch.step, with_deck, "has no tensor 'layers.1.");

    // a change anywhere in the elements is found
    write_file(deck, whole_deck);
    const fs::path file = torch.step / "__3_0.distcp";
    const std::string bytes = read_file(file);
    const size_t storage = bytes.find("archive/data/0") + 200;
    std::string damaged = bytes;
    damaged[storage] = char(damaged[storage] ^ 1);
    write_file(file, damaged);
    refuses(torch.step, with_deck, "is damaged: its elements do not match their checksum");
    write_file(file, bytes.substr(0, bytes.size() - 1));
    refuses(torch.step, with_deck, "is truncated: a part of ");
    fs::remove(file);
    refuses(torch.step, with_deck, "__3_0.distcp: this file does not exist");
    write_file(file, bytes);

    const std::string metadata = read_file(torch.step / ".metadata");
    std::string unknown_step = metadata;
    const std::string step = "train_state.step";
    for (size_t at = 0; (at = unknown_step.find(step, at)) != std::string::npos; ++at)
        unknown_step[at + step.size() - 1] = 'x';
    write_file(torch.step / ".metadata", unknown_step);
    refuses(torch.step, with_deck, "contains the optimizer's moments, but no train_state.step");
    CHECK(convert_folder(torch.step, torch.folder / "still.h5", with_deck + Arguments{"--only", "model"})
              .exit_code == 0);
    write_file(torch.step / ".metadata", metadata.substr(0, metadata.size() / 2));
    refuses(torch.step, with_deck, ".metadata: the pickle cannot be read, at byte ");
    // os.system("true")
    write_file(torch.step / ".metadata",
               "\x80\x02"
               "cos\nsystem\nX\x04" +
                   std::string(3, '\0') + "true\x85R.");
    refuses(torch.step, with_deck, "it names os.system, which such a file does not need");
}
