// SPDX-License-Identifier: Apache-2.0
// Precedence, types, choices and rules, and the message about each mistake.
#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"
#include "parsed.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <cstdlib>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

TEST_CASE("without options the config has its defaults") {
    const CommandLine line = parse_command_line({"--training.dataset_path=x.h5"});
    CHECK(line.config.training.seq_len == 2048);
    CHECK(line.config.optimizer.lr == 8e-4);
    CHECK(line.config.checkpoint.enable == false);
    CHECK(line.config.job.config_file.empty());
    CHECK(line.config.training.dataset_path == Words{"x.h5"});
    CHECK_FALSE(line.dry_run);
    CHECK(line.ranks == 0);
    CHECK(line.notices.empty());
}

TEST_CASE("forms of the command line") {
    CHECK(config_of({"--training.steps=7"}).training.steps == 7);
    CHECK(config_of({"--training.steps", "7"}).training.steps == 7);
    CHECK(config_of({"--training.steps=7", "--training.steps=8"}).training.steps == 8);
    CHECK(config_of({"--training.steps=1_000"}).training.steps == 1000);
    CHECK(config_of({"--training.steps=1e3"}).training.steps == 1000);
    CHECK(config_of({"--optimizer.lr", "1e-3"}).optimizer.lr == 1e-3);
    CHECK(config_of({"--optimizer.lr=0"}).optimizer.lr == 0);
    CHECK(config_of({"--training.max_norm=inf"}).training.max_norm > 1e300);
    CHECK(config_of({"--training.global_batch_size", "-1"}).training.global_batch_size == -1);
    CHECK(config_of({"--checkpoint.enable"}).checkpoint.enable);
    CHECK(config_of({"--checkpoint.enable=true"}).checkpoint.enable);
    CHECK(config_of({"--checkpoint.enable", "True"}).checkpoint.enable);
    CHECK_FALSE(config_of({"--checkpoint.enable", "false"}).checkpoint.enable);
    CHECK_FALSE(config_of({"--checkpoint.enable=0"}).checkpoint.enable);
    CHECK_FALSE(config_of({"--checkpoint.no_last_save_model_only"}).checkpoint.last_save_model_only);
    CHECK_FALSE(config_of({"--checkpoint.enable", "--checkpoint.no_enable"}).checkpoint.enable);
    CHECK(config_of({"--log.ranks=0,3"}).log.ranks == std::vector<int64_t>{0, 3});
    CHECK(config_of({"--training.dataset_path=a", "--validation.dataset_path=b, c,d"})
              .validation.dataset_path == Words{"b", "c", "d"});
    CHECK(config_of({"--validation.dataset_path="}).validation.dataset_path.empty());
    CHECK(config_of({"--device=cpu"}).device == "cpu");
    CHECK(config_of({"--optimizer.name=adam"}).optimizer.name == "Adam");
    CHECK(config_of({"--model.dim=512"}).model.dim == 512);
    CHECK(config_of({"--lr_scheduler.decay_ratio=0.5", "--lr_scheduler.decay_ratio=none"})
              .lr_scheduler.decay_ratio == std::nullopt);
    const CommandLine staged = parsed({"--dry_run", "--parallelism.module_fqns_per_model_part=a,b;c"});
    CHECK(staged.config.parallelism.module_fqns_per_model_part == std::vector<Words>{{"a", "b"}, {"c"}});
}

TEST_CASE("a bare switch does not take the deck as its value") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "deck.toml", "[training]\nsteps = 3\n");
    const std::string deck = (folder / "deck.toml").string();
    const Config config = config_of({"--checkpoint.enable", deck, "--log.quiet"});
    CHECK(config.job.config_file == deck);
    CHECK(config.training.steps == 3);
    CHECK(config.checkpoint.enable);
    CHECK(config.log.quiet);
    CHECK(config_of({"--job.config_file", deck}).training.steps == 3);
    CHECK(config_of({deck, "--job.config_file=" + deck}).training.steps == 3);
    CHECK(error_of({deck, "--job.config_file=other.toml"}) ==
          "command line: two decks are given: " + deck +
              " and --job.config_file=other.toml; remove one of the two");
    CHECK(error_of({deck, deck}) == "command line: only one deck can be given, not 2 (" + deck + ", " + deck +
                                        "); a deck can include others");
}

TEST_CASE("dry runs") {
    const CommandLine line = parsed({"--dry_run", "--ranks", "512"});
    CHECK(line.dry_run);
    CHECK(line.ranks == 512);
    CHECK(error_of({"--ranks=4"}) ==
          "command line: --ranks needs --dry_run; a real run has the ranks that mpirun or srun starts");
    CHECK(error_of({"--dry_run", "--ranks=0"}) ==
          "command line: ranks = 0: must be a whole number from 1 to 16777216");
    CHECK_THAT(error_of({"--dry_run", "--ranks=many"}), Contains("ranks = many: must be a whole number"));
    for (const Words& empty : {Words{"--dry_run", "--gpu="}, {"--dry_run", "--gpu", ""}, {"--gpu="}})
        CHECK(error_of(empty) ==
              "command line: gpu = : must be the name of a GPU, such as h100, or a machine file");
    CHECK(error_of({""}) == "command line: an argument is empty; it must be the path of a deck");
    CHECK(error_of({"--dry_run=perhaps"}) == "command line: dry_run = perhaps: must be true or false");
}

TEST_CASE("mistakes on the command line name option, value and remedy") {
    CHECK(error_of({"--trainng.steps=1"}) ==
          "command line: unknown option --trainng.steps; did you mean --training.steps?");
    CHECK(error_of({"--steps=1"}) == "command line: unknown option --steps; did you mean --training.steps?");
    CHECK(error_of({"--training.step=1"}) ==
          "command line: unknown option --training.step; did you mean --training.steps?");
    CHECK(error_of({"--something.else.altogether"}) ==
          "command line: unknown option --something.else.altogether; `coeus help options` lists all of them");
    CHECK_THAT(error_of({"--checkpoint.no_folder"}), Contains("unknown option --checkpoint.no_folder"));
    CHECK_THAT(error_of({"--dry-run"}), Contains("unknown option --dry-run; did you mean --dry_run?"));
    CHECK(error_of({"-n", "3"}) ==
          "command line: -n: options begin with two dashes; ranks are started by mpirun: mpirun -n 2 coeus "
          "train DECK");
    CHECK(error_of({"-x"}) == "command line: -x: options begin with two dashes");
    // all mistakes at once
    CHECK(error_of({"--training.stepz=1", "--optimizer.lrr=2"}) ==
          "command line: unknown option --training.stepz; did you mean --training.steps?\n"
          "command line: unknown option --optimizer.lrr; did you mean --optimizer.lr?");
    CHECK(error_of({"--training.steps=ten"}) == "command line: training.steps = ten: must be a whole number");
    CHECK(error_of({"--training.steps=1.5"}) == "command line: training.steps = 1.5: must be a whole number");
    CHECK(error_of({"--training.steps=99999999999999999999"}) ==
          "command line: training.steps = 99999999999999999999: must be a whole number");
    CHECK(error_of({"--training.steps="}) == "command line: training.steps = : must be a whole number");
    CHECK(error_of({"--optimizer.lr=fast"}) == "command line: optimizer.lr = fast: must be a number");
    CHECK(error_of({"--checkpoint.enable=yes"}) ==
          "command line: checkpoint.enable = yes: must be true or false");
    CHECK(error_of({"--log.ranks=0,x"}) ==
          "command line: log.ranks = 0,x: must be whole numbers, such as [0, 1] or \"0,1\"");
    CHECK(error_of({"--optimizer.name=AdmW"}) ==
          "command line: optimizer.name = AdmW: must be one of AdamW, Adam, Muon; did you mean AdamW?");
    CHECK(error_of({"--training.mixed_precision_reduce=bfloat16"}) ==
          "command line: training.mixed_precision_reduce = bfloat16: can only be float32");
    try {
        parse_command_line({"--training.steps"});
        FAIL("a missing value was accepted");
    } catch (const ConfigError& error) {
        CHECK(std::string(error.what()) ==
              "command line: --training.steps needs a value: --training.steps=VALUE");
    }
}

TEST_CASE("gradients in bfloat16 are refused with what adds to them, or reads them, in float32") {
    const std::string gradients = "--training.gradient_dtype=bfloat16",
                      begin = "training.gradient_dtype = \"bfloat16\": ",
                      set_float32 = "set training.gradient_dtype = \"float32\", or ";
    CHECK(error_of({gradients}) == "no error");
    CHECK(error_of({gradients, "--training.dtype=bfloat16"}) == "no error");
    CHECK(error_of({gradients, "--training.mixed_precision_param=float32"}) ==
          begin +
              "needs a model that is computed in bfloat16, but training.mixed_precision_param = \"float32\"; "
              "set training.mixed_precision_param = \"bfloat16\" or training.gradient_dtype = \"float32\"");
    CHECK(error_of({gradients, "--training.dtype=float64"}) ==
          begin +
              "needs a model that is computed in bfloat16, but training.dtype = \"float64\" computes in "
              "float64; set training.gradient_dtype = \"float32\", which means float64 then");
    CHECK(error_of({gradients, "--optimizer.name=Muon"}) ==
          begin + "Muon makes its updates in the memory of the gradients, in float32; " + set_float32 +
              "optimizer.name = \"AdamW\"");
    CHECK(error_of({gradients, "--optimizer.param_groups={roles = \"matrix\", optimizer_name = \"Muon\"}"}) ==
          begin + "Muon makes its updates in the memory of the gradients, in float32; " + set_float32 +
              "optimizer_name of group 1 of optimizer.param_groups = \"AdamW\"");
    for (const char* converter : {"quantize.linear.float8", "quantize.linear.mx"})
        CHECK(error_of({gradients, std::string("--model.converters=") + converter}) ==
              begin + "layers in 8 bits add to gradients in float32; " + set_float32 + "remove \"" +
                  converter + "\" from model.converters");
    CHECK(error_of({"--training.gradient_dtype=float16"}) ==
          "command line: training.gradient_dtype = float16: must be one of float32, bfloat16; did you mean "
          "bfloat16?");
}

TEST_CASE("values out of range name the rule and the nearest valid value") {
    CHECK(error_of({"--training.seq_len=0"}) ==
          "command line: training.seq_len = 0: must be at least 1; the nearest valid value is 1");
    CHECK(error_of({"--training.steps=0"}) ==
          "command line: training.steps = 0: must be at least 1; the nearest valid value is 1");
    CHECK(error_of({"--training.global_batch_size=0"}) ==
          "command line: training.global_batch_size = 0: must be at least 1, or -1; the nearest valid value "
          "is 1");
    CHECK_THAT(error_of({"--training.global_batch_size=-3"}), Contains("the nearest valid value is -1"));
    CHECK(error_of({"--checkpoint.keep_latest_k=1"}) ==
          "command line: checkpoint.keep_latest_k = 1: must be at least 2, or 0 to keep all; the nearest "
          "valid value is 2");
    CHECK_THAT(error_of({"--checkpoint.keep_latest_k=-4"}), Contains("the nearest valid value is 0"));
    CHECK_THAT(error_of({"--checkpoint.load_step=-2"}), Contains("at least 0, or -1 for the newest"));
    CHECK(error_of({"--optimizer.lr=-1"}) ==
          "command line: optimizer.lr = -1: must be at least 0; the nearest valid value is 0");
    CHECK(error_of({"--optimizer.lr=nan"}) == "command line: optimizer.lr = nan: must be at least 0");
    CHECK_THAT(error_of({"--optimizer.lr=inf"}), Contains("must be at least 0"));
    CHECK(error_of({"--optimizer.beta1=1"}) ==
          "command line: optimizer.beta1 = 1: must be at least 0 and less than 1");
    CHECK(error_of({"--lr_scheduler.decay_ratio=1.5"}) ==
          "command line: lr_scheduler.decay_ratio = 1.5: must be from 0 to 1; the nearest valid value is 1");
    for (const char* wrong : {"0", "1.5"})
        CHECK(error_of({std::string("--model.partial_rotary_factor=") + wrong}) ==
              std::string("command line: model.partial_rotary_factor = ") + wrong +
                  ": must be greater than 0 and at most 1; the nearest valid value is 1");
    CHECK_THAT(error_of({"--lr_scheduler.decay_type=cosin"}), Contains("did you mean cosine?"));
    CHECK(error_of({"--training.max_norm=0"}) ==
          "command line: training.max_norm = 0: must be greater than 0 (inf: no limit)");
    CHECK_THAT(error_of({"--model.norm_eps=0"}), Contains("must be greater than 0"));
    CHECK_THAT(error_of({"--log.ranks=-1"}), Contains("log.ranks = -1: must be at least 0"));
    CHECK_THAT(error_of({"--parallelism.data_parallel_shard_degree=0"}),
               Contains("from 1 to 65536, or -1 for the ranks that are left; the nearest valid value is -1"));
    CHECK_THAT(error_of({"--parallelism.tensor_parallel_degree=100000"}),
               Contains("from 1 to 65536; the nearest valid value is 65536"));
    CHECK(error_of({"--parallelism.fsdp_prefetch=3"}) ==
          "command line: parallelism.fsdp_prefetch = 3: must be 1 or 2; the nearest valid value is 2");
    CHECK_THAT(error_of({"--parallelism.fsdp_prefetch=0"}), Contains("the nearest valid value is 1"));
    CHECK_THAT(error_of({"--checkpoint.exclude_from_loading=model"}),
               Contains("must be one of optimizer, lr_scheduler, dataloader, train_state"));
    CHECK(error_of({"--checkpoint.enable", "--checkpoint.exclude_from_loading=dataloader,optimizer"}) ==
          "checkpoint.exclude_from_loading: \"optimizer\" resets the moments, which need the warm-up of a "
          "new schedule; exclude \"lr_scheduler\" too");
    CHECK(error_of({"--checkpoint.exclude_from_loading=dataloader"}) ==
          "checkpoint.exclude_from_loading: nothing is loaded with checkpoint.enable = false; set "
          "checkpoint.enable = true or checkpoint.initial_load_path");
}

TEST_CASE("no integer may be so large that sizes overflow") {
    for (const std::string name : {"training.local_batch_size",
                                   "training.global_batch_size",
                                   "training.seq_len",
                                   "training.steps",
                                   "training.threads",
                                   "validation.local_batch_size",
                                   "validation.seq_len",
                                   "validation.freq",
                                   "validation.steps",
                                   "checkpoint.interval",
                                   "checkpoint.keep_latest_k",
                                   "checkpoint.load_step",
                                   "lr_scheduler.warmup_steps",
                                   "lr_scheduler.total_steps",
                                   "metrics.log_freq",
                                   "model.dim",
                                   "model.n_layers",
                                   "model.n_heads",
                                   "model.vocab_size",
                                   "model.max_seq_len"}) {
        CAPTURE(name);
        CHECK_THAT(error_of({"--dry_run", "--" + name + "=9223372036854775807"}),
                   Contains(name + " = 9223372036854775807: must be at most "));
    }
    CHECK(error_of({"--training.local_batch_size=1000000", "--training.seq_len=4096"}) ==
          "training.local_batch_size x seq_len = 1000000 x 4096: must be at most 2147483647 tokens; reduce "
          "one of the two");
    CHECK_THAT(error_of({"--validation.local_batch_size=1000000", "--validation.seq_len=4096"}),
               Contains("validation.local_batch_size x seq_len"));
    CHECK_THAT(error_of({"--training.global_batch_size=800000000000"}),
               Contains("must be at most 10^13 tokens"));
    CHECK(error_of({"--training.threads=4097"}) == "training.threads = 4097: must be at most 4096");
    CHECK(config_of({"--debug.seed=9223372036854775807"}).debug.seed == 9223372036854775807);
}

TEST_CASE("rules that concern several options") {
    CHECK(error_of({"--job.dump_folder="}) ==
          "job.dump_folder = \"\": must name a folder, such as \"./outputs\"");
    CHECK_THAT(error_of({"--model.flavor="}), Contains("model.flavor = \"\""));
    // every path that a run writes to
    for (const std::string option :
         {"checkpoint.folder", "metrics.save_tb_folder", "profiling.save_traces_folder",
          "profiling.save_memory_snapshot_folder", "job.save_config_file"}) {
        for (const std::string place : {"", "..", "../other", "a/../../b"}) {
            if (place.empty() && option == "job.save_config_file") continue;  // no file is written
            CHECK_THAT(error_of({"--" + option + "=" + place}),
                       Contains(option + " = \"" + place +
                                "\": must be a path inside job.dump_folder, such as \"") &&
                           Contains("\", or an absolute path"));
        }
        for (const char* place : {"a/b", "/tmp/x", "a/../b"})
            CHECK(error_of({"--" + option + "=" + place}) == "no error");
    }
    CHECK(error_of({"--comm.save_traces_file_prefix=../../evil"}) ==
          "comm.save_traces_file_prefix = \"../../evil\": must not contain \"/\", since names of files in "
          "comm.save_traces_folder begin with it; an example is \"rank_\"");
    CHECK(error_of({"--comm.save_traces_file_prefix=r"}) == "no error");
    CHECK(config_of({"--checkpoint.folder=a/b"}).checkpoint.folder == "a/b");
    // a tokenizer may be a file; if weights or shapes are needed as well, it must be a folder
    const test::TemporaryFolder folder;
    for (const char* name : {"tokenizer.model", "tokenizer.json", "x.tiktoken"}) {
        const std::string file = (folder / name).string(), option = "--model.hf_assets_path=" + file;
        test::write_file(file, "x");
        CHECK(config_of({option}).model.hf_assets_path == file);
        const std::string is_file = "model.hf_assets_path = \"" + file + "\": is a file, but ";
        CHECK(error_of({option, "--model.flavor=hf"}) ==
              is_file + "model.flavor = \"hf\" needs a folder with config.json; set it to \"" +
                  folder.path().string() + "\", and model.tokenizer_path to the tokenizer's file");
        CHECK_THAT(error_of({option, "--checkpoint.initial_load_in_hf"}),
                   Contains(is_file + "checkpoint.initial_load_in_hf needs a folder"));
        CHECK(error_of({option, "--checkpoint.initial_load_in_hf", "--checkpoint.initial_load_path=/x"}) ==
              "no error");
    }
    // the family is that of the folder, unless it is given
    test::write_file(folder / "config.json", R"({"architectures": ["Qwen3ForCausalLM"]})");
    const std::string assets = "--model.hf_assets_path=" + folder.path().string();
    CHECK(config_of({"--model.flavor=hf", assets}).model.name == "qwen3");
    CHECK(config_of({"--model.flavor=hf", assets, "--model.name=llama3"}).model.name == "llama3");
    CHECK(config_of({assets}).model.name == "llama3");
    test::write_file(folder / "config.json", R"({"architectures": ["MambaForCausalLM"]})");
    CHECK(config_of({"--model.flavor=hf", assets}).model.name == "llama3");
    CHECK_THAT(error_of({"--model.flavor=hf", "--model.hf_assets_path="}),
               Contains("needs model.hf_assets_path"));
    CHECK_THAT(error_of({"--model.ffn_hidden=64", "--model.multiple_of=32"}),
               Contains("is the exact hidden width"));
    CHECK(error_of({"--training.local_batch_size=4", "--training.global_batch_size=6"}) ==
          "training.global_batch_size = 6: must be a multiple of training.local_batch_size = 4; the nearest "
          "valid value is 8");
    CHECK_THAT(error_of({"--training.dtype=float64", "--device=cuda"}), Contains("works only on CPUs"));
    // if an option is given twice, the last one counts
    CHECK_THAT(error_of({"--training.dataset_path=a,,b"}), Contains("no error"));
    CHECK_THAT(error_of({"--validation.dataset_path=a,"}), Contains("contains an empty path"));
    CHECK_THAT(error_of({"--training.bos_id=1", "--training.eos_id=2"}), Contains("; give one of them"));
    CHECK_THAT(error_of({"--training.bos_id=2147483648"}),
               Contains("training.bos_id = 2147483648: must be below 2^31, as all ids"));
    CHECK_THAT(error_of({"--training.text_field="}),
               Contains("training.text_field: is empty; it is the name of a field, such as \"text\""));
    CHECK_THAT(error_of({"--checkpoint.initial_load_in_hf", "--checkpoint.no_initial_load_model_only"}),
               Contains("contains only a model"));
    CHECK_THAT(error_of({"--dry_run", "--checkpoint.initial_load_in_hf_quantized"}),
               Contains("needs checkpoint.initial_load_in_hf = true"));
    CHECK_THAT(
        error_of({"--dry_run", "--checkpoint.last_save_in_hf", "--checkpoint.no_last_save_model_only"}),
        Contains("checkpoint.last_save_model_only = true"));
    CHECK_THAT(error_of({"--dry_run", "--profiling.enable_profiling", "--profiling.profile_freq=3"}),
               Contains("must be at least profiler_active + profiler_warmup = 4"));
    const auto context = [&](std::vector<std::string> more) {
        more.insert(more.end(), {"--dry_run", "--parallelism.context_parallel_degree=3"});
        return error_of(more);
    };
    CHECK(context({"--training.seq_len=100"}) ==
          "training.seq_len = 100: must be a multiple of 6, tensor_parallel_degree x context_parallel_degree "
          "x 2 (context_parallel_load_balancer = \"headtail\"); the nearest valid value is 102");
    CHECK(context({"--training.seq_len=98", "--parallelism.context_parallel_load_balancer=none"}) ==
          "training.seq_len = 98: must be a multiple of 3, tensor_parallel_degree x context_parallel_degree; "
          "the nearest valid value is 99");
    CHECK(context({"--training.seq_len=3", "--parallelism.context_parallel_load_balancer=none"}) ==
          "no error");
    CHECK_THAT(context({"--training.seq_len=2"}), Contains("the nearest valid value is 6"));
    CHECK_THAT(context({"--training.seq_len=24", "--validation.enable", "--validation.seq_len=16",
                        "--validation.dataset_path=x.h5"}),
               Contains("validation.seq_len = 16: must be a multiple of 6"));
    CHECK(error_of({"--checkpoint.no_enable", "--checkpoint.load_step=3"}) ==
          "checkpoint.load_step: has no effect with checkpoint.enable = false, since nothing is loaded from "
          "checkpoint.folder; set checkpoint.enable = true");
    CHECK(error_of({"--validation.enable", "--training.seq_len=16", "--validation.seq_len=8"}) ==
          "validation.seq_len = 8: must be training.seq_len = 16 if every 100th sequence of the training "
          "data is held out; to change it, set validation.dataset_path");
    CHECK(config_of({"--validation.enable", "--training.seq_len=16", "--validation.seq_len=8",
                     "--validation.dataset_path=x.h5"})
              .validation.seq_len == 8);
    CHECK_THAT(error_of({"--dry_run", "--parallelism.expert_tensor_parallel_degree=2"}),
               Contains("must be 1 or parallelism.tensor_parallel_degree = 1"));
    CHECK_THAT(error_of({"--dry_run", "--parallelism.pipeline_parallel_degree=2",
                         "--parallelism.pipeline_parallel_microbatch_size=3"}),
               Contains("training.local_batch_size = 8: must be a multiple of") && Contains("is 9"));
}

TEST_CASE("the division into stages can be given in only one way") {
    const std::string listed = "--parallelism.module_fqns_per_model_part=a;b",
                      table = "--parallelism.pipeline_parallel_schedule_csv=x.csv",
                      each = "--parallelism.pipeline_parallel_layers_per_stage=2",
                      less = "--parallelism.pipeline_parallel_first_stage_less_layers=",
                      last_less = "--parallelism.pipeline_parallel_last_stage_less_layers=";
    CHECK(error_of({each, listed}) ==
          "parallelism.pipeline_parallel_layers_per_stage = 2: parallelism.module_fqns_per_model_part "
          "already lists the stages; remove one of the two");
    CHECK(error_of({each, table}) ==
          "parallelism.pipeline_parallel_layers_per_stage = 2: the table of "
          "parallelism.pipeline_parallel_schedule_csv already determines the number of stages; remove one of "
          "the two");
    CHECK(error_of({less + "0", listed}) ==
          "parallelism.pipeline_parallel_first_stage_less_layers = 0: applies if layers are divided evenly, "
          "but parallelism.module_fqns_per_model_part lists the layers of each stage; remove one of the two");
    CHECK_THAT(error_of({last_less + "2", listed}),
               Contains("parallelism.pipeline_parallel_last_stage_less_layers = 2: applies if layers"));
    // together these options are allowed
    CHECK(error_of({listed, table}) == "no error");
    CHECK(error_of({less + "0", last_less + "2", table}) == "no error");
    CHECK(error_of({less + "0", last_less + "2", each}) == "no error");
    CHECK(error_of({less + "1", last_less + "1", listed}) == "no error");  // the defaults
    CHECK(error_of({each, "--parallelism.pipeline_parallel_layers_per_stage=none", listed}) == "no error");
}

TEST_CASE("quiet is short for log.quiet") {
    CHECK(config_of({"--quiet"}).log.quiet);
    CHECK(config_of({"--quiet=true"}).log.quiet);
    CHECK_FALSE(config_of({"--no_quiet"}).log.quiet);
    CHECK_FALSE(config_of({}).log.quiet);
    CHECK_THAT(error_of({"--quiet", "--log.quiet=false"}),
               Contains("are the same option; remove one of the two"));
    CHECK_THAT(error_of({"--quiet=loud"}), Contains("quiet") && Contains("loud"));
}

TEST_CASE("LOG_RANK chooses the ranks on the terminal, but deck and command line take precedence") {
    const test::EnvironmentVariable set("LOG_RANK", "0,2");
    CHECK(config_of({}).log.ranks == std::vector<int64_t>{0, 2});
    CHECK(config_of({"--log.ranks=1"}).log.ranks == std::vector<int64_t>{1});
    const test::EnvironmentVariable wrong("LOG_RANK", "all");
    CHECK_THAT(error_of({}),
               Contains("environment variable LOG_RANK: log.ranks = all: must be whole numbers"));
}

TEST_CASE("validation takes its batch size and sequence length from training unless it has its own") {
    const Config follows = config_of({"--training.seq_len=64", "--training.local_batch_size=2"});
    CHECK(follows.validation.seq_len == 64);
    CHECK(follows.validation.local_batch_size == 2);
    CHECK(config_of({"--training.seq_len=64", "--validation.seq_len=32"}).validation.seq_len == 32);
}

TEST_CASE("data types") {
    CHECK(storage_dtype(config_of({})) == Dtype::f32);
    CHECK(compute_dtype(config_of({})) == Dtype::bf16);
    CHECK(storage_dtype(config_of({"--training.dtype=bfloat16"})) == Dtype::bf16);
    CHECK(compute_dtype(config_of({"--training.mixed_precision_param=float32"})) == Dtype::f32);
    CHECK(storage_dtype(config_of({"--training.dtype=float64"})) == Dtype::f64);
    CHECK(compute_dtype(config_of({"--training.dtype=float64"})) == Dtype::f64);
}

TEST_CASE("gradient accumulation") {
    Config config;
    config.training.local_batch_size = 4;
    CHECK(gradient_accumulation_steps(config, 3) == 1);
    config.training.global_batch_size = 24;
    CHECK(gradient_accumulation_steps(config, 1) == 6);
    CHECK(gradient_accumulation_steps(config, 3) == 2);
    CHECK(gradient_accumulation_steps(config, 6) == 1);
    CHECK_THROWS_WITH(
        gradient_accumulation_steps(config, 5),
        "training.global_batch_size = 24: must be a multiple of training.local_batch_size times the "
        "data-parallel degree (4 x 5 = 20); the nearest valid value is 20");
    CHECK_THROWS_WITH(gradient_accumulation_steps(config, 100), Contains("the nearest valid value is 400"));
}

TEST_CASE("the mesh of a deck's degrees") {
    Config config;
    CHECK(mesh_shape(config, 4).dp_shard == 4);
    config.parallelism.data_parallel_replicate_degree = 2;
    config.parallelism.tensor_parallel_degree = 3;
    const MeshShape shape = mesh_shape(config, 12);
    CHECK(shape.dp_replicate == 2);
    CHECK(shape.dp_shard == 2);
    CHECK(shape.tp == 3);
    CHECK_THROWS_AS(mesh_shape(config, 7), ConfigError);
    config.log.ranks = {0, 11};
    CHECK_NOTHROW(mesh_shape(config, 12));
    config.log.ranks = {12};
    CHECK_THROWS_WITH(mesh_shape(config, 12),
                      "log.ranks = 12: this run has no such rank; its highest rank is 11");
    config.log.ranks = {0};
    config.parallelism.expert_parallel_degree = 4;
    CHECK_THROWS_WITH(mesh_shape(config, 12),
                      "parallelism.expert_parallel_degree = 4: must divide data_parallel_shard_degree x "
                      "context_parallel_degree x tensor_parallel_degree = 6; the nearest valid value is 3");
    config.parallelism.expert_parallel_degree = 6;
    CHECK(mesh_shape(config, 12).size(axis::efsdp) == 1);
    config.parallelism.expert_tensor_parallel_degree = 3;
    CHECK_THROWS_WITH(
        mesh_shape(config, 12),
        "parallelism.expert_parallel_degree = 6: must divide data_parallel_shard_degree x "
        "context_parallel_degree (expert_tensor_parallel_degree is tensor_parallel_degree) = 2; "
        "the nearest valid value is 2");
    config.parallelism.expert_parallel_degree = 2;
    CHECK(mesh_shape(config, 12).size(axis::etp) == 3);
    // without expert parallelism, the tensor-parallel ranks divide each expert in any case
    config.parallelism.expert_parallel_degree = config.parallelism.expert_tensor_parallel_degree = 1;
    CHECK(mesh_shape(config, 12).size(axis::etp) == 3);
    config.parallelism.data_parallel_replicate_degree = 65536;
    config.parallelism.context_parallel_degree = 65536;
    CHECK_THROWS_WITH(mesh_shape(config, 12),
                      "the degrees of [parallelism] need 12884901888 ranks, but there are 12");
}

TEST_CASE("all that is wrong with a deck is reported at once, the mesh first") {
    const auto error = [](const Words& more, int ranks) -> std::string {
        Words words = {"--training.dataset_path=x.h5"};
        words.insert(words.end(), more.begin(), more.end());
        try {
            parse_command_line(words, ranks);
        } catch (const ConfigError& wrong) {
            return wrong.what();
        }
        return "";
    };
    // 4 does not fit 2 ranks; a second line would say it again
    const std::string mesh = error({"--parallelism.tensor_parallel_degree=4"}, 2);
    CAPTURE(mesh);
    CHECK_THAT(mesh, Contains("2 ranks") && !Contains("seq_len") && !Contains("\n"));
    CHECK_THAT(error({"--parallelism.tensor_parallel_degree=3"}, 0), Contains("seq_len"));
    const std::string four =
        error({"--parallelism.tensor_parallel_degree=4", "--training.steps=-5", "--optimizer.lr=much",
               "--training.global_batch_size=7", "--job.dump_folder="},
              2);
    CAPTURE(four);
    const auto at = [&](const char* text) { return four.find(text); };
    for (const char* text : {"training.steps = -5", "optimizer.lr = much", "2 ranks",
                             "training.global_batch_size = 7", "job.dump_folder"})
        CHECK_THAT(four, Contains(text));
    CHECK(std::count(four.begin(), four.end(), '\n') == 4);
    CHECK(at("2 ranks") < at("training.global_batch_size"));
    // a wrong value is not followed by errors that its default would cause
    const std::string one = error({"--training.local_batch_size=x", "--training.global_batch_size=7"}, 1);
    CHECK_THAT(one, Contains("training.local_batch_size = x") && !Contains("multiple"));
}
