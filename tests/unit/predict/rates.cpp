// SPDX-License-Identifier: Apache-2.0
// Times of calls and collectives, computed by hand, and the published all-reduces of 8 H200s.
#include "coeus/predict/rates.hpp"

#include "support/catch.hpp"

#include <cmath>

using namespace coeus;

namespace {

MachineFile machine_with(const std::string& tables) {
    return parse_machine_file("name = \"m\"\ntitle = \"m\"\nkind = \"sheet\"\n" + tables, "m.toml");
}

Call product(const char* form, int64_t m, int64_t n, int64_t k) {
    return {.kernel = "gemm",
            .variant = form,
            .type = Dtype::bf16,
            .size = {m, n, k},
            .flops = 2.0 * double(m) * double(n) * double(k),
            .bytes = 2.0 * double(m * n + m * k + n * k)};
}

Call attention(const char* kernel, const char* variant, int64_t tokens, double flops) {
    return {.kernel = kernel,
            .variant = variant,
            .type = Dtype::bf16,
            .size = {1, tokens, 128},
            .flops = flops,
            .bytes = 1};
}

Call row(const char* kernel, double bytes) {
    return {.kernel = kernel, .variant = "", .type = Dtype::bf16, .flops = 1, .bytes = bytes};
}

using Source = Estimate::Source;

}  // namespace

TEST_CASE("products take the rate of the nearest shapes of their form, or the memory's time") {
    const MachineFile machine = machine_with(R"(
[peak]
bf16 = 1e12
from = "sheet"
[memory]
bytes_per_second = 1e9
from = "sheet"
[[products]]
type = "bf16"
form = "nt"
m = 1000
n = 1000
k = 1000
flops = 100e9
from = "x"
[[products]]
type = "bf16"
form = "nt"
m = 4000
n = 1000
k = 1000
flops = 400e9
from = "x"
[[products]]
type = "f32"
flops = 10e9
from = "x"
)");
    const Rates rates(machine);
    CHECK(rates.seconds(product("nt", 1000, 1000, 1000))->seconds == Approx(2e9 / 100e9).epsilon(1e-4));
    // half way in log(m): both count alike
    CHECK(rates.seconds(product("nt", 2000, 1000, 1000))->seconds == Approx(4e9 / 250e9));
    CHECK(rates.seconds(product("nt", 2000, 1000, 1000))->source == Source::rate);
    // three times as far from the first point as from the second, which counts three times as much
    CHECK(rates.seconds(product("nt", 16000, 1000, 1000))->seconds ==
          Approx(32e9 / ((100e9 / 2 + 400e9 / 1) / 1.5)));
    // of another form only the peak is known, and the operands pass through memory: 1.02e6 bytes
    const Estimate thin = *rates.seconds(product("tn", 100, 100, 1000));
    CHECK(thin.source == Source::peak);
    CHECK(thin.seconds == Approx(2 * (100.0 * 100 + 2 * 100 * 1000) / 1e9));
    CHECK(rates.seconds(product("nn", 1000, 1000, 100000))->seconds == Approx(402e6 / 1e9));
    // a rate without form and size is for every product of its type
    Call single = product("tn", 10000, 10000, 10000);
    single.type = Dtype::f32;
    CHECK(rates.seconds(single)->seconds == Approx(2e12 / 10e9));
    single.type = Dtype::f64;
    CHECK_FALSE(rates.seconds(single).has_value());
}

TEST_CASE("attention takes the rate of its kernel and direction, between lengths of sequences") {
    const MachineFile machine = machine_with(R"(
[[attention]]
type = "bf16"
kernel = "cudnn"
head_dim = 128
tokens = 1024
forward = 100e9
backward = 50e9
from = "x"
[[attention]]
type = "bf16"
kernel = "cudnn"
head_dim = 128
tokens = 4096
forward = 400e9
from = "x"
[[attention]]
type = "bf16"
kernel = "cudnn"
head_dim = 64
tokens = 1024
forward = 1e9
from = "x"
)");
    const Rates rates(machine);
    CHECK(rates.seconds(attention("attention", "cudnn", 1024, 1e9))->seconds == Approx(0.01));
    CHECK(rates.seconds(attention("attention", "cudnn", 2048, 1e9))->seconds == Approx(1e9 / 200e9));
    CHECK(rates.seconds(attention("attention", "cudnn", 8192, 1e9))->seconds == Approx(1e9 / 400e9));
    CHECK(rates.seconds(attention("attention_backward", "cudnn", 8192, 1e9))->seconds == Approx(0.02));
    CHECK_FALSE(rates.seconds(attention("attention_backward", "own", 1024, 1e9)).has_value());
    CHECK_FALSE(rates.seconds(attention("attention_backward", "own_wgmma", 1024, 1e9)).has_value());
}

TEST_CASE("a file without points of attention by wgmma has those of our other kernels for it") {
    const std::string by_mma = R"(
[[attention]]
type = "bf16"
kernel = "own"
backward = 100e9
from = "x"
)",
                      by_wgmma = R"(
[[attention]]
type = "bf16"
kernel = "own_wgmma"
backward = 200e9
from = "x"
)";
    const auto seconds_with = [](const std::string& tables, const char* kernel) {
        const MachineFile machine = machine_with(tables);
        return Rates(machine).seconds(attention("attention_backward", kernel, 1024, 1e9))->seconds;
    };
    CHECK(seconds_with(by_mma, "own_wgmma") == Approx(0.01));
    CHECK(seconds_with(by_mma + by_wgmma, "own_wgmma") == Approx(0.005));
    CHECK(seconds_with(by_mma + by_wgmma, "own") == Approx(0.01));
}

TEST_CASE("other kernels take their bytes over a bandwidth, and exact calls count first") {
    const MachineFile machine = machine_with(R"(
[[rows]]
kernel = "rms_norm"
bytes_per_second = 1e9
seconds = 5e-6
from = "x"
[[rows]]
kernel = "*"
bytes_per_call = 1e6
bytes_per_second = 1e9
from = "x"
[[rows]]
kernel = "*"
bytes_per_call = 1e8
bytes_per_second = 4e9
from = "x"
[[calls]]
key = "swiglu bfloat16 777 bytes"
seconds = 1.5
from = "x"
)");
    const Rates rates(machine);
    CHECK(rates.seconds(row("rms_norm", 1e6))->seconds == Approx(1e-3 + 5e-6));
    CHECK(rates.seconds(row("rope", 1e7))->seconds == Approx(1e7 / 2e9));
    CHECK(rates.seconds(row("rope", 1e3))->seconds == Approx(1e3 / 1e9));
    CHECK(rates.seconds(row("swiglu", 777))->seconds == 1.5);
    CHECK(rates.seconds(row("swiglu", 777))->source == Source::exact);
    const MachineFile sheet = machine_with("[memory]\nbytes_per_second = 2e9\nfrom = \"x\"\n");
    CHECK(Rates(sheet).seconds(row("rope", 1e9))->seconds == Approx(0.5));
    CHECK(Rates(sheet).seconds(row("rope", 1e9))->source == Source::peak);
    const MachineFile nothing = machine_with("");
    CHECK_FALSE(Rates(nothing).seconds(row("rope", 1e9)).has_value());
}

TEST_CASE("collectives take the bus bandwidth of the level that holds their ranks") {
    const MachineFile machine = machine_with(R"(
[node]
ranks = 8
from = "x"
[[level]]
name = "nvlink"
ranks = 8
alpha = 1e-6
all_gather = [[1e6, 10e9], [1e8, 100e9]]
all_reduce = [[1e6, 10e9], [1e8, 100e9]]
message = [[1e6, 10e9]]
from = "x"
[[level]]
name = "network"
per_node = 40e9
alpha = 10e-6
hop = 2e-6
from = "x"
)");
    const Rates rates(machine);
    CHECK(*rates.seconds("all_gather", 1e8, {8, 1}) == Approx(1e8 * 7 / 8 / 100e9 + 1e-6));
    CHECK(*rates.seconds("all_reduce", 1e8, {8, 1}) == Approx(2e8 * 7 / 8 / 100e9 + 1e-6));
    CHECK(*rates.seconds("all_gather", 1e7, {2, 1}) == Approx(1e7 / 2 / std::sqrt(10e9 * 100e9) + 1e-6));
    // below the first point the time is constant
    CHECK(*rates.seconds("all_gather", 1e3, {8, 1}) == Approx(1e6 * 7 / 8 / 10e9 + 1e-6));
    CHECK(*rates.seconds("send_receive", 1e6, {8, 1}) == Approx(1e6 / 10e9 + 1e-6));
    CHECK(*rates.seconds("all_gather", 1e9, {1, 1}) == 0);
    // 4 nodes: as fast as a node's network; one rank on each of 16 nodes has an eighth of it
    CHECK(*rates.seconds("all_gather", 1e9, {32, 4}) ==
          Approx(1e9 * 31 / 32 / 40e9 + 1e-6 + 5 * 10e-6 + 3 * 2e-6));
    CHECK(*rates.seconds("all_gather", 1e9, {16, 16}) == Approx(1e9 * 15 / 16 / 5e9 + 4 * 10e-6 + 15 * 2e-6));
    CHECK_FALSE(rates.seconds("all_to_all", 1e6, {8, 1}).has_value());
    // a message over the slowest link of 4 x 4 ranks: these share a node's network
    CHECK(*rates.seconds("send_receive", 1e9, {16, 4}) == Approx(1e9 / 10e9 + 1e-6 + 10e-6 + 2e-6));
    CHECK(*rates.seconds("send_receive", 1e9, {4, 4}) == Approx(1e9 / 5e9 + 10e-6 + 2e-6));
    // copies are as fast as messages, unless the file has their own rates
    CHECK(*rates.seconds("peer_copy", 1e6, {8, 1}) == *rates.seconds("send_receive", 1e6, {8, 1}));
    MachineFile with_copies = machine;
    with_copies.levels.front().bandwidth["copy"] = {{1e6, 20e9}};
    CHECK(*Rates(with_copies).seconds("peer_copy", 1e6, {8, 1}) == Approx(1e6 / 20e9 + 1e-6));
    CHECK(*Rates(with_copies).seconds("send_receive", 1e6, {8, 1}) == Approx(1e6 / 10e9 + 1e-6));
    const MachineFile alone = machine_with("");
    CHECK_FALSE(Rates(alone).seconds("all_gather", 1e6, {8, 1}).has_value());
    CHECK_FALSE(Rates(alone).seconds("all_gather", 1e6, {8, 8}).has_value());
}

TEST_CASE("rows of an all-to-all that stay on a node do not use the network") {
    const MachineFile machine = machine_with(R"(
[node]
ranks = 8
from = "x"
[[level]]
name = "nvlink"
all_to_all = [[1.0, 100e9]]
from = "x"
[[level]]
name = "network"
per_node = 80e9
from = "x"
)");
    const Rates rates(machine);
    CHECK(*rates.seconds("all_to_all", 8e9, {8, 1}) == Approx(7e9 / 100e9));
    // each rank sends half of its bytes to the other node, at an eighth of the network
    CHECK(*rates.seconds("all_to_all", 8e9, {8, 2}) == Approx(4e9 / 10e9));
    CHECK(*rates.seconds("all_to_all", 8e9, {16, 2}) == Approx(4e9 / 10e9));
    CHECK(*rates.seconds("all_to_all", 8e9, {8, 8}) == Approx(7e9 / 10e9));
}

TEST_CASE("groups of ranks lie on the nodes that their mesh says") {
    const MeshShape mesh = {.dp_shard = 4, .tp = 4};
    const auto is = [](RankGroup group, int ranks, int nodes) {
        return group.ranks == ranks && group.nodes == nodes;
    };
    CHECK(is(group_of(mesh, 5, axis::tp, 8), 4, 1));
    CHECK(is(group_of(mesh, 5, axis::dp_shard, 8), 4, 2));
    CHECK(is(group_of(mesh, 5, axis::dp_shard, 4), 4, 4));
    CHECK(is(group_of(mesh, 5, axis::dp_shard, 0), 4, 1));
}

// github.com/stas00/ml-engineering, network/benchmarks/results/all-reduce-8xH200.md
TEST_CASE("all-reduces of 8 H200s take the published time, within 10 % at every size") {
    const Rates rates(machine_of_gpu("h200"), true), rings(machine_of_gpu("h200"));
    struct Published {
        double kib, bus_gb_per_second;
    };
    for (const auto& [kib, bus] :
         {Published{32, 1.44},        Published{64, 2.93},        Published{128, 5.73},
          Published{256, 11.74},      Published{512, 23.94},      Published{1024, 39.93},
          Published{2048, 64.53},     Published{4096, 107.16},    Published{8192, 155.53},
          Published{16384, 219.89},   Published{32768, 275.84},   Published{65536, 346.51},
          Published{131072, 401.93},  Published{262144, 436.15},  Published{524288, 450.29},
          Published{1048576, 463.58}, Published{2097152, 469.17}, Published{4194304, 473.10},
          Published{8388608, 477.45}, Published{16777216, 482.26}}) {
        CAPTURE(kib);
        const double bytes = 1024 * kib, published = bytes * 2 * 7 / 8 / (bus * 1e9);
        CHECK(*rates.seconds("all_reduce", bytes, {8, 1}) == Approx(published).epsilon(0.1));
    }
    CHECK(*rates.seconds("all_reduce", 1 << 20, {8, 1}) == Approx(46e-6).epsilon(0.1));
    CHECK(*rates.seconds("all_reduce", 256 << 20, {8, 1}) == Approx(1.08e-3).epsilon(0.1));
    // without NVLS, which is the default
    CHECK(*rings.seconds("all_reduce", 16.0 * (1 << 30), {8, 1}) ==
          Approx(16.0 * (1 << 30) * 2 * 7 / 8 / 367.6e9).epsilon(0.01));
}

TEST_CASE("products of experts take the rates of their form, also if they are decoded, or else any rate") {
    const std::string table = "[[products]]\ntype = \"bf16\"\n", from = "from = \"x\"\n";
    const std::string any = table + "flops = 100e9\n" + from,
                      rows = table + "form = \"experts\"\nflops = 50e9\n" + from,
                      weights = table + "form = \"expert_weights\"\nflops = 25e9\n" + from,
                      converted = table + "form = \"converted\"\nflops = 10e9\n" + from;
    const auto seconds = [](const std::string& tables, const char* kernel, const char* variant) {
        const MachineFile machine = machine_with(tables);
        return Rates(machine, false)
            .seconds({.kernel = kernel, .variant = variant, .type = Dtype::bf16, .flops = 100e9, .bytes = 1})
            ->seconds;
    };
    const std::string all = any + rows + weights + converted;
    CHECK(seconds(all, "gemm", "nt") == Approx(1));
    CHECK(seconds(all, "grouped_gemm", "experts") == Approx(2));
    CHECK(seconds(all, "scaled_grouped_gemm", "decoded") == Approx(2));
    CHECK(seconds(all, "grouped_gemm_weights", "expert_weights") == Approx(4));
    CHECK(seconds(all, "scaled_grouped_gemm_weights", "decoded") == Approx(4));
    CHECK(seconds(all, "scaled_grouped_gemm", "converted") == Approx(10));
    CHECK(seconds(any + rows, "grouped_gemm_weights", "expert_weights") == Approx(1));
}

TEST_CASE("what kernels before a product move adds to its time") {
    const MachineFile machine = machine_with(R"(
[peak]
bf16 = 1e12
from = "sheet"
[memory]
bytes_per_second = 1e9
from = "sheet"
)");
    Call call = {.kernel = "scaled_grouped_gemm",
                 .variant = "decoded",
                 .type = Dtype::bf16,
                 .flops = 2e12,
                 .bytes = 1};
    const Rates rates(machine, false);
    CHECK(rates.seconds(call)->seconds == Approx(2));
    call.more_bytes = 3e9;
    CHECK(rates.seconds(call)->seconds == Approx(2 + 3));
}
