// SPDX-License-Identifier: Apache-2.0
// Dry runs for devices that this machine does not have: each advice that they print is followed, and then the
// run fits.
#include "coeus/train/dry_run.hpp"

#include "coeus/base/error.hpp"
#include "coeus/data/bpe_training.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/file/host_error.hpp"
#include "coeus/hdf5/hdf5.hpp"
#include "coeus/session/plan_findings.hpp"
#include "coeus/train/preflight.hpp"
#include "support/advice.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/part.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <filesystem>
#include <regex>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using Catch::EndsWith;
using Catch::StartsWith;

namespace {

const std::string decks = paths::source() + "/inputs", base_decks = decks + "/base";

// The only line with this text, or "" if there is none.
std::string line_with(const std::vector<std::string>& lines, const std::string& text) {
    const auto holds = [&](const std::string& line) { return line.find(text) != std::string::npos; };
    CHECK(std::ranges::count_if(lines, holds) <= 1);
    const auto found = std::ranges::find_if(lines, holds);
    return found == lines.end() ? "" : *found;
}

std::vector<std::string> lines_of(const Words& words, int ranks) {
    std::vector<std::string> texts;
    for (const Finding& line : preflight(parse_command_line(words), ranks)) texts.push_back(line.line());
    return texts;
}

void write_tokens(const std::string& path, uint16_t largest, int64_t count) {
    std::vector<uint16_t> tokens(size_t(count), uint16_t(1));
    tokens.back() = largest;
    hdf5::File file = hdf5::File::create(path);
    file.create_dataset("tokens", hdf5::Type::u16, {count}).write(std::span<const uint16_t>(tokens));
    file.close();
}

Words followed(Words words, const Advice& advice) {
    words.insert(words.end(), advice.settings.begin(), advice.settings.end());
    return words;
}

std::string refusal(const Words& words) {
    try {
        parse_command_line(words);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("dry run: every advice for 1 to 128 H100 is followed, and the run fits") {
    int advised = 0, hints = 0, left_out = 0;
    for (const auto& entry : std::filesystem::directory_iterator(base_decks)) {
        Part part(entry.path().filename().string(), 1, {.check_all = 1, .short_list = 2});
        for (int started = 1; started <= 128; started *= 2) {
            if (!part.takes_next()) {
                ++left_out;
                continue;
            }
            const Words words = {entry.path().string(), "--dry_run", "--gpu", "h100"};
            int ranks = started;
            std::vector<std::string> lines;
            try {
                lines = lines_of(words, ranks);
            } catch (const ConfigError& error) {
                const std::string text = error.what();
                CAPTURE(text);
                const size_t start = text.rfind("start ");
                REQUIRE(start != std::string::npos);
                ranks = std::stoi(text.substr(start + 6));
                lines = lines_of(words, ranks);
            }
            CAPTURE(entry.path().string(), ranks);
            CHECK(line_with(lines, "Planned for an NVIDIA H100 with 79.6 GiB") != "");
            const std::string notice = line_with(lines, "does not fit into the memory of an NVIDIA H100"),
                              hint = line_with(lines, "Hint: ");
            if (notice.empty() && hint.empty()) continue;
            const Advice advice(notice + hint);
            CAPTURE(notice, hint);
            REQUIRE(!advice.settings.empty());
            const std::vector<std::string> then =
                lines_of(followed(words, advice), advice.ranks > 0 ? advice.ranks : ranks);
            CHECK(line_with(then, "does not fit") == "");
            (notice.empty() ? hints : advised) += 1;
        }
    }
    CHECK(advised >= (left_out ? 1 : 10));
    CHECK(hints >= (left_out ? 1 : 5));
}

TEST_CASE("dry run: a hint names a memory budget if nothing coarser fits") {
    const Words full = {base_decks + "/llama3_70b.toml", "--dry_run", "--gpu=h100"};
    const std::vector<std::string> lines = lines_of(full, 64);
    CHECK(line_with(lines, "Activation checkpointing recomputes 80 of 80 blocks") != "");
    const std::string hint = line_with(lines, "Hint: the run uses ");
    CHECK_THAT(hint, Contains("With activation_checkpoint.mode = \"memory_budget\", "
                              "activation_checkpoint.memory_budget = 0.2 it recomputes less and needs "));
    const std::vector<std::string> then = lines_of(followed(full, Advice(hint)), 64);
    CHECK(line_with(then, "Activation checkpointing recomputes 56 of 80 blocks") != "");
    CHECK(line_with(then, "Hint: the run uses ") == "");
    // a budget that is given may be too small
    Words small = full;
    for (const char* word :
         {"--activation_checkpoint.mode=memory_budget", "--activation_checkpoint.memory_budget=0.05"})
        small.emplace_back(word);
    CHECK_THAT(line_with(lines_of(small, 64), "Hint: the run uses "),
               Contains("activation_checkpoint.memory_budget = 0.2 it recomputes less"));
}

TEST_CASE("dry run: decks with experts on several ranks fit the H100s that they name") {
    struct Planned {
        const char* deck;
        int ranks;
        const char *mesh, *memory, *step = nullptr;  // by the roofline: 14.5 and 14.6 s
    };
    for (const auto& [deck, ranks, mesh, memory, step] :
         {Planned{"deepseek_v3_16b", 8, "dp_shard 8 (experts: ep 8)", "72.4 GiB of 79.6 GiB",
                  "32 local batches: 144"},
          Planned{"qwen3_30b_a3b", 16, "dp_shard 16 (experts: efsdp 2 x ep 8)", "64.0 GiB of 79.6 GiB",
                  "32 local batches: 146"},
          Planned{"gpt_oss_120b", 64, "dp_shard 64 (experts: ep 64)", "63.4 GiB of 79.6 GiB"},
          Planned{"deepseek_v3_671b", 2048, "pp 16 x dp_shard 32 x cp 4 (experts: efsdp 2 x ep 64)",
                  "pipeline ranks: 32.3 GiB, 69.8 GiB, 70.4 GiB, 70.4 GiB"}}) {
        CAPTURE(deck);
        const std::vector<std::string> lines =
            lines_of({fmt::format("{}/{}.toml", decks, deck), "--dry_run", "--gpu=h100"}, ranks);
        CHECK(line_with(lines, fmt::format("Mesh: {} ranks: {}", ranks, mesh)) != "");
        CHECK(line_with(lines, memory) != "");
        CHECK(line_with(lines, "does not fit") == "");
        CHECK((!step || line_with(lines, step) != ""));
    }
}

TEST_CASE("dry run: devices are given by name or size, and wrong ones are refused") {
    const std::string deck = base_decks + "/llama3_8b.toml";
    const auto lines = [&](const Words& more) {
        Words words = {deck, "--dry_run"};
        words.insert(words.end(), more.begin(), more.end());
        return lines_of(words, 8);
    };
    CHECK(line_with(lines({"--gpu=h200"}), "Planned for an NVIDIA H200 with 14") != "");
    CHECK(line_with(lines({"--memory=30GiB", "--device=cpu"}), "Planned for a rank on CPUs with 30.0 GiB") !=
          "");
    CHECK(line_with(lines({"--memory=30GiB", "--device=cuda"}), "Planned for a GPU with 30.0 GiB") != "");
    // a size takes precedence over a name
    CHECK(line_with(lines({"--gpu=h200", "--memory=30GiB"}), "Planned for a GPU with 30.0 GiB") != "");
    REQUIRE_THROWS_WITH(lines({"--gpu=h1000"}),
                        Contains("--gpu=h1000: unknown GPU; did you mean h100? Known are ") &&
                            Contains("a100-40gb") && Contains("--memory 80GiB"));
    CHECK(refusal({deck, "--dry_run", "--memory=80"}) ==
          "command line: memory = 80: is 80 B; must be at least 1 MiB, such as 80GiB");
    CHECK(refusal({deck, "--dry_run", "--memory=1023KiB"}) ==
          "command line: memory = 1023KiB: is 1023 KiB; must be at least 1 MiB, such as 80GiB");
    CHECK(refusal({deck, "--dry_run", "--memory=1MiB"}).empty());
    CHECK(refusal({deck, "--dry_run", "--memory=80 apples"}) ==
          "command line: memory = 80 apples: must be a size, such as 80GiB");
    CHECK_THAT(refusal({deck, "--gpu=h100"}), Contains("--gpu needs --dry_run"));
    CHECK_THAT(refusal({deck, "--memory=80GiB"}), Contains("--memory needs --dry_run"));
    CHECK_THAT(refusal({deck, "--strict"}), Contains("--strict needs --dry_run"));
    CHECK_THAT(refusal({deck, "--dry_run", "--gpu=h100", "--device=cpu"}),
               Contains("--gpu=h100 plans for a GPU, but device = \"cpu\""));
}

TEST_CASE("dry run: the first line says how long the run takes") {
    const Words deck = {base_decks + "/llama3_8b.toml", "--dry_run", "--gpu=h100", "--training.steps=1000"};
    const auto first = [&](const Words& more, int ranks) {
        Words words = deck;
        words.insert(words.end(), more.begin(), more.end());
        return lines_of(words, ranks).front();
    };
    const std::string saving = first({"--checkpoint.enable", "--checkpoint.interval=300"}, 16);
    CAPTURE(saving);
    static const std::regex form(
        R"(Run: 1,000 steps x ([\d.]+) ms = .+, ([\d.]+) GPU-hours by the roofline, (\S+) (million|billion) tokens; )"
        R"(4 checkpoints of (\S+) GiB = (\S+) GiB)");
    std::smatch found;
    REQUIRE(std::regex_match(saving, found, form));
    const auto number = [&](int i) { return std::stod(found[i]); };
    CHECK(number(2) == Approx(number(1) / 1000 * 1000 * 16 / 3600).epsilon(0.01));
    CHECK(number(6) == Approx(4 * number(5)).epsilon(0.01));
    CHECK_THAT(
        first({"--checkpoint.enable", "--checkpoint.interval=100", "--checkpoint.keep_latest_k=2"}, 16),
        Contains("; 10 checkpoints of ") && Contains(", of which the newest 2 are kept = "));
    CHECK_THAT(first({"--checkpoint.enable=false"}, 16), !Contains("checkpoint"));
    const Words first_too = {"--checkpoint.enable", "--checkpoint.enable_first_step_checkpoint"};
    CHECK_THAT(first(first_too, 16), Contains("; 3 checkpoints of "));
    // the first step is the last
    CHECK_THAT(
        first({"--training.steps=1", "--checkpoint.enable", "--checkpoint.enable_first_step_checkpoint"}, 16),
        Contains("; 1 checkpoint of "));
    // no rates are known: no time
    CHECK_THAT(
        lines_of({base_decks + "/llama3_8b.toml", "--dry_run", "--memory=1TiB", "--training.steps=1"}, 1)[0],
        Contains("Run: 1 step, "));
}

TEST_CASE("dry run: plans are as in the tables of doc/memory.md") {
    const std::string document = read_file(paths::source() + "/doc/memory.md");
    const auto has = [&](const std::string& row) {
        CAPTURE(row);
        CHECK(document.find("\n" + row) != std::string::npos);
    };
    // the size in the line of the plan that begins with this name
    const auto size = [](const std::string& plan, const std::string& name) {
        const size_t line = plan.find("\n  " + name + " ");
        REQUIRE(line != std::string::npos);
        const size_t begin = plan.find_first_of("0123456789", line);
        return plan.substr(begin, plan.find("iB", begin) + 2 - begin);
    };
    const auto plan_of = [](Words words, const Words& more) {
        words.insert(words.end(), more.begin(), more.end());
        return line_with(lines_of(words, 1), "memory plan per rank") + "\n";
    };
    const std::string mode = "--activation_checkpoint.mode=",
                      budget = "--activation_checkpoint.memory_budget=",
                      option = "--activation_checkpoint.selective_ac_option=";
    const Words debug = {decks + "/llama3_debug.toml", "--dry_run", "--device=cpu", "--validation.no_enable",
                         "--training.threads=1"};
    for (const auto& [row, more] : std::vector<std::pair<std::string, Words>>{
             {"| `none` ", {mode + "none"}},
             {"| `selective`, `\"op\"` ", {mode + "selective", option + "op"}},
             {"| `memory_budget`, 0.75: operations of 5 blocks ", {mode + "memory_budget", budget + "0.75"}},
             {"| `memory_budget`, 0.5: 3 blocks, operations of 2 others ",
              {mode + "memory_budget", budget + "0.5"}},
             {"| `selective`, `\"2\"`: 3 blocks ", {mode + "selective", option + "2"}},
             {"| `memory_budget`, 0.25: 5 blocks ", {mode + "memory_budget", budget + "0.25"}},
             {"| `full` ", {mode + "full"}}}) {
        const std::string plan = plan_of(debug, more);
        has(fmt::format("{}| {} | ", row, size(plan, "activations")));
        // other processors have other products
        if (size(plan, "library buffers") == "12.0 MiB")
            has(fmt::format("{}| {} | {} |", row, size(plan, "activations"), size(plan, "total")));
    }
    const Words large = {base_decks + "/llama3_8b.toml", "--dry_run", "--device=cuda", "--memory=1TiB",
                         mode + "full"};
    const std::string without = plan_of(large, {}), with = plan_of(large, {"--training.enable_cpu_offload"});
    has(fmt::format("| without | {} | {} |", size(without, "total"), size(without, "on the host")));
    const auto gib = [&](const std::string& name) {
        const std::string text = size(with, name);
        CHECK(text.ends_with(" GiB"));
        return std::stod(text);
    };
    has(fmt::format("| with | {} | {}: moments {:.1f}, weights {:.1f}, inputs of blocks {:.1f} |",
                    size(with, "total"), size(with, "on the host"), gib("  optimizer moments"),
                    gib("  weights"), gib("  activations")));
}

TEST_CASE("dry run: plans and times of gradients in bfloat16 are as in doc/memory.md") {
    const std::string document = read_file(paths::source() + "/doc/memory.md");
    const auto has = [&](const std::string& text) {
        CAPTURE(text);
        CHECK(document.find(text) != std::string::npos);
    };
    // what follows a text in the output, up to another one
    const auto found = [](const std::string& output, const std::string& before, const std::string& after) {
        const size_t at = output.find(before);
        REQUIRE(at != std::string::npos);
        const size_t begin = output.find_first_not_of(' ', at + before.size());
        return output.substr(begin, output.find(after, begin) - begin);
    };
    const auto output = [](const char* type, const char* gpu, int ranks, Words more) {
        more.insert(more.begin(), {base_decks + "/llama3_8b.toml", "--dry_run", std::string("--gpu=") + gpu,
                                   std::string("--training.gradient_dtype=") + type});
        std::string all;
        for (const std::string& line : lines_of(more, ranks)) all += line + "\n";
        return all;
    };
    const std::string p = "--parallelism.";
    const Words replicas = {p + "data_parallel_replicate_degree=8", p + "data_parallel_shard_degree=1"},
                stages = {p + "pipeline_parallel_degree=2", "--training.local_batch_size=8"};
    struct Row {
        const char *mesh, *term;
        int ranks;
        Words more;
    };
    for (const auto& [mesh, term, ranks, more] :
         {Row{"1 rank", "gradients", 1, {}}, Row{"8 replicas", "gradients", 8, replicas},
          Row{"2 stages of 4 shards", "unreduced gradients", 8, stages},
          Row{"8 shards", "unreduced gradients", 8, {}}}) {
        const std::string exact = output("float32", "h200", ranks, more),
                          rounded = output("bfloat16", "h200", ranks, more);
        const std::string name = std::string("\n  ") + term + " ";
        const auto sums = [](const std::string& text) {
            return text.find("gradients while summed") == std::string::npos;
        };
        CHECK(sums(exact));
        CHECK(sums(rounded) == (ranks == 1));
        const std::string size = found(rounded, name, "\n");
        const std::string buffer = sums(rounded) ? "none" : found(rounded, "gradients while summed", "\n");
        has(fmt::format("\n| {} | {} | {} | {} | {} |", mesh, term, found(exact, name, "\n"), size, buffer));
    }
    const auto time = [&](const char* type, const char* gpu, int ranks) {
        return found(output(type, gpu, ranks, {}), "step of 1 local batch:", ",");
    };
    has(fmt::format("{} for a step on 8 H100 instead of {}", time("bfloat16", "h100", 8),
                    time("float32", "h100", 8)));
    has(fmt::format("a step takes {} instead of {}", time("bfloat16", "h200", 1),
                    time("float32", "h200", 1)));
}

TEST_CASE("dry run: a notice tells why two units are not gathered ahead") {
    const auto notice = [](const Words& more, int ranks) {
        Words words = {decks + "/llama3_debug.toml", "--dry_run", "--parallelism.fsdp_prefetch=2"};
        words.insert(words.end(), more.begin(), more.end());
        return line_with(lines_of(words, ranks), "parallelism.fsdp_prefetch has no effect");
    };
    CHECK_THAT(notice({}, 1), Contains("only where parameters are divided"));
    CHECK_THAT(notice({"--parallelism.fsdp_reshard_after_forward=never"}, 2),
               Contains("if gathered weights are kept (fsdp_reshard_after_forward)"));
    CHECK(notice({}, 2).empty());
}

TEST_CASE("dry run: gradients are summed once a step if the deck says so, and their memory is planned") {
    const auto lines = [](const Words& more, int ranks) {
        Words words = {decks + "/llama3_debug.toml", "--dry_run", "--training.local_batch_size=1",
                       "--training.global_batch_size=8"};
        words.insert(words.end(), more.begin(), more.end());
        return lines_of(words, ranks);
    };
    const std::string step = "--parallelism.fsdp_sum_gradients=step",
                      local_batch = "--parallelism.fsdp_sum_gradients=local_batch";
    const auto gradients = [&](const Words& more) {
        return line_with(lines(more, 4), "unreduced gradients");
    };
    CHECK(gradients({}) == gradients({local_batch}));
    CHECK(gradients({step}) != gradients({}));
    const std::string stages = "--parallelism.pipeline_parallel_degree=2",
                      whole = "--training.local_batch_size=2";
    CHECK(gradients({stages, whole}) == gradients({stages, whole, step}));
    CHECK(gradients({stages, whole}) != gradients({stages, whole, local_batch}));
    const auto notice = [&](const Words& more, int ranks) {
        return line_with(lines(more, ranks), "parallelism.fsdp_sum_gradients has no effect");
    };
    CHECK_THAT(notice({step}, 1), Contains("on this mesh: gradients of weights that no ranks divide"));
    CHECK_THAT(notice({step, "--training.global_batch_size=4"}, 4), Contains("on a step of one local batch"));
    CHECK(notice({step}, 4).empty());
    CHECK(notice({}, 1).empty());
}

TEST_CASE("dry run: a line tells which optimizers update how many parameters, if there are several") {
    const auto line = [](const Words& more) {
        Words words = {decks + "/llama3_debug.toml", "--dry_run"};
        words.insert(words.end(), more.begin(), more.end());
        return line_with(lines_of(words, 1), "Optimizer: ");
    };
    CHECK(line({}).empty());
    CHECK(line({"--optimizer.name=Adam"}).empty());
    CHECK_THAT(line({"--optimizer.name=Muon"}), Contains("AdamW for ") && Contains("Muon for "));
}

TEST_CASE("dry run: a line tells where chunks begin if documents share sequences that have several") {
    const auto line = [](const Words& more) {
        Words words = {decks + "/llama4_debug.toml", "--dry_run", "--model.attention_chunk=64"};
        words.insert(words.end(), more.begin(), more.end());
        return line_with(lines_of(words, 1), "Documents: chunks of ");
    };
    CHECK_THAT(line({"--training.seq_len=128", "--training.document_mask"}),
               Contains("chunks of 64 tokens are counted from the first token of a sequence, as in "
                        "transformers and torchtitan"));
    CHECK(line({"--training.seq_len=128"}).empty());
    CHECK(line({"--training.seq_len=64", "--training.document_mask"}).empty());
    CHECK(line({"--training.seq_len=128", "--training.document_mask", "--model.flavor=debugmodel",
                "--model.attention_chunk=0"})
              .empty());
}

TEST_CASE("dry run: exit code 2 if a run would be refused anywhere, with --strict also if only here") {
    const TemporaryFolder folder;
    const std::string data = folder / "tokens.h5";
    write_tokens(data, 1, 100);
    const Words fits = {"--dry_run", "--model.flavor=debugmodel", "--training.dataset_path=" + data,
                        "--training.seq_len=16", "--job.dump_folder=" + (folder / "run").string()};
    const auto code = [&](const Words& more) {
        Words words = fits;
        words.insert(words.end(), more.begin(), more.end());
        return dry_run(parse_command_line(words), 1);
    };
    const std::string enough = "--memory=8GiB";
    CHECK(code({enough, "--strict"}) == 0);
    CHECK(code({"--memory=8MiB"}) == 2);
    CHECK(code({enough, "--loss.loss_fn=MSELoss"}) == 2);
    // files that are only missing here
    for (const char* absent : {"--training.dataset_path=/absent", "--checkpoint.initial_load_path=/absent",
                               "--training.dataset_path="}) {
        CAPTURE(absent);
        CHECK(code({enough, absent}) == 0);
        CHECK(code({enough, absent, "--strict"}) == 2);
    }
    // 8B with its moments has more than 80 GB on one GPU
    CHECK(code({"--gpu=h100", "--model.flavor=8B"}) == 2);
}

TEST_CASE("dry run: what a run refuses before its first step is refused") {
    const TemporaryFolder folder;
    const std::string data = folder / "tokens.h5";
    write_tokens(data, 1, 100);
    const auto lines = [&](const Words& more, Finding::Severity verdict) {
        Words words = {"--dry_run",
                       "--model.flavor=debugmodel",
                       "--training.dataset_path=" + data,
                       "--training.seq_len=16",
                       "--memory=8GiB",
                       "--job.dump_folder=" + (folder / "run").string()};
        words.insert(words.end(), more.begin(), more.end());
        std::string text;
        for (const Finding& line : preflight(parse_command_line(words), 1))
            if (line.severity == verdict) text += line.text + "\n";
        return text;
    };
    const auto refused = [&](const Words& more) { return lines(more, Finding::Severity::refusal); };
    const auto here = [&](const Words& more) { return lines(more, Finding::Severity::refusal_here); };
    CHECK(refused({}) == "");
    CHECK(here({}) == "");

    CHECK_THAT(here({"--checkpoint.enable", "--checkpoint.load_step=7"}),
               Contains("checkpoint.load_step = 7: there is no checkpoint of step 7 in ") &&
                   Contains("existing steps: none"));
    // weights that are here, but are none
    const std::string empty = folder / "empty";
    std::filesystem::create_directory(empty);
    CHECK_THAT(refused({"--checkpoint.initial_load_path=" + empty}),
               Contains(empty) && Contains("real run refuses"));
    CHECK_THAT(refused({"--checkpoint.initial_load_path=" + empty, "--checkpoint.initial_load_in_hf"}),
               Contains("is not a Hugging Face folder"));
    CHECK_THAT(
        refused({"--checkpoint.initial_load_path=" + empty, "--checkpoint.no_initial_load_model_only"}),
        Contains("is a folder; with checkpoint.initial_load_model_only = false give one of its files"));
    CHECK_THAT(here({"--checkpoint.initial_load_path=" + empty + "/gone"}), Contains("does not exist here"));
    // folders that cannot be made
    write_file(folder / "file", "");
    const std::string below = folder / "file/run";
    CHECK_THAT(here({"--job.dump_folder=" + below}), Contains("job.dump_folder = \"" + below + "\": ") &&
                                                         Contains("/file is a file; choose a folder"));
    CHECK_THAT(here({"--checkpoint.enable", "--checkpoint.folder=" + below}),
               Contains("checkpoint.folder = "));
    CHECK_FALSE(std::filesystem::exists(folder / "run"));
}

TEST_CASE("dry run: a text that is too short for one window is refused") {
    const TemporaryFolder folder;
    write_file(folder / "words.txt", "a few words to train a tokenizer, a few words");
    train_tokenizer(Corpus({folder / "words.txt"}), 260, folder / "tok", 1);
    write_file(folder / "short.txt", "hello\n");
    const auto refused = [&](const char* text, const char* length) {
        std::string all;
        for (const Finding& line :
             preflight(parse_command_line({"--dry_run", "--model.flavor=debugmodel", "--memory=8GiB",
                                           "--training.dataset_path=" + (folder / text).string(),
                                           "--model.tokenizer_path=" + (folder / "tok").string(),
                                           std::string("--training.seq_len=") + length}),
                       1))
            if (line.severity == Finding::Severity::refusal) all += line.text + "\n";
        return all;
    };
    CHECK_THAT(refused("short.txt", "64"),
               Contains("short.txt: ") && Contains("tokens are fewer than one window of seq_len + 1 = 65") &&
                   Contains("(a real run refuses this)"));
    CHECK(refused("short.txt", "2") == "");
}

TEST_CASE("dry run: bad lines of a text are left out as a run leaves them out") {
    const TemporaryFolder folder;
    write_file(folder / "words.txt", "a few words to train a tokenizer, a few words");
    train_tokenizer(Corpus({folder / "words.txt"}), 260, folder / "tok", 1);
    write_file(folder / "a.jsonl", "{\"text\": \"a few words, and a few words more\"}\n{\"text\": null}\n");
    const auto refused = [&](const Words& more) {
        Words words = {"--dry_run", "--model.flavor=debugmodel", "--memory=8GiB", "--training.seq_len=2",
                       "--model.tokenizer_path=" + (folder / "tok").string()};
        words.insert(words.end(), more.begin(), more.end());
        std::string all;
        for (const Finding& line : preflight(parse_command_line(words), 1))
            if (line.severity == Finding::Severity::refusal) all += line.text + "\n";
        return all;
    };
    const std::string data = "--training.dataset_path=" + (folder / "a.jsonl").string();
    CHECK_THAT(refused({data}), Contains("line 2: text must be a string, is null"));
    CHECK(refused({data, "--training.bad_lines=skip"}) == "");
    Words validation = {"--training.dataset_path=" + (folder / "words.txt").string(), "--validation.enable",
                        "--validation.seq_len=2",
                        "--validation.dataset_path=" + (folder / "a.jsonl").string()};
    CHECK_THAT(refused(validation), Contains("line 2: text must be a string, is null"));
    validation.push_back("--validation.bad_lines=skip");
    CHECK(refused(validation) == "");
}

TEST_CASE("dry run: data that a run would refuse is refused") {
    const TemporaryFolder folder;
    const std::string data = folder / "tokens.h5";
    const auto refusals = [&](const Words& more) {
        Words words = {"--dry_run", "--model.flavor=debugmodel", "--training.dataset_path=" + data,
                       "--training.seq_len=16", "--memory=8GiB"};
        words.insert(words.end(), more.begin(), more.end());
        std::string text;
        for (const Finding& line : preflight(parse_command_line(words), 1)) {
            if (line.severity != Finding::Severity::refusal) continue;
            CHECK(line.topic == Finding::Topic::files);
            text += line.text + "\n";
        }
        return text;
    };
    write_tokens(data, 2000, 100);
    CHECK(refusals({}) == "");
    CHECK(refusals({"--model.vocab_size=2000"}) ==
          data +
              ": token 2000 at position 99 is not in the model's vocabulary of 2000; model.vocab_size must "
              "be at least 2001 (a real run refuses this)\n");
    // validation on held-out data needs a window for itself
    write_tokens(data, 7, 20);
    CHECK(refusals({}) == "");
    CHECK_THAT(refusals({"--validation.enable"}), Contains("(a real run refuses this)"));
    write_tokens(data, 7, 10);
    CHECK_THAT(refusals({}), Contains(data) && Contains("(a real run refuses this)"));
    write_tokens(data, 7, 100);
    std::filesystem::resize_file(data, 1000);
    CHECK_THAT(refusals({}),
               Contains(data + " is truncated: 1,000 of ") && Contains("(a real run refuses this)"));
}

TEST_CASE("dry run: the verdict tells whether a rank fits, or that this is not known") {
    const auto count = [](const char* memory, Finding::Severity verdict, Finding::Topic topic) {
        Words words = {"--dry_run", "--model.flavor=debugmodel", "--device=cuda", "--training.dataset_path="};
        if (*memory) words.emplace_back(memory);
        const Findings found = preflight(parse_command_line(words), 1);
        const auto of_topic = std::ranges::count_if(found, [&](const Finding& finding) {
            return finding.severity == verdict && finding.topic == topic;
        });
        CHECK(of_topic == found.count(verdict));
        return of_topic;
    };
    using enum Finding::Severity;
    CHECK(count("--memory=1TiB", unknown, Finding::Topic::device) == 0);
    CHECK(count("--memory=1TiB", refusal, Finding::Topic::advice) == 0);
    CHECK(count("--memory=8MiB", refusal, Finding::Topic::advice) == 1);
    // without --memory and --gpu: the GPU of this host, if there is one
    CHECK(count("", unknown, Finding::Topic::device) == (visible_gpus() == 0 ? 1 : 0));
}

TEST_CASE("dry run: what fails only on this host is a notice, and with --strict a refusal") {
    const TemporaryFolder folder;
    const std::string text = folder / "a.txt", tokenizer = folder / "tok";
    write_file(text, "a few words to train a tokenizer, a few words");
    train_tokenizer(Corpus({text}), 260, tokenizer, 1);
    const Words words = {"--dry_run",
                         "--model.flavor=debugmodel",
                         "--training.seq_len=8",
                         "--memory=8GiB",
                         "--training.dataset_path=" + text,
                         "--model.tokenizer_path=" + tokenizer,
                         "--job.dump_folder=" + (folder / "run").string()};
    const EnvironmentVariable without_room("TMPDIR", (folder / "absent").string().c_str());
    std::string here;
    for (const Finding& line : preflight(parse_command_line(words), 1)) {
        CHECK(line.severity != Finding::Severity::refusal);
        if (line.severity == Finding::Severity::refusal_here) here += line.text + "\n";
    }
    CHECK_THAT(here, Contains("temp_directory_path") && EndsWith(" (on this host)\n"));
    CHECK(dry_run(parse_command_line(words), 1) == 0);
    Words strict = words;
    strict.emplace_back("--strict");
    CHECK(dry_run(parse_command_line(strict), 1) == 2);
    CHECK(is_of_this_host(PermissionError("tokens.h5 cannot be read: Permission denied")));
    CHECK_FALSE(is_of_this_host(ConfigError("tokens.h5 is truncated")));
}

TEST_CASE("dry run: it tells all of the plan, as info does") {
    const CommandLine deck =
        parse_command_line({"--dry_run", "--model.flavor=debugmodel", "--device=cuda", "--gpu=b200",
                            "--training.dataset_path=", "--model.converters=quantize.linear.float8",
                            "--parallelism.data_parallel_shard_degree=2"});
    std::vector<std::string> texts;
    for (const Finding& finding : preflight(deck, 2)) texts.push_back(finding.text);
    auto at = texts.begin();
    for (const Finding& finding : plan_findings(PlannedRun(deck, 2))) {
        INFO(finding.text);
        at = std::find(at, texts.end(), finding.text);
        REQUIRE(at != texts.end());
    }
}
