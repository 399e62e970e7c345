// SPDX-License-Identifier: Apache-2.0
// The program on a GPU, as a user starts it.
#include "coeus/config/config.hpp"
#include "program/tiny_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

const Arguments on_gpu = {"--device=cuda"}, on_cpu = {"--device=cpu"};

fs::path write_data(const TemporaryFolder& folder) {
    const fs::path file = folder / "tokens.h5";
    write_token_file(file, {.tokens = learnable_tokens(60 * 17), .documents = {0, 7, 100, 300, 510, 1020}});
    return file;
}

void check_close(const std::vector<double>& a, const std::vector<double>& b, double bound) {
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) CHECK(relatively_close(a[i], b[i], bound));
}

}  // namespace

TEST_CASE("GPU: a run trains, validates and reports as on the CPU") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments more = {"--training.document_mask",
                            "--validation.enable",
                            "--validation.freq=3",
                            "--validation.steps=1",
                            "--training.global_batch_size=8",
                            "--validation.dataset_path=" + data.string()};
    train_tiny(folder / "cpu", data, more + on_cpu);
    const Outcome run = train_tiny(
        folder / "gpu", data,
        more + on_gpu + Arguments{"--profile", "--profiling.enable_profiling", "--profiling.profile_freq=6"});
    CHECK_THAT(run.output, Contains("Computing on ") && Contains("(GPU 0 of "));
    CHECK_THAT(run.output, Contains("knows CUDA ") && Contains("; this program was built with CUDA "));
    CHECK_THAT(run.output, Contains("Profile of rank 0") && Contains("attention_backward"));
    CHECK_THAT(run.output, Contains("Trace of step 6 in "));
    CHECK_THAT(run.output, Contains("on the host"));
    const MetricLines cpu = read_metrics(folder / "cpu"), gpu = read_metrics(folder / "gpu");
    check_close(gpu.losses(), cpu.losses(), 1e-4);
    REQUIRE(gpu.steps.size() == cpu.steps.size());
    for (size_t i = 0; i < cpu.steps.size(); ++i)
        CHECK(relatively_close(gpu.steps[i].loss_max, cpu.steps[i].loss_max, 1e-4));
    REQUIRE(gpu.validations.size() == cpu.validations.size());
    for (size_t i = 0; i < cpu.validations.size(); ++i)
        CHECK(relatively_close(gpu.validations[i].loss, cpu.validations[i].loss, 1e-4));
    CHECK(gpu.steps[0].memory_gib > 0);
}

TEST_CASE("GPU: products use TF32 if the deck allows it") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Outcome usual = train_tiny(folder / "usual", data, on_gpu);
    const Outcome tf32 = train_tiny(folder / "tf32", data, on_gpu + Arguments{"--kernels.allow_tf32"});
    CHECK_THAT(usual.output, Contains("attention in float32 runs without tensor cores"));
    CHECK(count_of("TF32", usual.output) == 0);
    CHECK_THAT(tf32.output, Contains("Products use TF32 (kernels.allow_tf32)"));
    const std::vector<double> losses = read_metrics(folder / "usual").losses(),
                              rounded = read_metrics(folder / "tf32").losses();
    check_close(rounded, losses, 1e-2);
    CHECK(rounded != losses);
    CHECK_THAT(run_coeus({"info", "--products"}).output, Contains("-tf32\n"));
}

TEST_CASE("GPU: checkpoints are written asynchronously, and resumed on the GPU and on the CPU") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments more = {"--checkpoint.enable", "--checkpoint.interval=2", "--lr_scheduler.total_steps=6",
                            "--checkpoint.async_mode=async_with_pinned_mem"};
    train_tiny(folder / "whole", data, more + on_gpu);
    train_tiny(folder / "at once", data, more + on_gpu + Arguments{"--checkpoint.async_mode=disabled"});
    for (const int step : {2, 4, 6})
        CHECK(
            differing_arrays(folder / "whole" / checkpoint_of(step), folder / "at once" / checkpoint_of(step))
                .empty());
    train_tiny(folder / "parts", data, more + on_gpu + Arguments{steps(4)});
    fs::copy(folder / "parts", folder / "moved", fs::copy_options::recursive);
    train_tiny(folder / "parts", data, more + on_gpu);
    CHECK(differing_arrays(folder / "whole" / checkpoint_of(6), folder / "parts" / checkpoint_of(6)).empty());
    const Outcome moved = train_tiny(folder / "moved", data, more + on_cpu);
    CHECK_THAT(moved.output, Contains("Resuming from"));
    check_close(read_metrics(folder / "moved").losses(), read_metrics(folder / "whole").losses(), 1e-4);
}

TEST_CASE("GPU: a run resumes with the chunks of logits of its checkpoint") {
    const TemporaryFolder folder;
    const fs::path data = folder / "tokens.h5";
    write_token_file(data, {.tokens = learnable_tokens(60 * 129)});
    // 512 x 1024 logits: two chunks of 1 MiB, or one
    const Arguments more = on_gpu + Arguments{"--model.vocab_size=1024", "--training.seq_len=128",
                                              "--lr_scheduler.total_steps=4", "--checkpoint.enable",
                                              "--checkpoint.interval=2"},
                    chunks = {"--kernels.logits_chunk_mib=1"};
    const auto chunks_in = [&](const char* run, int64_t step) {
        return logits_chunk_of_deck(train_record(folder / run, step).deck);
    };
    const auto same = [&](const char* run) {
        return differing_arrays(folder / "whole" / checkpoint_of(4), folder / run / checkpoint_of(4)).empty();
    };
    train_tiny(folder / "whole", data, more + chunks + Arguments{steps(4)});
    train_tiny(folder / "chosen", data, more + Arguments{steps(2)});
    CHECK(chunks_in("chosen", 2) == 1024);
    train_tiny(folder / "parts", data, more + chunks + Arguments{steps(2)});
    CHECK(chunks_in("parts", 2) == 1);
    fs::copy(folder / "parts", folder / "changed", fs::copy_options::recursive);
    const Outcome dry = run_coeus(tiny_run(folder / "parts", data, more + Arguments{"--dry_run"}));
    const Outcome resumed = train_tiny(folder / "parts", data, more + Arguments{steps(4)});
    for (const Outcome& outcome : {dry, resumed})
        CHECK_THAT(outcome.output,
                   Contains("Notice: logits are computed in chunks of 1.00 MiB, as in the checkpoint "
                            "(kernels.logits_chunk_mib)"));
    CHECK_THAT(resumed.output, Contains("Resuming from") && !Contains("differs from the checkpoint's"));
    CHECK(chunks_in("parts", 4) == 1);
    CHECK(same("parts"));
    // a finished run with the same deck has nothing to do
    CHECK_THAT(train_tiny(folder / "parts", data, more + Arguments{steps(4)}).output,
               Contains("nothing to do"));
    const Outcome changed =
        train_tiny(folder / "changed", data, more + Arguments{"--kernels.logits_chunk_mib=2", steps(4)});
    CHECK_THAT(changed.output,
               Contains("the run differs from the checkpoint's: kernels.logits_chunk_mib was 1, is 2"));
    CHECK(!same("changed"));
    // another run that continues this one
    train_tiny(
        folder / "next", data,
        more + Arguments{"--checkpoint.initial_load_model_only=false",
                         "--checkpoint.initial_load_path=" + (folder / "parts" / checkpoint_of(2)).string(),
                         steps(4)});
    CHECK(chunks_in("next", 4) == 1);
    CHECK(same("next"));
}

TEST_CASE("GPU: steps as graphs give the same bits as steps kernel by kernel") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments more = {"--checkpoint.enable",
                            "--checkpoint.interval=3",
                            "--checkpoint.async_mode=async_with_pinned_mem",
                            "--training.global_batch_size=8",
                            "--validation.enable",
                            "--validation.freq=2",
                            "--validation.steps=1",
                            "--validation.dataset_path=" + data.string()};
    const Outcome graphs = train_tiny(folder / "graphs", data, more + on_gpu),
                  kernels = train_tiny(folder / "kernels", data,
                                       more + on_gpu + Arguments{"--training.disable_cuda_graphs"}),
                  shared = train_tiny(folder / "shared", data, more + on_gpu, 2);
    CHECK_THAT(graphs.output, Contains("The GPU runs steps as CUDA graphs"));
    const char *const first_step = "GPU memory after the first step: ",
                      *const first_graphs = "GPU memory after the first graphs: ";
    CHECK_THAT(graphs.output,
               Contains(first_step) && Contains(first_graphs) && !Contains("more than planned"));
    CHECK_THAT(kernels.output, Contains(first_step) && !Contains(first_graphs));
    CHECK_THAT(shared.output, !Contains(first_step));
    CHECK_THAT(kernels.output, Contains("kernel by kernel: training.disable_cuda_graphs"));
    CHECK_THAT(shared.output, Contains("kernel by kernel: CUDA graphs need NCCL between the ranks"));
    for (const int step : {3, 6})
        CHECK(differing_arrays(folder / "graphs" / checkpoint_of(step),
                               folder / "kernels" / checkpoint_of(step))
                  .empty());
    CHECK(read_metrics(folder / "graphs").losses() == read_metrics(folder / "kernels").losses());
}

TEST_CASE("GPU: attention by cuDNN trains as our own kernels do, as graphs and kernel by kernel") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments more = on_gpu + Arguments{"--training.mixed_precision_param=bfloat16",
                                              "--checkpoint.enable", "--checkpoint.interval=6"};
    const auto run = [&](const char* name, const Arguments& options) {
        return train_tiny(folder / name, data, more + options).output;
    };
    CHECK_THAT(run("own", {"--kernels.attention=own"}), Contains("Attention kernels: our own kernels"));
    const std::string graphs = run("graphs", {});
    if (graphs.find("cuDNN cannot be loaded") != std::string::npos) return skip("the program finds no cuDNN");
    CHECK_THAT(graphs, Contains("Attention kernels: cuDNN 9.") && Contains(", forward and backward"));
    run("kernels", {"--training.disable_cuda_graphs"});
    check_close(read_metrics(folder / "graphs").losses(), read_metrics(folder / "own").losses(), 1e-2);
    CHECK(read_metrics(folder / "graphs").losses() == read_metrics(folder / "kernels").losses());
    CHECK(differing_arrays(folder / "graphs" / checkpoint_of(6), folder / "kernels" / checkpoint_of(6))
              .empty());
    run("any order", {"--kernels.deterministic=false"});
    check_close(read_metrics(folder / "any order").losses(), read_metrics(folder / "own").losses(), 1e-2);
}

TEST_CASE("GPU: runs resume with or without offloading, and checkpoints are the same") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments more = {"--checkpoint.enable", "--checkpoint.interval=2", "--lr_scheduler.total_steps=6",
                            "--training.mixed_precision_param=bfloat16", "--activation_checkpoint.mode=full"},
                    offload = {"--training.enable_cpu_offload"},
                    beside = {"--checkpoint.async_mode=async_with_pinned_mem"};
    const Outcome whole = train_tiny(folder / "whole", data, more + on_gpu);
    CHECK_THAT(whole.output, Contains("starting from scratch\n"));
    const auto same = [&](const char* run) {
        return differing_arrays(folder / "whole" / checkpoint_of(6), folder / run / checkpoint_of(6));
    };
    const Outcome run =
        train_tiny(folder / "first", data, more + on_gpu + offload + beside + Arguments{steps(4)});
    CHECK_THAT(
        run.output,
        Contains(
            "Offloaded to host memory: master weights, optimizer moments, inputs of recomputed blocks") &&
            Contains("starting from scratch; the host draws the initial weights, since it keeps them"));
    fs::copy(folder / "first", folder / "moved", fs::copy_options::recursive);
    const Outcome on = train_tiny(folder / "first", data, more + on_gpu);
    CHECK_THAT(on.output, Contains("Resuming from") && !Contains("enable_cpu_offload"));
    CHECK(same("first").empty());
    train_tiny(folder / "second", data, more + on_gpu + Arguments{steps(4)});
    train_tiny(folder / "second", data, more + on_gpu + offload);
    CHECK(same("second").empty());
    // the same deck on a CPU, and a start that resets the moments
    const Outcome cpu = train_tiny(folder / "moved", data, more + on_cpu + offload);
    CHECK_THAT(cpu.output, Contains("Resuming from") &&
                               Contains("Notice: training.enable_cpu_offload has no effect on CPUs"));
    const Arguments anew = {
        "--checkpoint.exclude_from_loading=optimizer,lr_scheduler", "--checkpoint.interval=100", steps(5),
        "--checkpoint.initial_load_model_only=false",
        "--checkpoint.initial_load_path=" + (folder / "second" / checkpoint_of(4)).string()};
    train_tiny(folder / "here", data, more + on_gpu + anew);
    train_tiny(folder / "there", data, more + on_gpu + offload + anew);
    CHECK(differing_arrays(folder / "here" / checkpoint_of(5), folder / "there" / checkpoint_of(5)).empty());
}

TEST_CASE("GPU: ranks share one GPU, on any mesh") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments more = {"--training.global_batch_size=4", "--training.local_batch_size=2"};
    train_tiny(folder / "one", data, more + on_cpu);
    const Arguments meshes[] = {{"--parallelism.data_parallel_shard_degree=2"},
                                {"--parallelism.tensor_parallel_degree=2"},
                                {"--parallelism.pipeline_parallel_degree=2"},
                                {"--parallelism.context_parallel_degree=2"}};
    for (const Arguments& mesh : meshes) {
        INFO(mesh.front());
        const Outcome run = train_tiny(folder / mesh.front(), data, more + on_gpu + mesh, 2);
        CHECK_THAT(run.output, Contains("shared by 2 ranks"));
        CHECK_THAT(run.output,
                   Contains("Ranks exchange tensors through pinned host memory: ranks 0 and 1 share GPU "));
        check_close(read_metrics(folder / mesh.front()).losses(), read_metrics(folder / "one").losses(),
                    1e-4);
    }
}

TEST_CASE("GPU: NCCL is refused for ranks that share a GPU or compute on CPUs") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments nccl = {"--comm.transport=nccl"};
    const Outcome shared = run_coeus(tiny_run(folder / "run", data, nccl + on_gpu), 2);
    CHECK(shared.exit_code == 2);
    CHECK_THAT(shared.output, Contains("comm.transport = \"nccl\": ranks 0 and 1 share GPU ") &&
                                  Contains("comm.transport = \"staged\""));
    const Outcome cpu = run_coeus(tiny_run(folder / "run", data, nccl + on_cpu), 2);
    CHECK(cpu.exit_code == 2);
    CHECK_THAT(cpu.output, Contains("comm.transport = \"nccl\": NCCL is for GPUs, but device = \"cpu\""));
}

TEST_CASE("GPU: 200 steps end at the same loss as on the CPU", "[.][long]") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments more = {steps(200), "--lr_scheduler.warmup_steps=20"};
    train_tiny(folder / "cpu", data, more + on_cpu);
    train_tiny(folder / "gpu", data, more + on_gpu);
    const MetricLines cpu = read_metrics(folder / "cpu"), gpu = read_metrics(folder / "gpu");
    check_close(gpu.losses(), cpu.losses(), 2e-2);
    CHECK(gpu.losses().back() < 0.8 * gpu.losses().front());
}

TEST_CASE("GPU: an exported model is the trained model") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments more = {"--checkpoint.enable", "--checkpoint.interval=100",
                            "--checkpoint.last_save_in_hf", "--checkpoint.last_save_model_only"};
    train_tiny(folder / "run", data, more + on_gpu);
    const fs::path hub = folder / "run/checkpoint/hf-00000006";
    const Outcome same =
        run_coeus({"info", (folder / "run" / checkpoint_of(6)).string(), "--diff", hub.string()});
    INFO(same.output);
    CHECK(same.exit_code == 0);
    // and another run starts from it
    const Outcome next = train_tiny(folder / "next", data,
                                    Arguments{"--checkpoint.enable", "--checkpoint.initial_load_in_hf",
                                              "--checkpoint.initial_load_path=" + hub.string(), steps(1)} +
                                        on_gpu);
    CHECK_THAT(next.output, Contains("Starting from the weights of"));
}

TEST_CASE("GPUs: ranks with a GPU each train by NCCL as one rank does, with graphs and without",
          "[.][nccl]") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments more = {"--training.global_batch_size=4", "--training.local_batch_size=2",
                            "--model.n_layers=4"};
    train_tiny(folder / "one", data, more + on_cpu);
    const Arguments nccl = {"--comm.transport=nccl"};
    const Arguments meshes[] = {{"--parallelism.data_parallel_shard_degree=2"},
                                {"--parallelism.data_parallel_replicate_degree=2"},
                                {"--parallelism.tensor_parallel_degree=2"},
                                {"--parallelism.pipeline_parallel_degree=2"},
                                {"--parallelism.context_parallel_degree=2"}};
    for (const Arguments& mesh : meshes)
        for (const char* graphs :
             {"--training.disable_cuda_graphs=false", "--training.disable_cuda_graphs"}) {
            INFO(mesh.front() << " " << graphs);
            const fs::path run = folder / (mesh.front() + graphs);
            const Outcome outcome = train_tiny(run, data, more + on_gpu + nccl + mesh + Arguments{graphs}, 2);
            CHECK_THAT(outcome.output, Contains("Ranks exchange tensors through NCCL "));
            check_close(read_metrics(run).losses(), read_metrics(folder / "one").losses(), 1e-4);
        }
}

TEST_CASE("GPU: slow ranks are detected, with timed events if steps are not graphs") {
    const TemporaryFolder folder;
    const fs::path data = write_data(folder);
    const Arguments steps = on_gpu + Arguments{"--training.steps=4"};
    const Arguments more = {"--metrics.straggler_freq=2", "--metrics.straggler_percent=0"};
    const Outcome run = train_tiny(folder / "seen", data, more + steps, 2);
    // two ranks are never equally fast; they share one GPU and MPI carries the tensors, so there are no
    // graphs
    CHECK_THAT(run.output, Contains("Slow rank ") && Contains("its computation takes "));
    CHECK(read_metrics(folder / "seen").losses() ==
          read_metrics((train_tiny(folder / "unseen", data, steps, 2), folder / "unseen")).losses());
}
