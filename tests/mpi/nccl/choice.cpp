// SPDX-License-Identifier: Apache-2.0
// The transport of tensors: chosen by comm.transport, limited by what the GPUs allow.
#include "coeus/comm/mpi.hpp"
#include "coeus/session/rank_device.hpp"
#include "gpu/gpu.hpp"
#include "stand_ins/cuda/runtime.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <algorithm>
#include <cstdlib>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

// Pretends that each rank has a GPU, or that ranks share one, by its `number`.
class Placed : public Device {
public:
    explicit Placed(int number) : bus_id_(fmt::format("0000:{:02x}:00.0", number)) {}
    Backend backend() const override { return the_gpu().backend(); }
    const std::string& name() const override { return the_gpu().name(); }
    const Memory& memory() const override { return the_gpu().memory(); }
    const Memory& staging() const override { return the_gpu().staging(); }
    std::unique_ptr<Queue> make_queue(Priority priority) const override {
        return the_gpu().make_queue(priority);
    }
    std::unique_ptr<Event> make_event() const override { return the_gpu().make_event(); }
    void copy(void* to, const void* from, int64_t bytes) const override { the_gpu().copy(to, from, bytes); }
    int multiprocessors() const override { return the_gpu().multiprocessors(); }
    int64_t memory_bytes() const override { return the_gpu().memory_bytes(); }
    int64_t peak_bytes() const override { return the_gpu().peak_bytes(); }
    std::string bus_id() const override { return bus_id_; }

private:
    std::string bus_id_;
};

// has the names of NCCL's functions and a version, nothing else
const std::string ours = paths::nccl();

RankTransport choice(const std::string& asked, const Device& device, const std::string& library = ours) {
    const Communicator world = Communicator::world("world");
    Config config;
    config.comm.transport = asked;
    return transport_from_deck(config, world, device, library);
}

std::string error_of(const std::string& asked, const Device& device, const std::string& library = ours) {
    try {
        choice(asked, device, library);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("transport: NCCL if each rank has its own GPU") {
    const Placed own(world_rank());
    for (const char* asked : {"auto", "nccl"}) {
        const RankTransport found = choice(asked, own);
        CHECK(found.nccl);
        CHECK(found.text == "NCCL 2.28.9, without NVLS: comm.deterministic");
        CHECK(!found.nvls);
        CHECK(found.warnings.empty());
    }
    const RankTransport staged = choice("staged", own);
    CHECK(!staged.nccl);
    CHECK(staged.text == "pinned host memory");
}

namespace {

// The last two ranks share a GPU.
struct Sharing {
    int size = Communicator::world("world").size();
    Placed device{std::min(world_rank(), size - 2)};
    std::string text =
        fmt::format("ranks {} and {} share GPU 0000:{:02x}:00.0 of host ", size - 2, size - 1, size - 2);
    const std::string new_nccl = paths::nccl_shared();

    ~Sharing() {
        unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
        unsetenv("NCCL_NVLS_ENABLE");
    }
};

}  // namespace

TEST_CASE_METHOD(Sharing, "transport: host memory if ranks share a GPU") {
    const RankTransport found = choice("auto", device);
    CHECK(!found.nccl);
    CHECK_THAT(found.text, Contains("pinned host memory: " + text) && !Contains("NCCL"));
    const auto refused = [&](const std::string& reason, const std::string& library) {
        CHECK_THAT(error_of("nccl", device, library),
                   Contains("comm.transport = \"nccl\": " + text) && Contains("; " + reason) &&
                       Contains("; start at most one rank per GPU, or set comm.transport = \"staged\""));
    };
    const std::string allow = "NCCL_MULTI_RANK_GPU_ENABLE=1 on every rank, for tests only";
    refused("NCCL 2.28.9 refuses that, 2.30 and newer allow it with " + allow, ours);
    refused("NCCL 2.32.3 allows that only with " + allow, new_nccl);
    // the variable on one rank, or without effect
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", world_rank() == 1 ? "1" : "0", 1);
    refused("NCCL 2.32.3 allows that only with " + allow, new_nccl);
    CHECK_THAT(choice("auto", device).text, !Contains("NCCL"));
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    refused("NCCL 2.28.9 refuses that, 2.30 and newer allow it with " + allow, ours);
    refused("NCCL 2.28.9 refuses that", world_rank() == 0 ? ours : new_nccl);
    refused("NCCL 2.30 and newer allow that with " + allow + ", but NCCL cannot be loaded: /absent/",
            "/absent/libnccl.so.2");
}

TEST_CASE_METHOD(Sharing, "transport: NCCL between ranks that share a GPU only if it is asked for") {
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    const RankTransport staged = choice("auto", device, new_nccl);
    CHECK(!staged.nccl);
    CHECK_THAT(staged.text, Contains("pinned host memory: " + text) &&
                                Contains(". NCCL_MULTI_RANK_GPU_ENABLE is set, but NCCL connects such ranks "
                                         "only with comm.transport = \"nccl\""));
    const RankTransport found = choice("nccl", device, new_nccl);
    CHECK(found.nccl);
    CHECK(found.text == "NCCL 2.32.3, without NVLS: comm.deterministic");
    REQUIRE(found.warnings.size() == 1);
    CHECK_THAT(found.warnings[0],
               Contains(text) &&
                   Contains(", and NCCL connects them (NCCL_MULTI_RANK_GPU_ENABLE): this is for "
                            "tests, and slow.") &&
                   Contains("set NCCL_MAX_CTAS = 2 or less"));
    CHECK(choice("nccl", Placed(world_rank()), new_nccl).warnings.empty());
}

TEST_CASE_METHOD(Sharing, "transport: NVLS and ranks that share a GPU exclude each other") {
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    const Communicator world = Communicator::world("world");
    Config config;
    config.comm.transport = "nccl";
    config.comm.deterministic = false;
    const std::string none = "and NCCL has no NVLS for ranks that share a GPU; ";
    CHECK_THROWS_WITH(transport_from_deck(config, world, device, new_nccl),
                      Contains("comm.deterministic = false: it allows NVLS, but " + text) &&
                          Contains(none + "set comm.deterministic = true"));
    if (world.rank() == 1) setenv("NCCL_NVLS_ENABLE", "1", 1);
    if (world.rank() != 1) unsetenv("NCCL_NVLS_ENABLE");
    CHECK_THAT(error_of("nccl", device, new_nccl),
               Contains("NCCL_NVLS_ENABLE = 1 is set on rank 1, but " + text) &&
                   Contains(none + "unset the variable"));
    // such ranks do without NVLS if they do without NCCL
    CHECK(!choice("auto", device, new_nccl).nccl);
}

TEST_CASE("transport: host memory if a rank has no NCCL") {
    const Placed own(world_rank());
    const std::string absent = world_rank() == 1 ? "/absent/libnccl.so.2" : ours;
    const RankTransport found = choice("auto", own, absent);
    CHECK(!found.nccl);
    CHECK_THAT(found.text,
               Contains("pinned host memory: rank 1: NCCL cannot be loaded: /absent/libnccl.so.2"));
    CHECK_THAT(error_of("nccl", own, absent),
               Contains("comm.transport = \"nccl\": rank 1: NCCL cannot be loaded: /absent/libnccl.so.2") &&
                   Contains("COEUS_NCCL"));
}

TEST_CASE("transport: NCCL sums with NVLS only if the deck allows it or a rank's user asks for it") {
    const Communicator world = Communicator::world("world");
    const Placed own(world.rank());
    const auto nvls = [] {
        const char* const value = std::getenv("NCCL_NVLS_ENABLE");
        return std::string(value ? value : "none");
    };
    unsetenv("NCCL_NVLS_ENABLE");
    Config config;
    config.comm.deterministic = false;
    const RankTransport allowed = transport_from_deck(config, world, own, ours);
    CHECK(allowed.nvls);
    CHECK(allowed.text == "NCCL 2.28.9, with NVLS if it suits: comm.deterministic = false");
    CHECK(allowed.warnings.empty());
    CHECK(nvls() == "none");

    if (world.rank() == 1) setenv("NCCL_NVLS_ENABLE", "1", 1);
    const RankTransport asked = choice("auto", own);
    CHECK(asked.nvls);
    CHECK(asked.text == "NCCL 2.28.9, with NVLS: NCCL_NVLS_ENABLE = 1");
    REQUIRE(asked.warnings.size() == 1);
    CHECK(asked.warnings[0] ==
          "NCCL_NVLS_ENABLE = 1 is set on rank 1, so NCCL may sum in NVLink's switches (NVLS), and sums may "
          "differ from run to run. Unset the variable, or set comm.deterministic = false to allow this");
    CHECK(nvls() == (world.rank() == 1 ? "1" : "none"));

    unsetenv("NCCL_NVLS_ENABLE");
    CHECK(!choice("auto", own).nvls);
    CHECK(nvls() == "0");
}

TEST_CASE(
    "transport: the start says if NCCL runs one operation at a time, by the oldest driver of all ranks") {
    const Communicator world = Communicator::world("world");
    const Placed own(world.rank());
    const auto order = [] {
        const char* const value = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
        return std::string(value ? value : "none");
    };
    const auto chosen_with = [&](int driver) {
        unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
        emulation::driver_version = world.rank() == 1 ? driver : 13000;
        RankTransport found = choice("auto", own);
        emulation::driver_version = 13000;
        return found;
    };
    const RankTransport old = chosen_with(12040);
    CHECK(old.text == "NCCL 2.28.9, without NVLS: comm.deterministic, one operation at a time");
    REQUIRE(old.warnings.size() == 1);
    CHECK_THAT(old.warnings[0],
               Contains("NCCL runs the operations of all 4 communicators one after the other in CUDA graphs: "
                        "this is NCCL 2.28.9, and the driver knows CUDA 12.4."));
    CHECK(order() == "1");
    CHECK(chosen_with(12090).warnings.empty());
    CHECK(order() == "1");
    if (world.rank() == 1) setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
    if (world.rank() != 1) unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    const RankTransport unordered = choice("auto", own);
    CHECK(unordered.text == "NCCL 2.28.9, without NVLS: comm.deterministic, operations in the GPU's order");
    CHECK(unordered.warnings.size() == 1);
    CHECK(order() == "0");
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

TEST_CASE("transport: the most blocks of NCCL's operations") {
    const Communicator world = Communicator::world("world");
    const Placed own(world.rank());
    Config config;
    config.comm.max_ctas = 16;
    const auto chosen_with = [&](int driver) {
        unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
        emulation::driver_version = driver;
        RankTransport found = transport_from_deck(config, world, own, ours);
        emulation::driver_version = 13000;
        return found;
    };
    const RankTransport ordered = chosen_with(13000);
    CHECK(ordered.ctas.state == 16);
    CHECK(ordered.ctas.others == 0);
    // all operations fit at once, so none has to wait for another one
    const RankTransport old = chosen_with(12040);
    CHECK(old.ctas.state == 16);
    CHECK(old.ctas.others == 16);
    CHECK(old.text == "NCCL 2.28.9, without NVLS: comm.deterministic, operations in the GPU's order");
    CHECK(old.warnings.empty());
    // NCCL uses the user's limit instead
    setenv("NCCL_MAX_CTAS", "64", 1);
    CHECK(chosen_with(12040).warnings.size() == 1);
    unsetenv("NCCL_MAX_CTAS");
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");

    const std::string unsplit = paths::nccl_unsplit();
    CHECK_THROWS_WITH(transport_from_deck(config, world, own, unsplit),
                      "comm.max_ctas = 16: NCCL has this limit from 2.17 on, but this is NCCL 2.13.4; set it "
                      "to 0, or set the "
                      "environment variable COEUS_NCCL to the path of a newer NCCL");
    config.comm.max_ctas = 0;
    const RankTransport before = transport_from_deck(config, world, own, unsplit);
    CHECK(before.ctas.state == 0);
    // a rank without a limit may take all multiprocessors
    if (world.rank() == 0) setenv("NCCL_MAX_CTAS", "8", 1);
    CHECK_THAT(chosen_with(12040).text, Contains("one operation at a time"));
    setenv("NCCL_MAX_CTAS", "8", 1);
    CHECK_THAT(chosen_with(12040).text, Contains("operations in the GPU's order"));
    unsetenv("NCCL_MAX_CTAS");
    REQUIRE(before.warnings.size() == 1);
    CHECK_THAT(before.warnings[0],
               Contains("NCCL does not order the operations of 4 communicators, and ranks "
                        "may wait for each other forever: this is NCCL 2.13.4"));
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

TEST_CASE("transport: none for CPUs") {
    CHECK(choice("auto", host_device()).text.empty());
    CHECK(!choice("staged", host_device()).nccl);
    CHECK_THAT(error_of("nccl", host_device()), Contains("computes on CPUs"));
}

TEST_CASE("the start says that the driver compiles the kernels, on GPUs newer than the program's") {
    const Communicator world = Communicator::world("world");
    Config config;
    config.device = "cuda";
    const auto text = [&](int architecture) {
        emulation::architecture = architecture;
        const RankDevice device(config, world, 0, 1);
        emulation::architecture = 90;
        return device.text();
    };
    CHECK_THAT(text(120), Contains(", kernels compiled at the start (PTX))"));
    CHECK_THAT(text(90), !Contains("compiled"));
}
