// SPDX-License-Identifier: Apache-2.0
// The roofline of four decks: with the rates that a review assumed before Coeus had run on a GPU, with those
// of the built-in machine files, and beside what was measured.
#include "coeus/predict/roofline.hpp"

#include "coeus/deck/command_line.hpp"
#include "coeus/pretrained/model_source.hpp"
#include "coeus/session/chunk_choice.hpp"
#include "coeus/setup/run_options.hpp"
#include "coeus/train/preflight.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

const std::string roofline_decks = paths::source() + "/tests/data/roofline/",
                  machines = paths::source() + "/tests/data/machines/";

// A deck's model and options for a GPU.
struct PlannedDeck {
    DecoderConfig model;
    EngineOptions options;
};

PlannedDeck planned(const std::string& file, int ranks, const Words& more = {}) {
    Words words = {roofline_decks + file, "--dry_run", "--device=cuda"};
    words.insert(words.end(), more.begin(), more.end());
    const Config config = parse_command_line(words).config;
    const DecoderConfig model = model_from_deck(config);
    EngineOptions options = planned_options(config, model, mesh_shape(config, ranks), 0);
    options.machine.architecture = 90;
    options.graphs = true;
    return {model, options};
}

// Attention's backward by our own kernels, its forward by cuDNN, whose backward gets no workspace.
PlannedDeck with_own_backward(PlannedDeck p) {
    p.options.machine.cudnn_bytes = 4096;
    return p;
}

// With the chunks of logits that a run has on such a GPU.
PlannedDeck with_chunks_on(PlannedDeck p, const char* gpu_name) {
    p.options = with_largest_chunks(p.model, p.options, machine_of_gpu(gpu_name).gpu->memory_bytes);
    return p;
}

// A machine with the rates of the kernels of the runs of 2026-11-27, as part of those of an H200. Kernels
// that have changed since have derived rates in the files.
MachineFile as_measured(const char* model, double part, double adam) {
    MachineFile machine = machine_of_gpu(model);
    std::erase_if(machine.rows, [](const MachineFile::Rows& rows) { return rows.kernel != "*"; });
    const auto add = [&](const char* kernel, double bytes_per_second, double bytes_per_call = 0) {
        machine.rows.push_back({kernel, bytes_per_call, part * bytes_per_second});
    };
    add("rms_norm_backward", 1592e9, 537e6);
    add("rms_norm_backward", 1683e9, 268e6);
    for (const char* kernel : {"swiglu", "swiglu_backward"}) add(kernel, 2470e9);
    for (const char* kernel : {"rope", "rms_norm", "sum_of_squares"}) add(kernel, 2230e9);
    add("adam", adam);
    return machine;
}

// An H100's links at a part of their rate.
MachineFile with_slower_links(double factor) {
    MachineFile machine = machine_of_gpu("h100");
    for (auto& [operation, curve] : machine.levels.front().bandwidth)
        for (auto& [bytes, rate] : curve) rate /= factor;
    return machine;
}

RooflineRow find_row(const Roofline& roofline, const std::string& name) {
    const auto row = std::ranges::find(roofline.rows, name, &RooflineRow::name);
    return row == roofline.rows.end() ? RooflineRow() : *row;
}

double row_of(const Roofline& roofline, const std::string& name) {
    return find_row(roofline, name).local_batch;
}

double once_of(const Roofline& roofline, const std::string& name) {
    return find_row(roofline, name).once;
}

// The waits of the table by purpose are those of the rows, in a local batch and in the rest of a step. A step
// of one local batch waits no longer than its communication takes. (What only the first local batch waits for
// may be communication of every local batch.)
void check_communication(const Roofline& roofline) {
    double all = 0, all_once = 0;
    for (const CommunicationRow& row : roofline.communication) {
        all += row.total;
        all_once += row.total_once;
    }
    for (const CommunicationRow& row : roofline.communication) {
        CAPTURE(row.name, row.total, row.exposed, row.total_once, row.exposed_once, all_once);
        const std::string waits = "waits for " + row.name;
        CHECK(row.exposed == Approx(row_of(roofline, waits)).margin(1e-9));
        CHECK(row.exposed_once == Approx(once_of(roofline, waits)).margin(1e-9));
        CHECK(row.exposed <= all + 1e-9);
        CHECK(row.exposed + row.exposed_once <= all + all_once + 1e-9);
    }
}

}  // namespace

TEST_CASE("the roofline with the rates of a review gives the MFU that the review estimated") {
    struct Estimated {
        const char* deck;
        int ranks;
        const char* machine;
        double mfu;
    };
    for (const auto& [deck, ranks, machine, mfu] : {Estimated{"roofline_a.toml", 1, "reviewed_h100", 0.54},
                                                    Estimated{"roofline_b.toml", 1, "reviewed_h200", 0.59},
                                                    Estimated{"roofline_c.toml", 1, "reviewed_h200", 0.47},
                                                    Estimated{"roofline_d.toml", 8, "reviewed_h100", 0.43}}) {
        CAPTURE(deck);
        const PlannedDeck p = with_own_backward(planned(deck, ranks));
        const Roofline roofline =
            roofline_of(p.model, p.options, machine_of_gpu(machines + machine + ".toml"));
        CHECK(roofline.mfu_of_local_batch().value() == Approx(mfu).margin(0.03));
        CHECK(roofline.by_data_sheet.empty());
        CHECK(roofline.left_out.empty());
    }
}

TEST_CASE("what a run does by default reaches the MFU that is asked for, at the rates of the machine files") {
    struct Bar {
        const char* deck;
        int ranks;
        const char* gpu;
        double mfu;
    };
    for (const auto& [deck, ranks, gpu, mfu] :
         {Bar{"roofline_a.toml", 1, "h100-sxm", 0.63}, Bar{"roofline_b.toml", 1, "h200", 0.66},
          Bar{"roofline_c.toml", 1, "h200", 0.655}, Bar{"roofline_d.toml", 8, "h100-sxm", 0.61}}) {
        CAPTURE(deck);
        const PlannedDeck p = with_chunks_on(planned(deck, ranks), gpu);
        CHECK(p.options.deterministic);
        CHECK(p.options.chunk_bytes == gpu_chunk_bytes.front());
        const Roofline roofline = roofline_of(p.model, p.options, machine_of_gpu(gpu));
        CHECK(roofline.mfu_of_local_batch().value() >= mfu);
        CHECK(roofline.mfu_of_step().value() >= mfu);
        CHECK(roofline.by_data_sheet.empty());
        CHECK(roofline.left_out.empty());
        // with our own backward, each is slower
        const PlannedDeck own = with_own_backward(planned(deck, ranks));
        const Roofline slower = roofline_of(own.model, own.options, machine_of_gpu(gpu));
        CHECK(slower.mfu_of_local_batch().value() < roofline.mfu_of_local_batch().value());
    }
}

// doc/performance.md: 7B with 16 x 1024 tokens and 8B with 8192 tokens on an H200, with our own backward; 4
// of the blocks of 8B on an H100 with either; 8B, and 4 of its blocks with 2 x 8192 tokens, on an H200
TEST_CASE("the roofline is near the steps that were measured") {
    const Words one = {"--training.global_batch_size=-1"},
                four = {"--training.global_batch_size=-1", "--model.n_layers=4"};
    const auto step = [](const PlannedDeck& p, const MachineFile& machine) {
        return roofline_of(p.model, p.options, machine).step();
    };
    const MachineFile& first_runs = machine_of_gpu(machines + "h200_first_runs.toml");
    CHECK(step(with_own_backward(planned("roofline_b.toml", 1, one)), first_runs) ==
          Approx(1.208).epsilon(0.05));
    CHECK(step(with_own_backward(planned("roofline_c.toml", 1, one)), first_runs) ==
          Approx(0.986).epsilon(0.05));
    const MachineFile h100 = as_measured("h100", 0.963, 1550e9), h200 = as_measured("h200", 1, 1759e9);
    CHECK(step(planned("roofline_c.toml", 1, four), h100) == Approx(8192 / 52947.0).epsilon(0.05));
    CHECK(step(with_own_backward(planned("roofline_c.toml", 1, four)), h100) ==
          Approx(8192 / 46962.0).epsilon(0.05));
    CHECK(step(planned("roofline_c.toml", 1, one), h200) == Approx(8192 / 9988.0).epsilon(0.05));
    Words two_sequences = four;
    two_sequences.emplace_back("--training.local_batch_size=2");
    CHECK(step(planned("roofline_c.toml", 1, two_sequences), h200) == Approx(16384 / 58770.0).epsilon(0.05));
}

TEST_CASE("a roofline counts what a step adds to its local batches, and collectives that nothing hides") {
    const PlannedDeck p = planned("roofline_d.toml", 8);
    const Roofline roofline = roofline_of(p.model, p.options, machine_of_gpu("h100"));
    double rows = 0, once = 0;
    for (const RooflineRow& row : roofline.rows) {
        rows += row.local_batch;
        once += row.once;
    }
    CHECK(rows == Approx(roofline.local_batch));
    CHECK(once == Approx(roofline.once));
    CHECK(roofline.step() == Approx(16 * roofline.local_batch + roofline.once));
    CHECK(roofline.mfu_of_step() < roofline.mfu_of_local_batch());
    CHECK(row_of(roofline, "kernels slowed by collectives") > 0);
    // only the first local batch waits: each gathers the embedding for the next
    CHECK(row_of(roofline, "waits for gathers of weights") == Approx(0).margin(1e-9));
    CHECK(once_of(roofline, "waits for gathers of weights") > 0);
    CHECK(row_of(roofline, "optimizer") == Approx(0).margin(1e-9));
    check_communication(roofline);
    // the graphs of three local batches, with their collectives
    CHECK(roofline.graph_nodes > 3 * roofline.launches);
    CHECK(roofline.graph_nodes < 6 * roofline.launches);

    const Roofline exposed = roofline_of(p.model, p.options, with_slower_links(30));
    CHECK(row_of(exposed, "waits for sums of gradients") > 0.1);
    CHECK(row_of(exposed, "waits for gathers of weights") > 0.1);
    check_communication(exposed);
}

TEST_CASE("a roofline has both orders of operations, and each is the other one's other") {
    const PlannedDeck p = planned("roofline_d.toml", 8);
    const MachineFile machine = with_slower_links(10);
    const Roofline overlapped = roofline_of(p.model, p.options, machine),
                   serial = roofline_of(p.model, p.options, machine, LaunchOrder::serial);
    CHECK(overlapped.other->order == LaunchOrder::serial);
    CHECK(serial.other->order == LaunchOrder::overlapped);
    CHECK(serial.local_batch > overlapped.local_batch);
    CHECK(serial.local_batch == Approx(overlapped.other->local_batch));
    CHECK(serial.once == Approx(overlapped.other->once));
    CHECK(overlapped.local_batch == Approx(serial.other->local_batch));
    double exposed = 0, exposed_once = 0;
    for (const CommunicationRow& row : serial.communication) {
        exposed += row.exposed;
        exposed_once += row.exposed_once;
    }
    CHECK(overlapped.other->exposed == Approx(exposed));
    CHECK(overlapped.other->exposed_once == Approx(exposed_once));
    // a rank with one communicator has one order
    CHECK_FALSE(roofline_of(p.model, planned("roofline_c.toml", 1).options, machine).other.has_value());
}

TEST_CASE("the order of a run is that of the machine's NCCL and driver") {
    const PlannedDeck p = planned("roofline_d.toml", 8);
    MachineFile machine = machine_of_gpu("h100");
    CHECK(planned_order(machine, p.options) == LaunchOrder::overlapped);
    machine.nccl = 22602, machine.driver = 12090;
    CHECK(planned_order(machine, p.options) == LaunchOrder::serial);
    EngineOptions one_by_one = p.options;
    one_by_one.graphs = false;
    CHECK(planned_order(machine, one_by_one) == LaunchOrder::overlapped);
    // few blocks have room at once
    CHECK(planned_order(machine, p.options, 8) == LaunchOrder::unordered);
    // a pipeline may have a communicator more, of the ranks with the embedding table
    EngineOptions stages = p.options;
    stages.mesh = {.pp = 2, .dp_shard = 4};
    const int64_t blocks = int64_t(machine.overlap.value().sms),
                  most = carrying_communicators(stages.mesh) + 1;
    CHECK(planned_order(machine, stages, blocks / most) == LaunchOrder::unordered);
    CHECK(planned_order(machine, stages, blocks / most + 1) == LaunchOrder::serial);
    machine.nccl = 22703;
    CHECK(planned_order(machine, p.options) == LaunchOrder::overlapped);
    machine.driver = 12040;
    CHECK(planned_order(machine, p.options) == LaunchOrder::serial);
}

TEST_CASE("two units ahead, gathers of a slow network are hidden that are not with one") {
    const MachineFile machine = with_slower_links(10);
    const PlannedDeck one = planned("roofline_d.toml", 8),
                      two = planned("roofline_d.toml", 8, {"--parallelism.fsdp_prefetch=2"});
    const Roofline near = roofline_of(one.model, one.options, machine),
                   far = roofline_of(two.model, two.options, machine);
    CHECK(row_of(near, "waits for gathers of weights") > 0.005);
    CHECK(row_of(far, "waits for gathers of weights") == Approx(0).margin(1e-9));
    CHECK(far.local_batch < near.local_batch);
}

TEST_CASE("each axis of a mesh has its exposed communication") {
    struct Divided {
        Words options;
        std::string purpose, waits;
    };
    for (const auto& [options, purpose, waits] :
         {Divided{{"--parallelism.tensor_parallel_degree=4", "--parallelism.data_parallel_shard_degree=2"},
                  "tensor parallelism",
                  "waits for tensor parallelism"},
          Divided{{"--parallelism.context_parallel_degree=4", "--parallelism.data_parallel_shard_degree=2"},
                  "keys and values",
                  "waits for keys and values"},
          Divided{{"--parallelism.pipeline_parallel_degree=4", "--parallelism.data_parallel_shard_degree=2",
                   "--training.local_batch_size=8"},
                  "messages of stages",
                  "waits for messages of stages"}}) {
        CAPTURE(purpose);
        const PlannedDeck p = planned("roofline_d.toml", 8, options);
        const Roofline roofline = roofline_of(p.model, p.options, machine_of_gpu("h100"));
        const auto row = std::ranges::find(roofline.communication, purpose, &CommunicationRow::name);
        REQUIRE(row != roofline.communication.end());
        CHECK(row->exposed > 0);
        // an operation may also wait until those that were submitted before it begin
        double all = 0;
        for (const CommunicationRow& each : roofline.communication) all += each.total;
        CHECK(row->exposed <= all * (1 + 1e-9));
        CHECK(row->exposed == Approx(row_of(roofline, waits)));
        check_communication(roofline);
        CHECK(roofline.left_out.empty());
    }
}

// doc/performance.md: 38,452 and 38,904 ms when our own kernels computed attention
TEST_CASE("context parallel: steps whose attention cuDNN computes in blocks take no longer than asked for") {
    struct Bar {
        const char* method;
        double seconds;
    };
    for (const auto& [method, seconds] : {Bar{"alltoall", 31.0}, Bar{"allgather", 32.0}}) {
        CAPTURE(method);
        const PlannedDeck p =
            planned("roofline_d.toml", 8,
                    {"--parallelism.context_parallel_degree=4", "--parallelism.data_parallel_shard_degree=2",
                     fmt::format("--parallelism.context_parallel_rotate_method={}", method)});
        const Roofline roofline = roofline_of(p.model, p.options, machine_of_gpu("h100"));
        CHECK(roofline.step() <= seconds);
        CHECK(roofline.left_out.empty());
        check_communication(roofline);
        // what merges and adds up takes its time
        MachineFile slow = machine_of_gpu("h100");
        for (MachineFile::Rows& rows : slow.rows)
            if (rows.kernel == "*") rows.bytes_per_second /= 100;
        const Roofline slower = roofline_of(p.model, p.options, slow);
        for (const char* row : {"attention, forward", "attention, backward"})
            CHECK(row_of(slower, row) > 1.5 * row_of(roofline, row));
        // our own kernels take longer, so they hide more
        PlannedDeck own = p;
        own.options.machine.cudnn_bytes = 0;
        const Roofline by_own = roofline_of(own.model, own.options, machine_of_gpu("h100"));
        CHECK(by_own.step() > 1.15 * roofline.step());
        CHECK(row_of(by_own, "waits for keys and values") <=
              row_of(roofline, "waits for keys and values") + 1e-9);
    }
}

TEST_CASE("without cuDNN's backward no workspace is planned for it, and Hopper has the rate of wgmma") {
    const auto with = [](const char* attention) {
        return planned("roofline_c.toml", 1, {std::string("--kernels.attention=") + attention});
    };
    const auto workspace_of = [](const PlannedDeck& p) {
        return Engine(p.model, p.options).layer_memory().workspace;
    };
    PlannedDeck forward = with("cudnn_forward");
    CHECK(workspace_of(forward) < workspace_of(with("auto")) / 8);
    for (const char* own : {"own", "mma"}) CHECK(workspace_of(with(own)) <= workspace_of(forward));

    MachineFile machine = machine_of_gpu("h200");
    std::erase_if(machine.attention, [](const MachineFile::Attention& a) { return a.kernel == "own_wgmma"; });
    const auto backward_of = [&] {
        return row_of(roofline_of(forward.model, forward.options, machine), "attention, backward");
    };
    const double by_mma = backward_of();
    machine.attention.push_back({.kernel = "own_wgmma", .head_dim = 128, .backward = 386e12});  // twice mma's
    CHECK(backward_of() < 0.55 * by_mma);
    forward.options.machine.architecture = 100;
    CHECK(backward_of() == Approx(by_mma));
}

TEST_CASE("asynchronous tensor parallelism takes no longer than is asked for, and a dry run advises it") {
    struct Bar {
        const char *shards, *ranks;
        double whole, asynchronous, exposed;  // seconds of a step, share of it
    };
    for (const auto& [shards, ranks, whole, asynchronous, exposed] :
         {Bar{"1", "8", 41.3, 32.0, 0.16}, Bar{"4", "2", 27.3, 25.41, 0.02}}) {
        CAPTURE(ranks);
        const MachineFile machine = machine_of_gpu("h100");
        Words options = {std::string("--parallelism.data_parallel_shard_degree=") + shards,
                         std::string("--parallelism.tensor_parallel_degree=") + ranks};
        const PlannedDeck without = planned("roofline_d.toml", 8, options);
        const Roofline plain = roofline_of(without.model, without.options, machine);
        options.emplace_back("--parallelism.enable_async_tensor_parallel");
        const PlannedDeck p = planned("roofline_d.toml", 8, options);
        const Roofline roofline = roofline_of(p.model, p.options, machine);
        CHECK(plain.step() <= whole);
        CHECK(roofline.step() <= asynchronous);
        CHECK(row_of(roofline, "waits for tensor parallelism") <= exposed * roofline.local_batch);
        check_communication(roofline);
        CHECK(plain.other_tokens.value().step == Approx(roofline.step()));
        CHECK(roofline.other_tokens.value().step == Approx(plain.step()));
        CHECK_THAT(plain.text(machine, without.options.mesh),
                   Contains(fmt::format("\n  asynchronous tensor parallelism (parallelism."
                                        "enable_async_tensor_parallel): a step would take {:.1f} ms",
                                        1e3 * roofline.step())));
        CHECK_THAT(
            roofline.text(machine, p.options.mesh),
            Contains(fmt::format("\n  without parallelism.enable_async_tensor_parallel: a step would take "
                                 "{:.1f} ms",
                                 1e3 * plain.step())));
        // ranks of several nodes send messages
        MachineFile small_nodes = machine;
        small_nodes.ranks_of_node = 1;
        CHECK(roofline_of(p.model, p.options, small_nodes).local_batch > roofline.local_batch);
    }
    const PlannedDeck shards = planned("roofline_d.toml", 8);
    CHECK_FALSE(roofline_of(shards.model, shards.options, machine_of_gpu("h100")).other_tokens.has_value());
}

// 1F1B on 4 ranks with 8 micro-batches of one sequence: 3 of 11 turns are idle
TEST_CASE("a pipeline rank waits for others as its schedule says") {
    const Words options = {"--parallelism.pipeline_parallel_degree=4",
                           "--parallelism.data_parallel_shard_degree=2", "--training.local_batch_size=8"};
    const PlannedDeck p = planned("roofline_d.toml", 8, options);
    const Roofline roofline = roofline_of(p.model, p.options, machine_of_gpu("h100"));
    const double waits = row_of(roofline, "waits for other stages"),
                 messages = row_of(roofline, "waits for messages of stages");
    CHECK(waits == Approx((roofline.local_batch - waits - messages) * 3 / 8).epsilon(0.01));
    CHECK_FALSE(roofline.mfu_of_local_batch().has_value());
}

// 8, 9, 8 and 7 blocks; the last rank has the output layer, too
TEST_CASE("the roofline of a pipeline is that of its slowest rank") {
    PlannedDeck p = planned("roofline_d.toml", 8,
                            {"--parallelism.pipeline_parallel_degree=4",
                             "--parallelism.data_parallel_shard_degree=2", "--training.local_batch_size=8"});
    const MachineFile machine = machine_of_gpu("h100");
    const Roofline slowest = roofline_of_slowest(p.model, p.options, machine);
    REQUIRE(slowest.steps_of_ranks.size() == 4);
    for (int rank = 0; rank < 4; ++rank) {
        p.options.rank = 2 * rank;
        const Roofline own = roofline_of(p.model, p.options, machine);
        CHECK(own.pipeline_rank == rank);
        CHECK(own.steps_of_ranks.empty());
        CHECK(own.step() == slowest.steps_of_ranks[size_t(rank)]);
        CHECK(own.step() <= slowest.step());
        CHECK_THAT(
            own.text(machine, p.options.mesh),
            Contains(fmt::format("\n  pipeline rank {}; waits for other stages: as if each of them took "
                                 "as long as its own",
                                 rank)));
    }
    CHECK(slowest.step() == std::ranges::max(slowest.steps_of_ranks));
    CHECK(slowest.step() > 1.05 * slowest.steps_of_ranks[0]);
    CHECK(slowest.pipeline_rank == 1);
    CHECK_THAT(slowest.text(machine, p.options.mesh),
               Contains("\n  pipeline rank 1, the slowest; waits") &&
                   Contains(fmt::format("\n  a step by each pipeline rank: {:.1f}, {:.1f}, ",
                                        1e3 * slowest.steps_of_ranks[0], 1e3 * slowest.steps_of_ranks[1])));
}

TEST_CASE("a dry run prints a roofline, and says what no rate is known for") {
    const auto text = [](const std::string& deck, const Words& more, int ranks) {
        Words words = {roofline_decks + deck, "--dry_run"};
        words.insert(words.end(), more.begin(), more.end());
        for (const Finding& line : preflight(parse_command_line(words), ranks))
            if (line.text.starts_with("Roofline ") || line.text.starts_with("No roofline")) return line.text;
        return std::string();
    };
    const std::string c = text("roofline_c.toml", {"--gpu=h200"}, 1);
    CHECK_THAT(c, Contains("Roofline by the rates of h200") && Contains("), measured, in part derived:") &&
                      !Contains("TF32") && Contains("attention, backward") && Contains("MFU at most 6") &&
                      Contains("step of 16 local batches") && Contains("nodes of the step's CUDA graphs") &&
                      !Contains("left out") && !Contains("data sheet,"));
    CHECK_THAT(text("roofline_d.toml", {"--gpu=h100"}, 8),
               Contains("waits for gathers of weights") && Contains("communication, overlapped") &&
                   Contains("\n  one after the other: ") && Contains("sums of gradients   "));
    CHECK_THAT(
        text("roofline_c.toml", {"--gpu=b200"}, 1),
        Contains("at the peaks of the data sheet, which no kernel reaches: RoPE; SwiGLU; "
                 "attention, backward (cudnn); loss and embedding; norms; optimizer; zeroing, casts, sums"));
    CHECK_THAT(
        text("roofline_d.toml", {"--gpu=l40s"}, 8),
        Contains(
            "left out, since the machine file says nothing about it: all_gather; all_reduce; gaps between "
            "launches; reduce_scatter"));
    CHECK_THAT(
        text("roofline_c.toml", {"--gpu=h200", "--training.enable_cpu_offload"}, 1),
        Contains(
            "No roofline: the transfers of offloaded state (training.enable_cpu_offload) are not recorded"));
    CHECK_THAT(text("roofline_c.toml", {"--gpu=h200", "--model.converters=float8"}, 1),
               Contains("quantizing") && !Contains("MFU"));
    CHECK_THAT(text("roofline_c.toml",
                    {"--gpu=h200", "--training.mixed_precision_param=float32", "--kernels.allow_tf32"}, 1),
               Contains("products in TF32: no rate is known; their time is that of products in float32") &&
                   !Contains("MFU"));
    CHECK_THAT(text("roofline_d.toml",
                    {"--gpu=h100", "--parallelism.pipeline_parallel_degree=2",
                     "--parallelism.data_parallel_shard_degree=4"},
                    8),
               Contains("waits for other stages") && Contains("the slowest") && !Contains("MFU"));
    CHECK(text("roofline_c.toml", {"--device=cuda"}, 1).empty());
}
