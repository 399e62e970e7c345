// SPDX-License-Identifier: Apache-2.0
// Data and runs that cannot work: the exit code, and a message that names key, value and rule, logged once
// however many ranks there are. For mistakes in decks and options see decks.cpp, for those in checkpoints
// checkpoint.cpp.
#include "coeus/hdf5/hdf5.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <fstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

class BadInput {
public:
    BadInput() { write_token_file(good(), {.tokens = learnable_tokens(40 * 17)}); }

    fs::path good() const { return folder_ / "good.h5"; }
    fs::path path(const std::string& name) const { return folder_ / name; }
    fs::path out() const { return folder_ / "out"; }

    /// Expects the exit code and exactly one line "error - <message>".
    void check(const fs::path& data, const Arguments& more, const std::string& message, int ranks = 0,
               int exit_code = 2) const {
        const Outcome run = run_coeus(tiny_run(out(), data, more), ranks);
        INFO(run.output);
        CHECK(run.exit_code == exit_code);
        CHECK(count_of(" - error - " + message, run.output) == 1);
        CHECK(count_of(" - error - ", run.output) == 1);
        CHECK(count_of(" step: ", run.output) == 0);
    }

private:
    TemporaryFolder folder_;
};

std::string forty_lines() {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "The dog sat on the mat, and the cat sat on the log.\n";
    return text;
}

}  // namespace

TEST_CASE("Words that are not commands") {
    struct Case {
        Arguments words;
        const char* says;
    };
    const Case wrong = GENERATE(
        Case{{"-n", "2", "train"}, "-n: ranks are started by mpirun: mpirun -n 2 coeus train DECK"},
        Case{{"--dry_run", "deck.toml"},
             "--dry_run: options follow a command: coeus COMMAND --dry_run; commands: train"},
        Case{{"deck.toml"}, "deck.toml: a deck follows a command, such as: coeus train deck.toml"},
        Case{{"trian", "deck.toml"}, "unknown command 'trian'; did you mean 'train'?; commands: train"});
    const Outcome run = run_coeus(wrong.words);
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.output, Contains(wrong.says));
}

TEST_CASE("A path that cannot be looked at is not called absent") {
    const BadInput bad;
    const std::string loop = bad.path("loop").string();
    fs::create_symlink(loop, loop);
    const std::string text = bad.path("text.txt").string();
    write_file(text, "some words");
    const Arguments cases[] = {
        {"info", loop},
        {"report", loop},
        {"generate", "--checkpoint", loop, "--prompt", "a"},
        {"convert", loop, bad.path("weights.h5").string()},
        {"tokenize", text, "--tokenizer", loop, "--output", bad.path("tokens.h5").string()},
        tiny_run(bad.out(), loop, {}),
        tiny_run(bad.out(), bad.good(), {"--checkpoint.initial_load_path=" + loop})};
    for (const Arguments& words : cases) {
        const Outcome run = run_coeus(words);
        INFO(words[0] << "\n" << run.output);
        CHECK(run.exit_code == 2);
        CHECK_THAT(run.output, Contains(loop + " cannot be read: Too many levels of symbolic links"));
    }
}

TEST_CASE("Missing data") {
    const BadInput bad;
    const std::string absent = bad.path("absent.h5").string();
    bad.check(absent, {}, "training.dataset_path = \"" + absent + "\": this file or folder does not exist",
              2);
    bad.check(bad.good(), {"--validation.enable", "--validation.dataset_path=" + absent},
              "validation.dataset_path = \"" + absent + "\": this file or folder does not exist");
    // text needs a tokenizer
    write_file(bad.path("text/a.txt"), forty_lines());
    bad.check(
        bad.path("text"), {"--model.hf_assets_path=" + bad.path("nowhere").string()},
        bad.path("nowhere").string() + ": this file or folder does not exist; a tokenizer is tokenizer.json");
}

TEST_CASE("Data without tokens") {
    const BadInput bad;
    write_file(bad.path("corpus.txt"), forty_lines());
    REQUIRE(run_coeus({"tokenizer", bad.path("corpus.txt"), "--vocab_size=270", "--output", bad.path("tok")})
                .exit_code == 0);
    const Arguments tokenizer = {"--model.hf_assets_path=" + bad.path("tok").string(),
                                 "--model.vocab_size=300"};
    write_file(bad.path("empty.txt"), "");
    bad.check(bad.path("empty.txt"), tokenizer,
              bad.path("empty.txt").string() + ": is empty, there is no text to read");
    fs::create_directory(bad.path("empty"));
    bad.check(bad.path("empty"), tokenizer, bad.path("empty").string() + ": contains no files");
    // a vocabulary smaller than the tokenizer
    bad.check(bad.path("corpus.txt"), tokenizer + Arguments{"--model.vocab_size=269"},
              "model.vocab_size = 269: the tokenizer in " + bad.path("tok").string() +
                  " has 270 tokens; set model.vocab_size = 270 or more");
    // and the correct size
    train_tiny(bad.out(), bad.path("corpus.txt"), tokenizer + Arguments{steps(2)}, 2);
    CHECK(fs::exists(bad.path("out/data")));
    const Outcome again =
        train_tiny(bad.path("out"), bad.path("corpus.txt"), tokenizer + Arguments{steps(2)});
    CHECK_THAT(again.output, Contains("out/data/"));
}

TEST_CASE("Text that is not all UTF-8 is counted, located and reported once, however many ranks there are") {
    const BadInput bad;
    write_file(bad.path("corpus.txt"), forty_lines());
    REQUIRE(run_coeus({"tokenizer", bad.path("corpus.txt"), "--vocab_size=270", "--output", bad.path("tok")})
                .exit_code == 0);
    const Arguments tokenizer = {"--model.hf_assets_path=" + bad.path("tok").string(),
                                 "--model.vocab_size=300", steps(1)};
    const auto warned = [&](const std::string& name, const std::string& text, const std::string& warning,
                            int ranks = 0) {
        write_file(bad.path(name), text);
        fs::remove_all(bad.out());
        const Outcome run = train_tiny(bad.out(), bad.path(name), tokenizer, ranks);
        INFO(run.output);
        CHECK(count_of(" - warning - ", run.output) == 1);
        CHECK(count_of(fmt::format(" - warning - {}\n", warning), run.output) == 1);
    };
    warned(
        "latin.txt", forty_lines() + "caf\xe9\n" + forty_lines() + "na\xefve\n",
        "2 invalid bytes or sequences became U+FFFD: " + bad.path("latin.txt").string() +
            " is not UTF-8, first at line 41, byte 2084; it looks like Latin-1 or Windows-1252: convert it "
            "with iconv -f WINDOWS-1252 -t UTF-8");
    warned(
        "mixed.txt", "caf\u00e9\n" + forty_lines() + "caf\xe9\n" + forty_lines(),
        "1 invalid bytes or sequences became U+FFFD: " + bad.path("mixed.txt").string() +
            " is not UTF-8, first at line 42, byte 2090; it is UTF-8 up to there and looks like Latin-1 or "
            "Windows-1252 from there on: convert that part with tail -c +2090 | iconv -f WINDOWS-1252 -t "
            "UTF-8",
        2);
    std::string wide;
    for (const char c : forty_lines()) wide += std::string{c, '\0'};
    warned("wide.txt", forty_lines() + forty_lines() + forty_lines() + "\xFF\xFE" + wide,
           "2 invalid bytes or sequences became U+FFFD and 2,080 NUL bytes were kept: " +
               bad.path("wide.txt").string() +
               " is not UTF-8, first at line 121, byte 6241; from there on it looks like UTF-16: convert "
               "that part with tail -c +6241 | iconv -f UTF-16 -t UTF-8");
    write_file(bad.path("utf16.txt"), "\xFF\xFE" + wide);
    bad.check(bad.path("utf16.txt"), tokenizer,
              bad.path("utf16.txt").string() +
                  ": is UTF-16, according to its byte order mark; convert it with iconv -f UTF-16 -t UTF-8");
}

TEST_CASE("Damaged compressed text") {
    const BadInput bad;
    write_file(bad.path("corpus.txt"), forty_lines());
    REQUIRE(run_coeus({"tokenizer", bad.path("corpus.txt"), "--vocab_size=270", "--output", bad.path("tok")})
                .exit_code == 0);
    const Arguments tokenizer = {"--model.hf_assets_path=" + bad.path("tok").string(),
                                 "--model.vocab_size=300"};
    REQUIRE(run_shell("gzip -k '" + bad.path("corpus.txt").string() + "'").exit_code == 0);
    const std::string packed = read_file(bad.path("corpus.txt.gz"));
    const auto check = [&](const std::string& name, const std::string& content, const std::string& message,
                           int ranks = 0) {
        write_file(bad.path(name), content);
        bad.check(bad.path(name), tokenizer, bad.path(name).string() + message, ranks);
    };
    check("cut.txt.gz", packed.substr(0, packed.size() / 2),
          fmt::format(" is truncated: its gzip data is incomplete, at byte {}; download or compress it again",
                      packed.size() / 2));
    std::string flipped = packed;
    flipped[packed.size() - 6] = char(~flipped[packed.size() - 6]);
    check("flipped.txt.gz", flipped, " is damaged near byte ", 2);
    check("none.txt.gz", "\xff" + forty_lines(), " is not gzip data, although its name says so");
    check("none.txt.zst", "\xff" + forty_lines(), " is not zstd data, although its name says so");
    // unpacked while it was downloaded
    write_file(bad.path("unpacked.txt.gz"), forty_lines());
    const Outcome run = train_tiny(bad.out(), bad.path("unpacked.txt.gz"), tokenizer + Arguments{steps(1)});
    CHECK(count_of("Notice: " + bad.path("unpacked.txt.gz").string() +
                       " is not compressed, although the name says so: it is read as it is",
                   run.output) == 1);
    // no partial file is left
    for (const auto& entry : fs::recursive_directory_iterator(bad.out() / "data"))
        CHECK_THAT(entry.path().string(),
                   !Contains(".part") && (Contains("/unpacked.txt-") || !Catch::EndsWith(".h5")));
}

TEST_CASE("A tokenizer.json of an unknown kind") {
    const BadInput bad;
    write_file(bad.path("corpus.txt"), forty_lines());
    const auto check = [&](const std::string& json, const std::string& message, int ranks = 0) {
        write_file(bad.path("tok/tokenizer.json"), json);
        bad.check(bad.path("corpus.txt"), {"--model.hf_assets_path=" + bad.path("tok").string()},
                  bad.path("tok/tokenizer.json").string() + ": " + message, ranks);
    };
    check(R"({"model": {"type": "Unigram", "vocab": []}})",
          "model: the model Unigram is not supported; only BPE is,", 2);
    check(R"({"model": {"type": "WordPiece", "vocab": {}}})",
          "model: the model WordPiece is not supported; only BPE is,");
    check(R"({"model": {"vocab": {"a": 0}, "merges": []}, "pre_tokenizer": {"type": "Metaspace"}})",
          "pre_tokenizer.replacement is missing");
    check(R"({"model": {"vocab": {"a": 0}, "merges": []}, "pre_tokenizer": null})",
          "decoder: is empty, which is not supported; ");
    check(R"({"model": {"vocab": {"a": 0, "b": 0}, "merges": []}, "pre_tokenizer": {"type": "ByteLevel"},
              "decoder": {"type": "ByteLevel"}})",
          "two tokens have the id 0: \"a\" and \"b\"");
    check(R"({"model": )", "not valid JSON");
}

TEST_CASE("Wrong token files") {
    const BadInput bad;
    const auto file = [&](const std::string& name, const TokenData& data) {
        write_token_file(bad.path(name), data);
        return bad.path(name);
    };
    std::vector<uint16_t> tokens = learnable_tokens(17 * 8);
    tokens[77] = 64;
    bad.check(
        file("id.h5", {.tokens = tokens}), {},
        bad.path("id.h5").string() +
            ": token 64 at position 77 is not in the model's vocabulary of 64; model.vocab_size must be at "
            "least 65",
        2);
    train_tiny(bad.out(), bad.path("id.h5"), {"--model.vocab_size=65", steps(1)});

    bad.check(file("short.h5", {.tokens = learnable_tokens(16)}), {},
              bad.path("short.h5").string() +
                  ": 16 tokens are fewer than one window of seq_len + 1 = 17; use more data, or a "
                  "training.seq_len of at most 15",
              2);
    train_tiny(bad.out(), bad.path("short.h5"), {"--training.seq_len=15", steps(1)});
    bad.check(
        file("one.h5", {.tokens = learnable_tokens(17)}), {"--validation.enable"},
        bad.path("one.h5").string() +
            ": 17 tokens make only one window of seq_len + 1 = 17, so none can be held out for validation");

    write_file(bad.path("cut.h5"), read_file(bad.good()).substr(0, 3000));
    bad.check(bad.path("cut.h5"), {}, bad.path("cut.h5").string() + " is truncated");
    write_file(bad.path("text.h5"), forty_lines());
    bad.check(bad.path("text.h5"), {}, bad.path("text.h5").string() + " is not an HDF5 file");
    {
        hdf5::File foreign = hdf5::File::create(bad.path("foreign.h5").string());
        foreign.create_dataset("token", hdf5::Type::u16, {100});
        foreign.close();
    }
    bad.check(bad.path("foreign.h5"), {}, bad.path("foreign.h5").string() + " has no dataset /tokens");
    bad.check(file("documents.h5", {.tokens = learnable_tokens(40), .documents = {0, 30, 20, 40}}), {},
              bad.path("documents.h5").string() + ": /documents[2] is 20: offsets must ascend");
    bad.check(file("mask.h5", {.tokens = learnable_tokens(40), .loss_mask = {1, 0}}), {},
              bad.path("mask.h5").string() +
                  ": /loss_mask has 2 entries for 40 tokens, but must have one per token");
}

TEST_CASE("A step without any label") {
    const BadInput bad;
    // the 4 windows of step 2 have no label
    TokenData data = {.tokens = learnable_tokens(20 * 17), .loss_mask = std::vector<uint8_t>(20 * 17, 1)};
    for (size_t i = 4 * 17; i < 8 * 17; ++i) data.loss_mask[i] = 0;
    write_token_file(bad.path("mask.h5"), data);
    const Outcome run =
        run_coeus(tiny_run(bad.out(), bad.path("mask.h5"), {"--training.local_batch_size=2"}), 2);
    INFO(run.output);
    CHECK(run.exit_code == 2);
    CHECK(count_of("step 2: no token is a label, so there is no loss (samples 4 to 7)", run.output) == 1);
    CHECK(read_metrics(bad.out()).steps.size() == 1);
    // a rank without labels does no harm if another rank has some
    for (size_t i = 6 * 17; i < 7 * 17; ++i) data.loss_mask[i] = 1;
    write_token_file(bad.path("mask.h5"), data);
    train_tiny(bad.path("2 ranks"), bad.path("mask.h5"), {"--training.local_batch_size=2"}, 2);
    train_tiny(bad.path("1 rank"), bad.path("mask.h5"));
    const auto two = read_metrics(bad.path("2 ranks")).losses(),
               one = read_metrics(bad.path("1 rank")).losses();
    REQUIRE(two.size() == 6);
    for (size_t i = 0; i < 6; ++i) CHECK(relatively_close(two[i], one[i], 1e-5));
    // validation without any label
    write_token_file(bad.path("none.h5"),
                     {.tokens = learnable_tokens(34), .loss_mask = std::vector<uint8_t>(34, 0)});
    const Outcome validated = run_coeus(
        tiny_run(bad.out(), bad.good(),
                 {"--validation.enable", "--validation.dataset_path=" + bad.path("none.h5").string()}));
    INFO(validated.output);
    CHECK(validated.exit_code == 2);
    CHECK_THAT(validated.output, Contains("validation: no token of its 2 samples is a label"));
}

TEST_CASE("A mesh or a batch that does not fit the ranks") {
    const BadInput bad;
    bad.check(bad.good(), {"--parallelism.data_parallel_shard_degree=3"},
              "the degrees of [parallelism] (dp_shard 3) need 3 ranks, but 2 were started: start 3; with 2 "
              "ranks set parallelism.data_parallel_shard_degree = 2 (or -1: all that are left over)",
              2);
    bad.check(bad.good(), {"--parallelism.data_parallel_replicate_degree=2"},
              "parallelism.data_parallel_replicate_degree = 2: 1 rank is not a multiple of 2; start 2 ranks");
    bad.check(bad.good(), {"--training.global_batch_size=12"},
              "training.global_batch_size = 12: must be a multiple of training.local_batch_size times the "
              "data-parallel degree (4 x 2 = 8); the nearest valid value is 16",
              2);
    bad.check(bad.good(), {"--training.seq_len=0"},
              "command line: training.seq_len = 0: must be at least 1; the nearest valid value is 1");
    bad.check(bad.good(), {"--model.max_seq_len=15"},
              "training.seq_len = 16: llama3 debugmodel allows at most 15; reduce it, or increase "
              "model.max_seq_len");
    bad.check(bad.good(), {"--model.n_heads=5"},
              "model.n_heads = 5: must divide model.dim = 32 (nearest: 4 or 8)");
    bad.check(bad.good(), {"--log.ranks=0,2"},
              "log.ranks = 2: this run has no such rank; its highest rank is 1", 2);
    bad.check(bad.good(), {"--validation.enable", "--validation.seq_len=8"},
              "validation.seq_len = 8: must be training.seq_len = 16 if every 100th sequence of the training "
              "data is held out; to change it, set validation.dataset_path");
}

TEST_CASE("A folder that cannot be written to") {
    const BadInput bad;
    // the cases also fail for root: below a file, and where the kernel does not allow folders
    bad.check(bad.good(), {"--job.dump_folder=/proc/coeus"},
              "job.dump_folder: cannot create the folder /proc/coeus: ", 2);
    for (const fs::path& folder : {bad.good() / "out", bad.good()})
        bad.check(bad.good(), {"--job.dump_folder=" + folder.string()},
                  fmt::format("job.dump_folder = \"{}\": {} is a file; choose a folder", folder.string(),
                              bad.good().string()),
                  2);
    // the folder exists, but not its files
    fs::create_directories(bad.out() / "metrics.jsonl");
    bad.check(bad.good(), {},
              bad.path("out/metrics.jsonl").string() + " cannot be read: Is a directory; it was not changed",
              2);
    fs::remove(bad.out() / "metrics.jsonl");
    fs::create_directories(bad.out() / "goodput.jsonl");
    bad.check(bad.good(), {}, "cannot write " + bad.path("out/goodput.jsonl").string() + ": Is a directory",
              2);
}

TEST_CASE("A resumed run with another seed") {
    const BadInput bad;
    train_tiny(bad.out(), bad.good(), {"--checkpoint.enable", steps(2), "--debug.seed=5"});
    bad.check(
        bad.good(), {"--checkpoint.enable"},
        "debug.seed = 0: the checkpoint " + (bad.out() / checkpoint_of(2)).string() +
            " was made with 5; the data order would change. Set it to 5, or start in another job.dump_folder",
        2);
    CHECK(fs::exists(bad.out() / checkpoint_of(2)));
}

TEST_CASE("A loss that is not finite ends the run before the optimizer steps") {
    const BadInput bad;
    const Arguments more = {"--optimizer.lr=1e30", "--lr_scheduler.warmup_steps=0",
                            "--training.max_norm=inf"};
    SECTION("without checkpoints") {
        const Outcome run = run_coeus(tiny_run(bad.out(), bad.good(), more), 2);
        INFO(run.output);
        CHECK(run.exit_code == 4);
        CHECK(count_of(" - error - step 2: the loss is ", run.output) == 1);
        CHECK_THAT(run.output,
                   Contains("the gradient norm is ") &&
                       Contains("; the optimizer step was not taken. There is no "
                                "checkpoint to go back to. Usual remedies: a lower optimizer.lr"));
        CHECK(read_metrics(bad.out()).steps.size() == 1);
    }
    SECTION("with checkpoints") {
        const Arguments saving = more + Arguments{"--checkpoint.enable", "--checkpoint.interval=1"};
        const Outcome run = run_coeus(tiny_run(bad.out(), bad.good(), saving));
        INFO(run.output);
        CHECK(run.exit_code == 4);
        CHECK_THAT(run.output,
                   Contains("The last good checkpoint is " + (bad.out() / checkpoint_of(1)).string()));
        CHECK_FALSE(fs::exists(bad.out() / checkpoint_of(2)));
        const std::string state = read_file(bad.out() / checkpoint_of(1));
        CHECK(run_coeus(tiny_run(bad.out(), bad.good(), saving)).exit_code == 4);
        CHECK(read_file(bad.out() / checkpoint_of(1)) == state);
    }
}

TEST_CASE("Start files that cannot be read") {
    const BadInput bad;
    bad.check(bad.good(), {"--checkpoint.initial_load_path=" + bad.path("nowhere").string()},
              "checkpoint.initial_load_path = \"" + bad.path("nowhere").string() +
                  "\": this file or folder does not exist");
    write_token_file(bad.path("foreign.h5"), {.tokens = {1, 2}});
    bad.check(bad.good(), {"--checkpoint.initial_load_path=" + bad.path("foreign.h5").string()},
              bad.path("foreign.h5").string() + " is an HDF5 file, but not a checkpoint of Coeus");
    bad.check(bad.good(),
              {"--checkpoint.initial_load_path=" + bad.path("foreign.h5").string(),
               "--checkpoint.initial_load_in_hf"},
              "checkpoint.initial_load_path = \"" + bad.path("foreign.h5").string() +
                  "\": is not a Hugging Face folder (one with config.json); set "
                  "checkpoint.initial_load_in_hf = false");
}

TEST_CASE("Hugging Face folders that a run cannot start from") {
    const fs::path model = golden("models/llama2_mha");
    if (model.empty()) return;
    const BadInput bad;
    bad.check(bad.good(), {"--checkpoint.initial_load_path=" + model.string()},
              "checkpoint.initial_load_path = \"" + model.string() +
                  "\": is a Hugging Face folder (one with config.json); set "
                  "checkpoint.initial_load_in_hf = true");
    bad.check(bad.good(), {"--checkpoint.initial_load_in_hf", "--model.hf_assets_path=" + model.string()},
              model.string() +
                  " is of another model: model.embed_tokens.weight is [259, 64] in the file, [64, 32] "
                  "in this model");
    bad.check(bad.good(), {"--model.flavor=hf", "--model.hf_assets_path=" + bad.path("nowhere").string()},
              bad.path("nowhere/config.json").string() + ": this file does not exist");
    fs::create_directory(bad.path("hf"));
    fs::copy_file(model / "config.json", bad.path("hf/config.json"));
    std::ofstream(bad.path("hf/model.safetensors"), std::ios::binary)
        << read_file(model / "model.safetensors").substr(0, 5000);
    const Arguments hf = {"--checkpoint.initial_load_in_hf",
                          "--model.hf_assets_path=" + bad.path("hf").string()};
    bad.check(bad.good(), hf,
              bad.path("hf/model.safetensors").string() + " is truncated: tensor 'lm_head.weight'", 2);
}

TEST_CASE("Files that are missing on one node only end all ranks") {
    const TemporaryFolder folder;
    fs::create_directories(folder / "a");
    fs::create_directories(folder / "b");
    write_token_file(folder / "a/tokens.h5", {.tokens = learnable_tokens(40 * 17)});
    // each rank has its own folder (mpirun of Open MPI 5.0.7 crashes if it is given two programs)
    write_file(folder / "coeus",
               "#!/bin/sh\ncase ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} in 0) cd a ;; *) cd b ;; esac\n"
               "exec " +
                   paths::program() + " \"$@\"\n");
    fs::permissions(folder / "coeus", fs::perms::owner_all);
    const auto run = [&](const Arguments& arguments) {
        std::string coeus = "./coeus";
        for (const std::string& word : arguments) coeus += " '" + word + "'";
        return run_shell(
            fmt::format("cd {} && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                        "OMPI_MCA_mpi_yield_when_idle=1 {} -n 2 {}",
                        folder.path().string(), paths::mpirun(), coeus));
    };
    const Arguments tiny = tiny_run(folder / "out", "tokens.h5");
    const Outcome data = run(tiny);
    INFO(data.output);
    CHECK(data.exit_code == 2);
    CHECK(count_of(" - error - rank 1: tokens.h5", data.output) == 1);
    CHECK(count_of(" - error - ", data.output) == 1);
    // only rank 0 reads the deck
    fs::copy(folder / "a/tokens.h5", folder / "b/tokens.h5");
    write_file(folder / "a/deck.toml", "[debug]\nseed = 1\n");
    const Outcome deck = run(tiny + Arguments{"deck.toml"});
    INFO(deck.output);
    CHECK(deck.exit_code == 0);
    CHECK_THAT(read_file(folder / "out/deck.toml"), Contains("seed = 1"));
}
