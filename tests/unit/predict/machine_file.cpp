// SPDX-License-Identifier: Apache-2.0
// Machine files: the built-in ones, and each message about a wrong one.
#include "coeus/predict/machine_file.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"
#include "support/support.hpp"

#include <fstream>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;
using Catch::Equals;

namespace {

const std::string head = "name = \"mine\"\ntitle = \"My GPU\"\nkind = \"measured\"\n",
                  gpu = "[gpu]\nmodel = \"X1\"\ncapability = 90\nmemory_mib = 1024\nfrom = \"here\"\n";

std::string refusal(const std::string& text) {
    try {
        parse_machine_file(text, "mine.toml");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("peaks of GPUs are dense values for the compute type, and an unknown GPU has none") {
    struct Known {
        const char* name;
        double bf16, f32;
    };
    for (const auto& [name, bf16, f32] :
         {Known{"NVIDIA A100-SXM4-80GB", 312e12, 19.5e12}, Known{"NVIDIA A100 80GB PCIe", 312e12, 19.5e12},
          Known{"NVIDIA A800-SXM4-80GB", 312e12, 19.5e12}, Known{"NVIDIA A10", 125e12, 31.2e12},
          Known{"NVIDIA RTX A6000", 154.85e12, 38.7e12}, Known{"NVIDIA H100 80GB HBM3", 989.4e12, 66.9e12},
          Known{"NVIDIA H100 PCIe", 756e12, 51.2e12}, Known{"NVIDIA H100 NVL", 835e12, 60e12},
          Known{"NVIDIA H800", 989.4e12, 66.9e12}, Known{"NVIDIA H200", 989.4e12, 66.9e12},
          Known{"NVIDIA H200 NVL", 835e12, 60e12}, Known{"NVIDIA GH200 480GB", 989.4e12, 66.9e12},
          Known{"NVIDIA L4", 121e12, 30.3e12}, Known{"NVIDIA L40", 181e12, 90.5e12},
          Known{"NVIDIA L40S", 362e12, 91.6e12}, Known{"NVIDIA GeForce RTX 4090", 165.2e12, 82.6e12}}) {
        CAPTURE(name);
        CHECK(gpu_peak_flops(name, Dtype::bf16) == bf16);
        CHECK(gpu_peak_flops(name, Dtype::f32) == f32);
        CHECK_FALSE(gpu_peak_flops(name, Dtype::f64).has_value());
    }
    CHECK(gpu_peak_flops("NVIDIA H20", Dtype::bf16) == 148e12);
    CHECK(gpu_peak_flops("NVIDIA B200", Dtype::bf16) == 2.25e15);
    CHECK(gpu_peak_flops("NVIDIA GB200", Dtype::bf16) == 2.5e15);
    CHECK_FALSE(gpu_peak_flops("NVIDIA B200", Dtype::f32).has_value());
    for (const char* name :
         {"NVIDIA GeForce RTX 9999", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU",
          "NVIDIA A10G", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA ", ""}) {
        CAPTURE(name);
        CHECK_FALSE(gpu_peak_flops(name, Dtype::bf16).has_value());
    }
}

TEST_CASE("GPUs have one machine file, and all earlier names are known") {
    CHECK(machine_of_gpu("h100").name == "h100-sxm");
    CHECK(&machine_of_gpu("h100-sxm") == &machine_of_gpu("h100"));
    CHECK(machine_of_gpu("a100").name == "a100-80");
    for (const char* name :
         {"a10",      "a40",  "a100",      "a100-40gb", "a800",     "rtx-a6000", "h100",    "h100-pcie",
          "h100-nvl", "h800", "h800-pcie", "h200",      "h200-nvl", "gh200",     "h20",     "b200",
          "gb200",    "b300", "gb300",     "l4",        "l40",      "l40s",      "rtx-4090"}) {
        CAPTURE(name);
        CHECK(machine_of_gpu(name).gpu->memory_bytes > 0);
    }
    CHECK(built_in_machines().contains("cpu-avx512"));
    REQUIRE_THROWS_WITH(machine_of_gpu("cpu-avx512"), Contains("unknown GPU"));
}

TEST_CASE("a machine file has rates by kernel and size, a network and sources") {
    const MachineFile machine =
        parse_machine_file(head + "aliases = [\"our\"]\nnote = \"on our node\"\n" + gpu +
                               "[peak]\nbf16 = 2e12\nfrom = \"sheet\"\n"
                               "[[products]]\ntype = \"bf16\"\nform = \"nt\"\nm = 8\n"
                               "flops = 1e12\nfrom = \"measured\"\n"
                               "[[level]]\nname = \"node\"\nranks = 8\n"
                               "all_gather = [[1e6, 1e9], [1e9, 2e9]]\nfrom = \"guess\"\n",
                           "mine.toml");
    CHECK(machine.name == "mine");
    CHECK(machine.aliases == std::vector<std::string>{"our"});
    CHECK(machine.kind == MachineFile::Kind::measured);
    CHECK(machine.note == "on our node");
    CHECK(machine.gpu->capability == 90);
    CHECK(machine.gpu->memory_bytes == int64_t(1) << 30);
    CHECK(machine.peak.at(Dtype::bf16) == 2e12);
    CHECK_FALSE(machine.peak.contains(Dtype::f32));
    REQUIRE(machine.products.size() == 1);
    CHECK(machine.products[0].form == "nt");
    CHECK(machine.products[0].m == 8);
    CHECK(machine.products[0].n == 0);
    REQUIRE(machine.levels.size() == 1);
    CHECK(machine.levels[0].bandwidth.at("all_gather") == BandwidthCurve{{1e6, 1e9}, {1e9, 2e9}});
    CHECK_FALSE(machine.overlap.has_value());
}

TEST_CASE("messages about machine files name key, value, rule and the nearest name") {
    struct Wrong {
        std::string text, message;
    };
    const std::string from = "from = \"here\"\n";
    for (const auto& [text, message] : {
             Wrong{"title = \"x\"\nkind = \"sheet\"\n", "mine.toml:1:1: name is missing: it must be a text"},
             Wrong{"name = \"x\"\ntitle = \"x\"\nkind = \"shet\"\n",
                   "mine.toml:3:1: kind = \"shet\": is unknown; did you mean sheet?"},
             Wrong{"name = \"x\"\ntitle = \"x\"\nkind = \"abcdefgh\"\n",
                   "mine.toml:3:1: kind = \"abcdefgh\": must be one of sheet, measured, fitted"},
             Wrong{"name = 1\ntitle = \"x\"\nkind = \"sheet\"\n",
                   "mine.toml:1:1: name = 1: must be a text in quotes"},
             Wrong{"name = \"\"\ntitle = \"x\"\nkind = \"sheet\"\n",
                   "mine.toml:1:1: name = \"\": must not be empty"},
             Wrong{head + "alias = \"y\"\n",
                   "mine.toml:4:1: unknown key alias; did you mean aliases? Known are name, aliases, title, "
                   "kind, note"},
             Wrong{head + "from = \"y\"\n",
                   "mine.toml:4:1: unknown key from. Known are name, aliases, title, kind, note"},
             Wrong{head + "aliases = \"y\"\n", "mine.toml:4:1: aliases = \"y\": must be a list of texts"},
             Wrong{head + "aliases = [1]\n", "mine.toml:4:1: aliases = [1]: must be a list of texts"},
             Wrong{head + "[peek]\nbf16 = 1.0\n" + from,
                   "mine.toml:5:1: unknown table peek; did you mean peak? A machine file has gpu, peak, "
                   "memory, "
                   "launch, products, rows, attention, calls, node, level, overlap, nccl"},
             Wrong{head + "[[qqqqqqq]]\nbf16 = 1.0\n",
                   "mine.toml:4:3: unknown table qqqqqqq. A machine file has gpu, peak, memory, launch, "
                   "products, rows, attention, calls, node, level, overlap, nccl"},
             Wrong{head + "[peak]\nbf17 = 1.0\n" + from,
                   "mine.toml:5:1: unknown key peak.bf17; did you mean bf16? Known are bf16, f32, f8, from"},
             Wrong{head + "[peak]\nbf16 = inf\n" + from,
                   "mine.toml:5:1: peak.bf16 = inf: must be finite; leave it out if it is not known"},
             Wrong{head + "[peak]\nbf16 = nan\n" + from,
                   "mine.toml:5:1: peak.bf16 = nan: must be finite; leave it out if it is not known"},
             Wrong{head + "[peak]\nbf16 = 1.0\n",
                   "mine.toml:5:1: peak.from is missing: it must be the source of the table's numbers"},
             Wrong{head + "[peak]\nbf16 = -1\n" + from,
                   "mine.toml:5:1: peak.bf16 = -1: must be above 0; leave it out if it is not known"},
             Wrong{head + "[peak]\nbf16 = 1e-300\n" + from,
                   "mine.toml:5:1: peak.bf16 = 1e-300: must be at least 0.001 a second, and at most 10^21"},
             Wrong{head + "[memory]\nbytes_per_second = 1e300\n" + from,
                   "mine.toml:5:1: memory.bytes_per_second = 1e+300: must be at least 0.001 a second, and at "
                   "most 10^21"},
             Wrong{head + "[launch]\nseconds = 1e-300\n" + from,
                   "mine.toml:5:1: launch.seconds = 1e-300: must be at least 10^-12 s, and at most 10^4 s"},
             Wrong{head + "[[products]]\ntype = \"bf16\"\nm = 1e300\nflops = 1e12\n" + from,
                   "mine.toml:4:3: products[1].m = 1e+300: must be at least 10^-6, and at most 10^18"},
             Wrong{head + "[[level]]\nname = \"node\"\nper_node = 1e-300\n" + from,
                   "mine.toml:4:3: level[1].per_node = 1e-300: must be at least 0.001 a second, and at most "
                   "10^21"},
             Wrong{
                 head + "[[level]]\nname = \"node\"\nall_gather = [[1.0, 1e-300]]\n" + from,
                 "mine.toml:4:3: level[1].all_gather = [[1.0, 1e-300]]: must be at least 0.001 a second, and "
                 "at most 10^21"},
             Wrong{head + "[peak]\nbf16 = \"fast\"\n" + from,
                   "mine.toml:5:1: peak.bf16 = \"fast\": must be a number"},
             Wrong{head + "[memory]\n" + from,
                   "mine.toml:5:1: memory.bytes_per_second is missing: it must be a number above 0"},
             Wrong{head + "[node]\nranks = 1.5\n" + from,
                   "mine.toml:5:1: node.ranks = 1.5: must be a whole number"},
             Wrong{head + "[node]\nranks = 2147483648\n" + from,
                   "mine.toml:5:1: node.ranks = 2147483648: must be at most 2147483647"},
             Wrong{head + "[node]\nranks = 1e300\n" + from,
                   "mine.toml:5:1: node.ranks = 1e+300: must be at most 2147483647"},
             Wrong{head + "[products]\ntype = \"bf16\"\nflops = 1.0\n" + from,
                   "mine.toml:5:1: products must be a list: write [[products]]"},
             Wrong{head + "[[peak]]\nbf16 = 1.0\n" + from,
                   "mine.toml:4:3: peak must be one table: write [peak]"},
             Wrong{head + "[[calls]]\nkey = \"k\"\nseconds = 1.0\n" + from +
                       "[[calls]]\nkey = \"k\"\nseconds = 2.0\n" + from,
                   "mine.toml:4:3: calls[2]: an earlier table has the key \"k\" too; leave one of them out"},
             Wrong{head + "[[level]]\nname = \"node\"\nper_node = 1.0\nall_gather = [[1.0, 1.0]]\n" + from,
                   "mine.toml:4:3: level[1]: has both per_node, which is for a level between nodes, and "
                   "all_gather, which is for one within a node; leave one of them out"},
             Wrong{head + "[[level]]\nname = \"node\"\nall_gather = [[1.0, inf]]\n" + from,
                   "mine.toml:4:3: level[1].all_gather = [[1.0, inf]]: must be finite; leave it out if it is "
                   "not known"},
             Wrong{head + "[[rows]]\nkernel = \"swigl\"\nbytes_per_second = 1.0\n" + from,
                   "mine.toml:4:3: rows[1].kernel = \"swigl\": is unknown; did you mean swiglu?"},
             Wrong{head + "[[products]]\ntype = \"bf16\"\n" + from,
                   "mine.toml:4:3: products[1].flops is missing: it must be a number above 0"},
             Wrong{head + "[[attention]]\ntype = \"bf16\"\nkernel = \"own\"\n" + from,
                   "mine.toml:4:3: attention[1]: has neither forward nor backward"},
             Wrong{
                 head + "[[level]]\nname = \"node\"\n" + from,
                 "mine.toml:4:3: level[1]: has neither per_node nor a bandwidth by size, such as all_gather"},
             Wrong{head + "[[level]]\nname = \"node\"\nall_gather = [[2.0, 1.0], [1.0, 1.0]]\n" + from,
                   "mine.toml:4:3: level[1].all_gather = [[2.0, 1.0], [1.0, 1.0]]: must be a list of [bytes, "
                   "bytes per second] above 0, with ascending bytes"},
             Wrong{head + "[overlap]\nsms = 8\nsms_of_a_collective = 8\n" + from,
                   "mine.toml:5:1: overlap: sms_of_a_collective must be less than sms"},
             Wrong{head + "[overlap]\nsms = 8\nsms_of_a_collective = 1\nsms_of_a_copy = 8\n" + from,
                   "mine.toml:5:1: overlap: sms_of_a_copy must be less than sms"},
             Wrong{head + "[overlap]\nsms = 8\nsms_of_a_collective = 1\nmemory_share = 1\n" + from,
                   "mine.toml:5:1: overlap: memory_share must be less than 1"},
             Wrong{
                 head + "[overlap]\nsms = 8\nsms_of_a_collective = 1\nserial_collectives = true\n" + from,
                 "mine.toml:7:1: unknown key overlap.serial_collectives. Known are sms, sms_of_a_collective, "
                 "sms_of_a_copy, memory_share, from"},
             Wrong{head + "[nccl]\nversion = 22602\n" + from,
                   "mine.toml:5:1: nccl.driver is missing: it must be a number above 0"},
             Wrong{head + "[[level]]\nname = \"node\"\nper_node = 1.0\nranks = 8\n" + from,
                   "mine.toml:4:3: level[1]: has both per_node and ranks: a level between nodes connects any "
                   "number; leave ranks out"},
             Wrong{head + "[[level]]\nname = \"node\"\nhop = 1.0\nall_gather = [[1.0, 1.0]]\n" + from,
                   "mine.toml:4:3: level[1]: has hop, but no per_node: hop is of a level between nodes; "
                   "leave it "
                   "out"},
             Wrong{head + "[[level]]\nname = \"a\"\nper_node = 1.0\n" + from +
                       "[[level]]\nname = \"b\"\nper_node = 1.0\n" + from,
                   "mine.toml:4:3: level[2]: an earlier level has per_node too; leave one of them out"},
         }) {
        CAPTURE(text);
        CHECK(refusal(text) == message);
    }
}

TEST_CASE("a machine file is taken by --gpu too") {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "mine.toml").string(),
                      none = (folder.path() / "no.toml").string();
    std::ofstream(path) << head + gpu;
    const MachineFile& machine = machine_of_gpu(path);
    CHECK(machine.gpu->title == "X1");
    const std::string empty = (folder.path() / "empty.toml").string(),
                      named = (folder.path() / "named.toml").string();
    std::ofstream(empty) << head;
    REQUIRE_THROWS_WITH(machine_of_gpu(empty),
                        Contains("--gpu=" + empty + ": the machine file has no table gpu"));
    std::ofstream(named) << head + "aliases = [\"our\"]\n" + gpu;
    CHECK(machine_of_gpu(named).aliases.empty());
    REQUIRE_THROWS_WITH(machine_of_gpu("our"), Contains("--gpu=our: unknown GPU"));
    // a copy of a built-in file, from which users are told to start
    const std::string copy = (folder.path() / "copy.toml").string();
    std::ofstream(copy) << read_file(paths::source() + "/machines/h100-sxm.toml");
    CHECK(machine_of_gpu(copy).gpu->title == machine_of_gpu("h100").gpu->title);
    CHECK(&machine_of_gpu("h100") == &machine_of_gpu("h100-sxm"));
    // it is read once
    std::ofstream(path) << head;
    CHECK(&machine_of_gpu(path) == &machine);
    CHECK(machine.gpu->title == "X1");
    REQUIRE_THROWS_WITH(machine_of_gpu(none), Contains("no.toml"));
}
