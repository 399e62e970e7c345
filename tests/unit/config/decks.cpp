// SPDX-License-Identifier: Apache-2.0
// Decks: stacking, places in messages, round trips, the decks of the repository and those of torchtitan.
#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/train/dry_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"
#include "unit/config/listed_options.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

using namespace coeus;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

const fs::path inputs = fs::path(test::paths::source()) / "inputs";

std::string error_of(const fs::path& deck) {
    try {
        parse_command_line({deck.string(), "--dry_run"});
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "no error";
}

// All decks in and below a folder, sorted.
std::vector<fs::path> decks_under(const fs::path& folder) {
    std::vector<fs::path> decks;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.path().extension() == ".toml") decks.push_back(entry.path());
    std::sort(decks.begin(), decks.end());
    return decks;
}

}  // namespace

TEST_CASE("precedence: command line, deck, included deck, default") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "base/deep/c.toml", "[training]\nsteps = 3\nseq_len = 33\nmax_norm = 3\n");
    test::write_file(folder / "base/b.toml",
                     "include = \"deep/c.toml\"\n[training]\nsteps = 2\nseq_len = 22\n");
    test::write_file(folder / "a.toml",
                     "include = \"base/b.toml\"\n[training]\nsteps = 1\ndataset_path = \"x\"\n");
    const std::string deck = (folder / "a.toml").string();
    const Config config = parse_command_line({deck, "--optimizer.lr=0.5"}).config;
    CHECK(config.training.steps == 1);
    CHECK(config.training.seq_len == 22);
    CHECK(config.training.max_norm == 3);
    CHECK(config.training.local_batch_size == 8);
    CHECK(config.optimizer.lr == 0.5);
    CHECK(parse_command_line({deck, "--training.steps=9"}).config.training.steps == 9);
}

TEST_CASE("a later included deck takes precedence over an earlier one") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "one.toml", "[training]\nsteps = 1\nseq_len = 11\n");
    test::write_file(folder / "two.toml", "include = \"one.toml\"\n[training]\nsteps = 2\n");
    test::write_file(folder / "deck.toml",
                     "include = [\"one.toml\", \"two.toml\"]\ntraining.dataset_path = [\"x\"]\n");
    const Config config = parse_command_line({(folder / "deck.toml").string()}).config;
    CHECK(config.training.steps == 2);
    CHECK(config.training.seq_len == 11);
}

TEST_CASE("a deck that includes itself is refused") {
    const test::TemporaryFolder folder;
    const std::string a = (folder / "a.toml").string(), b = (folder / "b.toml").string();
    test::write_file(a, "include = \"./a.toml\"\n");
    CHECK(error_of(a) == a + ": a deck cannot include itself: " + a + " includes " + a);
    test::write_file(a, "include = \"b.toml\"\n");
    test::write_file(b, "include = \"sub/../a.toml\"\n");
    CHECK(error_of(a) == b + ": a deck cannot include itself: " + a + " includes " + b + " includes " + a);
}

TEST_CASE("a deck cannot set the option that names the deck") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "a.toml", "include = \"b.toml\"\n");
    test::write_file(folder / "b.toml", "[job]\nconfig_file = \"c.toml\"\n");
    for (const char* name : {"a.toml", "b.toml"})
        CHECK_THROWS_WITH(parse_command_line({(folder / name).string(), "--dry_run"}),
                          (folder / "b.toml").string() +
                              ":2:1: job.config_file = \"c.toml\": can only be set on the command line; in a "
                              "deck, use include for other decks");
}

TEST_CASE("includes are limited to 16 levels and 256 decks, and must be files") {
    const test::TemporaryFolder folder;
    const auto deck = [&](int number) { return (folder / fmt::format("{}.toml", number)).string(); };
    const auto chain = [&](int levels) {
        for (int i = 1; i < levels; ++i)
            test::write_file(deck(i), fmt::format("include = \"{}.toml\"\n", i + 1));
        test::write_file(deck(levels), "");
        return error_of(deck(1));
    };
    CHECK(chain(16) == "no error");
    CHECK(chain(17) == deck(16) + ": includes " + deck(17) +
                           ": more than 16 levels of decks, each included by the one before it");
    // each includes the next one twice
    const auto tree = [&](int levels) {
        for (int i = 1; i < levels; ++i)
            test::write_file(deck(i), fmt::format("include = [\"{0}.toml\", \"{0}.toml\"]\n", i + 1));
        test::write_file(deck(levels), "");
        return error_of(deck(1));
    };
    CHECK(tree(8) == "no error");  // 255
    CHECK_THAT(tree(9),
               Contains(": more than 256 decks in all; a deck counts each time that it is included"));
    test::write_file(deck(1), "include = \"/dev/zero\"\n");
    CHECK_THAT(error_of(deck(1)),
               Contains("/dev/zero: cannot be read: it is a pipe or a device, not a file"));
}

TEST_CASE("mistakes in a deck name file, line and column") {
    const test::TemporaryFolder folder;
    const std::string deck = (folder / "deck.toml").string();
    const auto error = [&](const std::string& text) {
        test::write_file(deck, text);
        return error_of(deck);
    };
    CHECK(error("[training]\n  stepz = 3\n") ==
          deck + ":2:3: unknown option training.stepz; did you mean training.steps?");
    CHECK(error("steps = 3\n") == deck + ":1:1: unknown option steps; did you mean training.steps?");
    CHECK(error("[training]\nsteps = \"3\"\n") ==
          deck + ":2:1: training.steps = \"3\": must be a whole number");
    CHECK(error("[training]\nsteps = 1.5\n") == deck + ":2:1: training.steps = 1.5: must be a whole number");
    CHECK(error("[training]\nsteps = 1e3\n") == "no error");
    CHECK(error("[training]\nsteps = true\n") ==
          deck + ":2:1: training.steps = true: must be a whole number");
    CHECK(error("[training]\nshuffle = 1\n") == deck + ":2:1: training.shuffle = 1: must be true or false");
    CHECK(error("[optimizer]\nlr = \"1\"\n") == deck + ":2:1: optimizer.lr = \"1\": must be a number");
    CHECK(error("[job]\ndump_folder = 3\n") == deck + ":2:1: job.dump_folder = 3: must be text in quotes");
    CHECK_THAT(error("[training]\ndataset_path = 3\n"), Contains("must be a list of texts"));
    CHECK_THAT(error("[training]\ndataset_path = [3]\n"),
               Contains("dataset_path = [3]: must be a list of texts"));
    CHECK_THAT(error("[log]\nranks = [0, 1.5]\n"), Contains("must be whole numbers"));
    CHECK_THAT(error("[parallelism]\nmodule_fqns_per_model_part = [1]\n"),
               Contains("list of lists of texts"));
    CHECK(error("[training]\nseq_len = 0\n") ==
          deck + ":2:1: training.seq_len = 0: must be at least 1; the nearest valid value is 1");
    CHECK(error("[kernels]\nlogits_chunk_mib = 0\n") ==
          deck + ":2:1: kernels.logits_chunk_mib = 0: must be from 1 to 65536; the nearest valid value is 1");
    CHECK(error("[kernels]\nlogits_chunk_mib = 70000\n") ==
          deck +
              ":2:1: kernels.logits_chunk_mib = 70000: must be from 1 to 65536; the nearest valid value is "
              "65536");
    CHECK(error("[training]\nsteps = \n").starts_with(deck + ":2:"));
    CHECK(error("include = 3\n") ==
          deck + ":1:1: include = 3: must be the path of a deck, or a list of paths");
    CHECK_THAT(error("include = [\"\"]\n"), Contains("must be the path of a deck"));
    CHECK(error("include = \"gone.toml\"\n") == deck + ":1:1: include = \"gone.toml\": there is no file " +
                                                    (folder / "gone.toml").string() +
                                                    "; the path must be relative to this deck");
    CHECK(error("\x89HDF\r\n\x1a\n") ==
          deck + ": is an HDF5 file (a token file or a checkpoint), not a TOML file");
    CHECK(error("[training]\nbatch_size = 1\nlocal_batch_size = 2\n") ==
          deck + ":3:1: training.local_batch_size and training.batch_size (" + deck +
              ":2:1) are the same option; remove one of the two");
    CHECK(error_of(folder / "absent.toml") ==
          (folder / "absent.toml").string() + ": cannot be read: No such file or directory");
}

TEST_CASE("the effective deck reads back as the same config, for every option") {
    const test::TemporaryFolder folder;
    const std::string deck = (folder / "deck.toml").string(), again = (folder / "again.toml").string();
    const auto parse = [](const std::string& file) { return parse_command_line({file, "--dry_run"}).config; };
    // settings that some options require
    const std::map<std::string, std::string> extra = {
        {"checkpoint.initial_load_in_hf_quantized",
         "checkpoint.initial_load_in_hf = true\nmodel.hf_assets_path = \"p\"\n"},
        {"checkpoint.load_step", "checkpoint.enable = true\n"},
        {"checkpoint.create_seed_checkpoint", "checkpoint.enable = true\n"},
        {"checkpoint.exclude_from_loading", "checkpoint.enable = true\n"},
        {"parallelism.expert_parallel_overlap",
         "parallelism.expert_parallel_degree = 2\ntraining.local_batch_size = 2\n"},
        {"guards.on_mismatch", "guards.compare_replicas_interval = 10\n"},
        {"training.dataset_weights", "training.dataset_path = [\"a\", \"b\"]\n"},
        {"validation.dataset_weights", "validation.dataset_path = [\"a\", \"b\"]\n"},
    };
    const std::vector<test::ListedOption> options = test::listed_options();
    REQUIRE(options.size() > 160);
    int with_a_field = 0;
    for (const test::ListedOption& option : options) {
        // one of these is a valid value other than the default
        std::vector<std::string> candidates;
        if (option.type == "boolean") candidates = {"true", "false"};
        if (option.type == "integer") candidates = {"4", "2", "16"};
        if (option.type == "number") candidates = {"0.1234567890123456789", "0.25"};
        if (option.type == "list of integers") candidates = {"[3, 1]"};
        if (option.type == "list of numbers") candidates = {"[3, 0.1]", "[3, 0.1, 2]"};
        if (option.type == "list of texts")
            candidates = {"[\"a,b\", \"c\"]", "[\"dataloader\"]", "[\"quantize.linear.float8\"]",
                          "[\"norm\"]"};
        if (option.type == "list of tables") candidates = {"[{pattern = \"norm\"}, {roles = \"bias\"}]"};
        if (option.type == "list of lists of texts") candidates = {"[[\"a\"], [], [\"b,c\", \"d\"]]"};
        if (option.type == "text")
            candidates = {R"("a \"quoted\" \\ text\n# more")",
                          "\"bfloat16\"",
                          "\"float32\"",
                          "\"async\"",
                          "\"full\"",
                          "\"cosine\"",
                          "\"cpu\"",
                          "\"qwen3\"",
                          "\"2025\"",
                          "\"layernorm\"",
                          "\"Adam\"",
                          "\"always\"",
                          "\"GPipe\"",
                          "\"none\"",
                          "\"alltoall\"",
                          "\"deepep\"",
                          "\"rowwise\"",
                          "\"mxfp8_rceil\"",
                          "\"staged\"",
                          "\"own\"",
                          "\"wgmma\"",
                          "\"1-12:00:00\"",
                          "\"rewind\"",
                          "\"step\"",
                          "\"skip\"",
                          "\"foreach\"",
                          "\"match_rms_adamw\"",
                          "\"op\"",
                          "\"MTPLoss\"",
                          "\"sigmoid\"",
                          "\"yarn\"",
                          "\"gelu_tanh\""};
        INFO(option.name);
        bool changed = false;
        for (const std::string& candidate : candidates) {
            const auto beside = extra.find(option.name);
            test::write_file(
                deck, (beside == extra.end() ? "" : beside->second) + option.name + " = " + candidate + "\n");
            std::string text;
            try {
                text = test::deck_body(parse(deck));
            } catch (const ConfigError&) {
                continue;  // the candidate of another option
            }
            if (text.find("\n" + option.name.substr(option.name.rfind('.') + 1) + " = ") == std::string::npos)
                continue;
            changed = changed || text != test::deck_body(Config());
            test::write_file(again, text);
            CHECK(test::deck_body(parse(again)) == text);
        }
        const bool fixed = option.name == "training.mixed_precision_reduce" ||
                           option.name == "parallelism.expert_tensor_parallel_degree" ||
                           option.name == "job.config_file" ||
                           option.name.starts_with("training.num_tokens_per_");  // stored as batch sizes
        CHECK(changed == (option.has_field && !fixed));
        with_a_field += option.has_field;
    }
    CHECK(with_a_field > 100);
}

TEST_CASE("the effective deck names its deck and can be run again") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "a.toml", "[training]\nsteps = 5\ndataset_path = \"x\"\n");
    const Config config = parse_command_line({(folder / "a.toml").string()}).config;
    const std::string text = deck_text(config);
    CHECK(text.starts_with("# The effective deck of \"" + (folder / "a.toml").string() + "\".\n"));
    CHECK_THAT(text, Contains("\n[training]\n") && Contains("\nsteps = 5\n") &&
                         Contains("\ndataset_path = [\"x\"]\n"));
    CHECK_THAT(text, !Contains("\nconfig_file"));
    CHECK_THAT(text, !Contains("gc_freq"));
    CHECK_THAT(text, !Contains("encoder"));  // not implemented and not requested
    CHECK(deck_text(Config()).starts_with("# The effective deck.\n"));
}

TEST_CASE("every deck under inputs is accepted") {
    const auto decks = decks_under(inputs);
    REQUIRE(decks.size() >= 9);
    for (const fs::path& deck : decks) {
        INFO(deck);
        CHECK(error_of(deck) == "no error");
    }
    // the main deck runs without notices
    const CommandLine main_job = parse_command_line({(inputs / "llama3_debug.toml").string()});
    CHECK(main_job.notices.empty());
    CHECK(gradient_accumulation_steps(main_job.config, 1) == 2);
    CHECK(gradient_accumulation_steps(main_job.config, 2) == 1);
    const Config& config = main_job.config;
    CHECK(config.training.steps * config.training.global_batch_size * config.training.seq_len == 614400);
}

TEST_CASE("the decks of torchtitan, of both generations, are accepted without changes") {
    const fs::path folder = test::shared("decks");
    if (folder.empty()) return;
    const auto decks = decks_under(folder);
    REQUIRE(decks.size() >= 26);
    for (const fs::path& deck : decks) {
        INFO(deck);
        CHECK(error_of(deck) == "no error");
        // a real run reports missing features, and no other errors
        try {
            parse_command_line({deck.string()});
            FAIL("a run without data was accepted");
        } catch (const ConfigError& error) {
            std::istringstream lines(error.what());
            for (std::string line; std::getline(lines, line);)
                CHECK_THAT(line, Contains("not implemented yet") || Contains("train another model") ||
                                     Contains("training.dataset_path: is not given"));
        }
    }
    const CommandLine line =
        parse_command_line({(folder / "torchtitan-2024/llama3_405b.toml").string(), "--dry_run"});
    const Config& old = line.config;
    CHECK(old.training.local_batch_size == 2);
    CHECK(old.lr_scheduler.warmup_steps == 600);
    CHECK(old.parallelism.tensor_parallel_degree == 8);
    CHECK(old.parallelism.enable_async_tensor_parallel);
    CHECK(old.model.converters == Words{"quantize.linear.float8"});
    CHECK(old.quantize.linear.float8.enable_fsdp_float8_all_gather);
    CHECK(old.quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp);
    CHECK(std::ranges::none_of(
        line.notices, [](const std::string& notice) { return notice.find("float8") != std::string::npos; }));
}

namespace {

// The error of `coeus train DECK --dry_run --ranks N`, or "".
std::string dry_run_error(const fs::path& deck, int ranks, const Words& more = {}) {
    Words words = {deck.string(), "--dry_run", "--ranks=" + std::to_string(ranks)};
    words.insert(words.end(), more.begin(), more.end());
    try {
        dry_run(parse_command_line(words), 1);
        return "";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

// The decks of torchtitan and the number of ranks that they were made for: from their comments. For debug
// models, run_train.sh starts 8.
const std::map<std::string, int> ranks_of_torchtitans = {
    {"torchtitan-2024/debug_model.toml", 8},
    {"torchtitan-2024/llama2_7b.toml", 8},
    {"torchtitan-2024/llama2_13b.toml", 64},
    {"torchtitan-2024/llama2_70b.toml", 64},
    {"torchtitan-2024/llama3_8b.toml", 64},
    {"torchtitan-2024/llama3_70b.toml", 64},
    {"torchtitan-2024/llama3_405b.toml", 128},
    {"torchtitan-toml/llama3__debug_model.toml", 8},
    {"torchtitan-toml/llama3_ft__debug_model.toml", 8},
    {"torchtitan-toml/llama3__llama3_8b.toml", 64},
    {"torchtitan-toml/llama3__llama3_70b.toml", 64},
    {"torchtitan-toml/llama3__llama3_405b.toml", 128},
    {"torchtitan-toml/deepseek_v3__debug_model.toml", 8},
    {"torchtitan-toml/deepseek_v3__deepseek_v3_16b.toml", 64},
    {"torchtitan-toml/deepseek_v3__deepseek_v3_671b.toml", 512},
    {"torchtitan-toml/flux__debug_model.toml", 8},
    {"torchtitan-toml/flux__flux_dev_model.toml", 8},
    {"torchtitan-toml/flux__flux_schnell_model.toml", 8},
    {"torchtitan-toml/gpt_oss__debug_model.toml", 8},
    {"torchtitan-toml/llama4__debug_model.toml", 8},
    {"torchtitan-toml/llama4__llama4_17bx16e.toml", 64},
    {"torchtitan-toml/llama4__llama4_17bx128e.toml", 256},
    {"torchtitan-toml/qwen3__qwen3_0.6b.toml", 8},
    {"torchtitan-toml/qwen3__qwen3_1.7b.toml", 8},
    {"torchtitan-toml/qwen3__qwen3_32b.toml", 8},
    {"torchtitan-toml/qwen3__qwen3_moe_debug.toml", 8},
};

const std::set<std::string> not_built = {"flux"};

// The decks under inputs and the number of ranks that they name.
const std::map<std::string, int> ranks_of_inputs = {
    {"llama3_debug.toml", 1},        {"llama3_debug_float8.toml", 1},  {"llama3_workstation.toml", 1},
    {"llama3_node.toml", 8},         {"llama3_pipeline.toml", 4},      {"llama3_blend.toml", 1},
    {"base/llama2_7b.toml", 8},      {"base/llama2_13b.toml", 64},     {"base/llama2_70b.toml", 64},
    {"base/llama3_1b.toml", 8},      {"base/llama3_3b.toml", 8},       {"base/llama3_8b.toml", 64},
    {"base/llama3_70b.toml", 64},    {"base/llama3_405b.toml", 128},   {"qwen3_debug.toml", 1},
    {"base/qwen3_8b.toml", 64},      {"base/qwen2_7b.toml", 64},       {"base/mistral_7b.toml", 64},
    {"qwen3_moe_debug.toml", 1},     {"base/qwen3_30b_a3b.toml", 64},  {"gpt_oss_debug.toml", 1},
    {"base/gpt_oss_20b.toml", 64},   {"deepseek_v3_debug.toml", 1},    {"base/deepseek_v3_16b.toml", 64},
    {"llama4_debug.toml", 1},        {"base/llama4_17bx16e.toml", 64}, {"deepseek_v3_16b.toml", 8},
    {"deepseek_v3_671b.toml", 2048}, {"qwen3_30b_a3b.toml", 16},       {"gpt_oss_120b.toml", 64},
};

}  // namespace

TEST_CASE("the decks of torchtitan pass a dry run on the number of ranks that they were made for") {
    const fs::path folder = test::shared("decks");
    if (folder.empty()) return;
    for (const fs::path& deck : decks_under(folder)) {
        INFO(deck);
        const auto known = ranks_of_torchtitans.find(deck.lexically_relative(folder).string());
        REQUIRE(known != ranks_of_torchtitans.end());
        const std::string error = dry_run_error(deck, known->second);
        const std::string model = parse_command_line({deck.string(), "--dry_run"}).config.model.name;
        if (not_built.contains(model))
            CHECK(error.starts_with("model.name = \"" + model + "\": this model is not implemented yet"));
        else
            CHECK(error == "");
    }
    // with another number of ranks, a deck that does not fit is refused
    CHECK_THAT(dry_run_error(folder / "torchtitan-toml/llama3__llama3_70b.toml", 12), Contains("12"));
}

TEST_CASE("the decks under inputs pass a dry run on the number of ranks that they name") {
    for (const fs::path& deck : decks_under(inputs)) {
        INFO(deck);
        const std::string name = deck.lexically_relative(inputs).string();
        if (name.starts_with("families/")) {
            CHECK(dry_run_error(deck, 2) == "");
            continue;
        }
        const auto known = ranks_of_inputs.find(name);
        REQUIRE(known != ranks_of_inputs.end());
        CHECK(dry_run_error(deck, known->second) == "");
    }
}

namespace {

// Each recipe of 8 bits passes a dry run of each deck for GPUs, except that weights with a scale for each row
// are not gathered in 8 bits.
void check_recipes(const fs::path& folder, const std::map<std::string, int>& decks) {
    for (const auto& [name, ranks] : decks) {
        const Config config = parse_command_line({(folder / name).string(), "--dry_run"}).config;
        if (not_built.contains(config.model.name)) continue;
        const bool has_experts = model_from_deck(config).moe.experts > 0,
                   gathers_in_8_bits = config.quantize.linear.float8.enable_fsdp_float8_all_gather;
        for (const std::string recipe : {"tensorwise", "rowwise", "mxfp8"}) {
            const std::string kind = recipe == "mxfp8" ? "mx" : "float8";
            Words words = {"--model.converters=quantize.linear." + kind,
                           "--quantize.linear." + kind + ".recipe_name=" + recipe, "--device=cuda",
                           "--memory=1000TiB"};  // no search for advice
            if (has_experts) {
                words[0] += ",quantize.grouped_mm." + kind;
                words.push_back("--quantize.grouped_mm." + kind + ".fqns=experts");
            }
            INFO(name << " with " << recipe);
            const std::string error = dry_run_error(folder / name, ranks, words);
            if (recipe == "rowwise" && gathers_in_8_bits)
                CHECK_THAT(error, Contains("needs one scale for a weight"));
            else
                CHECK(error == "");
        }
    }
}

}  // namespace

TEST_CASE("the decks under inputs take each recipe of 8 bits") {
    check_recipes(inputs, ranks_of_inputs);
}

TEST_CASE("soak: the decks of torchtitan take each recipe of 8 bits", "[.soak]") {
    if (const fs::path folder = test::shared("decks"); !folder.empty())
        check_recipes(folder, ranks_of_torchtitans);
}

TEST_CASE("weights of a blend: one for each path, greater than 0") {
    const auto error = [](std::vector<std::string> arguments) -> std::string {
        try {
            parse_command_line(arguments);
        } catch (const ConfigError& wrong) {
            return wrong.what();
        }
        return "no error";
    };
    const std::string two = "--training.dataset_path=a,b";
    CHECK(error({two, "--training.dataset_weights=0.7,0.3"}) == "no error");
    CHECK(error({two, "--training.dataset_weights=0.7"}) ==
          "training.dataset_weights = [0.7]: 1 weight for 2 paths in training.dataset_path; give one weight "
          "for each path");
    CHECK(error({"--training.dataset_path=a", "--training.dataset_weights=1,2"}) ==
          "training.dataset_weights = [1.0, 2.0]: 2 weights for 1 path in training.dataset_path; give one "
          "weight for each path");
    CHECK_THAT(error({two, "--training.dataset_weights=0.7,0"}),
               Contains("training.dataset_weights = 0.7,0: must be greater than 0"));
    CHECK_THAT(error({two, "--training.dataset_weights=0.7,-1"}), Contains("must be greater than 0"));
    CHECK_THAT(error({two, "--training.dataset_weights=0.7,nan"}), Contains("must be greater than 0"));
    CHECK_THAT(error({two, "--training.dataset_weights=0.7,half"}),
               Contains("must be numbers, such as [0.7, 0.3] or \"0.7,0.3\""));
    CHECK_THAT(error({two, "--validation.dataset_weights=1"}),
               Contains("validation.dataset_weights = [1.0]: 1 weight for 0 paths"));
    CHECK(parse_command_line({two, "--training.dataset_weights=2,0.5"}).config.training.dataset_weights ==
          std::vector<double>{2, 0.5});
}

TEST_CASE("datasets by name are looked for in a few folders") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "mine.jsonl.gz", "x");
    test::write_file(folder / "c4_test/data.json", "x");
    for (const char* name : {"c4-train.00001-of-00002.json.gz", "c4-train.00000-of-00002.json.gz",
                             "c4-validation.00000-of-00001.json.gz"})
        test::write_file(folder / ("c4/en/" + std::string(name)), "x");
    const std::string at = folder.path().string();
    setenv("COEUS_DATASETS", at.c_str(), 1);
    const auto parse = [](std::vector<std::string> arguments) { return parse_command_line(arguments); };
    const CommandLine usual = parse({});
    CHECK(usual.config.training.dataset_path == Words{at + "/c4_test"});
    CHECK(usual.notices == Words{"training.dataset = \"c4_test\" is " + at + "/c4_test"});
    CHECK(parse({"--training.dataset=mine"}).config.training.dataset_path == Words{at + "/mine.jsonl.gz"});
    const CommandLine c4 = parse({"--training.dataset=c4", "--validation.enable"});
    CHECK(c4.config.training.dataset_path == Words{at + "/c4/en/c4-train.00000-of-00002.json.gz",
                                                   at + "/c4/en/c4-train.00001-of-00002.json.gz"});
    CHECK(c4.config.validation.dataset_path == Words{at + "/c4/en/c4-validation.00000-of-00001.json.gz"});
    CHECK_THAT(c4.notices.at(0), Contains("00000-of-00002.json.gz and 1 more"));
    // a path takes precedence over a name; then the default name of the validation data is ignored
    const CommandLine path = parse({"--training.dataset_path=y", "--validation.enable"});
    CHECK(path.config.training.dataset_path == Words{"y"});
    CHECK(path.config.validation.dataset_path.empty());
    CHECK(path.notices.empty());
    CHECK(parse({"--training.dataset_path=y", "--training.dataset=c4"}).notices ==
          Words{"training.dataset = \"c4\" has no effect: training.dataset_path names the data"});
    // also in the effective deck
    test::write_file(folder / "deck.toml", deck_text(path.config));
    CHECK(parse({(folder / "deck.toml").string()}).config.validation.dataset_path.empty());
    // a missing default is a notice, a missing name that was given is an error
    std::filesystem::rename(folder / "c4", folder / "other");
    const CommandLine no_default = parse({"--validation.enable"});
    CHECK(no_default.config.validation.dataset_path.empty());
    CHECK(no_default.notices.back() == "validation.dataset = \"c4_validation\": was not found in " + at +
                                           ", ./datasets, ./tests/assets: every 100th sequence of the "
                                           "training data is held out for validation");
    CHECK(parse({"--training.dataset_path=y", "--validation.enable", "--validation.dataset=c4_test"})
              .config.validation.dataset_path == Words{at + "/c4_test"});
    const std::vector<std::string> gone = {"--training.dataset_path=y", "--validation.enable",
                                           "--validation.dataset=gone"};
    const std::string refusal =
        "validation.dataset = \"gone\": was not found in " + at +
        ", ./datasets, ./tests/assets (set $COEUS_DATASETS to search another folder). Make it there with "
        "`coeus tokenize INPUT --tokenizer FOLDER --output gone.h5`, or set validation.dataset_path to your "
        "own text, or remove validation.dataset: then every 100th sequence of the training data is held out";
    CHECK_THROWS_WITH(parse(gone), refusal);
    std::vector<std::string> dry = gone;
    dry.emplace_back("--dry_run");
    CHECK(parse(dry).absent == Words{refusal + " (a run needs it)"});
    // held out on request, and not looked for without validation
    CHECK(parse({"--validation.enable", "--validation.dataset="}).notices == usual.notices);
    CHECK(parse({"--training.dataset_path=y", "--validation.dataset=gone"}).notices.empty());
    CHECK_THROWS_WITH(parse({"--training.dataset=gone"}),
                      Contains("training.dataset = \"gone\" was not found in " + at + ", ./datasets"));
    unsetenv("COEUS_DATASETS");
    CHECK_THROWS_AS(parse({"--training.dataset=mine"}), ConfigError);
}
