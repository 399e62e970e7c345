// SPDX-License-Identifier: Apache-2.0
// What decides the number of threads: the deck, the environment, the process's cores, the machine.
#include "coeus/device/cpu.hpp"

#include "support/catch.hpp"
#include "support/skip.hpp"
#include "support/support.hpp"

#include <omp.h>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace coeus;

namespace {

// Sets or unsets OMP_NUM_THREADS for the life of this object.
class ThreadsVariable {
public:
    explicit ThreadsVariable(const char* value) {
        if (const char* old = std::getenv(name)) old_ = old;
        value ? setenv(name, value, 1) : unsetenv(name);
    }
    ~ThreadsVariable() { old_ ? setenv(name, old_->c_str(), 1) : unsetenv(name); }
    ThreadsVariable(const ThreadsVariable&) = delete;
    ThreadsVariable& operator=(const ThreadsVariable&) = delete;

private:
    static constexpr const char* name = "OMP_NUM_THREADS";
    std::optional<std::string> old_;
};

// Restores the process's cores at the end.
class Binding {
public:
    Binding() { sched_getaffinity(0, sizeof old_, &old_); }
    ~Binding() { sched_setaffinity(0, sizeof old_, &old_); }
    Binding(const Binding&) = delete;
    Binding& operator=(const Binding&) = delete;

    int processors() const { return CPU_COUNT(&old_); }
    void bind_to_first() const { bind_to(0); }
    // Binds the process to one of them, counted from 0.
    void bind_to(int number) const {
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int i = 0; i < CPU_SETSIZE; ++i)
            if (CPU_ISSET(i, &old_) && number-- == 0) CPU_SET(i, &one);
        sched_setaffinity(0, sizeof one, &one);
    }

private:
    cpu_set_t old_;
};

}  // namespace

TEST_CASE("the deck's number of threads comes first, then OMP_NUM_THREADS") {
    const ThreadsVariable five("5");
    const CpuShare wanted = share_of_cpu(3, 0, 1);
    CHECK(wanted.threads == 3);
    CHECK(wanted.reason == "training.threads");
    const CpuShare variable = share_of_cpu(0, 0, 2);
    CHECK(variable.threads == 5);
    CHECK(variable.reason == "OMP_NUM_THREADS");
    CHECK(wanted.cores == variable.cores);
}

TEST_CASE("OMP_NUM_THREADS has a limit, a list counts by its first number, and other text is none") {
    for (const char* absurd : {"4097", "100000", "2147483648", "99999999999999999999", "5000,2"}) {
        const ThreadsVariable variable(absurd);
        CHECK_THROWS_WITH(share_of_cpu(0, 0, 1),
                          std::string("OMP_NUM_THREADS = ") + absurd +
                              ": must be at most 4096. The option training.threads comes before it");
        CHECK(share_of_cpu(2, 0, 1).threads == 2);
    }
    const ThreadsVariable list("7,2");
    CHECK(share_of_cpu(0, 0, 1).threads == 7);
    for (const char* none : {"", "0", "-3", "four", "-99999999999999999999"}) {
        const ThreadsVariable variable(none);
        CHECK(share_of_cpu(0, 0, 1).reason != "OMP_NUM_THREADS");
    }
}

TEST_CASE("without either, the ranks of a host share its cores") {
    const Binding as_started;
    // the last two are not numbers
    for (const char* value : {static_cast<const char*>(nullptr), "", "many"}) {
        const ThreadsVariable variable(value);
        const CpuShare alone = share_of_cpu(0, 0, 1);
        CHECK(alone.cores >= 1);
        CHECK(alone.threads == alone.cores);
        if (alone.reason.starts_with("bound to"))
            return test::skip("the tests are bound to a part of the machine's cores");
        CHECK(alone.reason == std::to_string(alone.cores) + " cores / 1 rank");
        CHECK(alone.first_core == -1);  // other programs may use the other cores

        for (int rank = 0; rank < alone.cores; ++rank) {
            const CpuShare one_each = share_of_cpu(0, rank, alone.cores);
            CHECK(one_each.threads == 1);
            CHECK(one_each.first_core == (alone.cores > 1 ? rank : -1));
        }
        const int crowd = 3 * alone.cores;
        const CpuShare crowded = share_of_cpu(0, crowd - 1, crowd);
        CHECK(crowded.threads == 1);
        CHECK(crowded.first_core == -1);
        CHECK(crowded.reason == std::to_string(alone.cores) + " cores / " + std::to_string(crowd) + " ranks");
    }
}

TEST_CASE("ranks are bound only if each can have its own cores") {
    const ThreadsVariable unset(nullptr);
    const int cores = share_of_cpu(1, 0, 1).cores;
    CHECK(share_of_cpu(cores + 1, 0, 1).first_core == -1);
    CHECK(share_of_cpu(cores, 1, 2).first_core == -1);
}

TEST_CASE("a bound process stays on its cores") {
    const ThreadsVariable unset(nullptr);
    const int cores = share_of_cpu(0, 0, 1).cores;
    const Binding as_started;
    if (cores < 2) return test::skip("there is no second core");
    as_started.bind_to_first();
    const CpuShare share = share_of_cpu(0, 0, 4);
    CHECK(share.cores == 1);
    CHECK(share.threads == 1);
    CHECK(share.first_core == -1);
    CHECK(share.reason.starts_with("bound to 1 of "));
    CHECK(share_of_cpu(2, 0, 1).first_core == -1);
    CHECK(share_of_cpu(0, 0, 4, 4).reason.ends_with(" cores / 4 ranks"));
    CHECK(share_of_cpu(0, 0, 4, 4).threads == 1);
    CHECK_FALSE(cpu_binding().empty());
}

TEST_CASE("applying a share sets OpenMP's threads and binds the process to its cores") {
    const Binding as_started;
    const int before = omp_get_max_threads(), cores = share_of_cpu(1, 0, 1).cores;
    apply({.cores = 2, .threads = 3, .first_core = -1, .reason = ""});
    CHECK(omp_get_max_threads() == 3);
    CHECK(share_of_cpu(1, 0, 1).cores == cores);
    apply({.cores = cores, .threads = 1, .first_core = 0, .own_cores = 1, .reason = ""});
    CHECK(omp_get_max_threads() == 1);
    CHECK(share_of_cpu(1, 0, 1).cores == 1);
    omp_set_num_threads(before);
}

TEST_CASE("the CPU has a name and a level") {
    CHECK_FALSE(cpu_name().empty());
    CHECK_FALSE(cpu_name().starts_with(" "));
    const std::string level = cpu_vector_level();
    const std::vector<std::string> levels = {"avx512 bf16", "avx512", "avx2",      "avx", "no avx",
                                             "sve bf16",    "sve",    "neon bf16", "neon"};
    CHECK(std::count(levels.begin(), levels.end(), level) == 1);
}

TEST_CASE("the processors near a GPU are those of its NUMA node") {
    const test::TemporaryFolder folder;
    const std::filesystem::path root = folder / "root", gpu = root / "sys/bus/pci/devices/0000:1b:00.0";
    std::filesystem::create_directories(gpu);
    std::ofstream(gpu / "local_cpulist") << "0-31,64-95\n";
    CHECK(processors_near("0000:1b:00.0", root) == "0-31,64-95");
    CHECK(processors_near("0000:1c:00.0", root).empty());
    CHECK(processors_near("", root).empty());
}

TEST_CASE("a rank with some of its cores near its GPU gets cores among these") {
    const ThreadsVariable unset(nullptr);
    const int cores = share_of_cpu(0, 0, 1).cores;
    std::string all = cpu_binding(), last;
    {
        const Binding as_started;
        if (cores < 2) return test::skip("there is no second core");
        if (share_of_cpu(1, 0, 1).bound)
            return test::skip("the tests are bound to a part of the machine's cores");
        if (as_started.processors() != cores) return test::skip("a core is several processors here");
        as_started.bind_to(cores - 1);
        last = cpu_binding();
        CHECK(share_of_cpu(0, 0, 2, 1, {.processors = all}).bound);  // and remains bound
    }
    const CpuShare near = share_of_cpu(0, 0, 2, 2, {.processors = last});
    CHECK(near.cores == 1);
    CHECK(near.threads == 1);
    CHECK(near.first_core == cores - 1);
    CHECK(near.reason == "1 cores near the GPU / 1 rank");
    // two ranks share one core
    CHECK(share_of_cpu(0, 1, 2, 2, {.processors = last, .ranks = 2, .number = 1}).first_core == -1);
    // a list of all processors selects nothing, and an invalid list is ignored
    CHECK(share_of_cpu(1, 0, 1, 1, {.processors = all}).first_core == -1);
    CHECK(share_of_cpu(1, 0, 1, 1, {.processors = "none"}).first_core == -1);
}

namespace {

// Makes hwloc see another machine for the life of this object. The process is not bound there.
class OtherMachine {
public:
    explicit OtherMachine(const char* description) { setenv(name, description, 1); }
    ~OtherMachine() { unsetenv(name); }
    OtherMachine(const OtherMachine&) = delete;
    OtherMachine& operator=(const OtherMachine&) = delete;

private:
    static constexpr const char* name = "HWLOC_SYNTHETIC";
};

}  // namespace

TEST_CASE("a rank with a GPU gets its share of the cores whatever the number of threads is") {
    const OtherMachine two_sockets("package:2 core:16 pu:2");
    const std::string second = "32-63";  // its processors
    const auto share = [&](int rank, int wanted = 0) {
        return share_of_cpu(wanted, 4 + rank, 8, 1,
                            {.is_gpu = true, .processors = second, .ranks = 4, .number = rank});
    };
    {
        const ThreadsVariable one("1");
        for (int rank = 0; rank < 4; ++rank) {
            CHECK(share(rank).threads == 1);
            CHECK(share(rank).reason == "OMP_NUM_THREADS");
            CHECK(share(rank).first_core == 16 + 4 * rank);
            CHECK(share(rank).own_cores == 4);
        }
        // a rank without a GPU needs a core for each thread
        const CpuShare on_cpu = share_of_cpu(0, 3, 8);
        CHECK(on_cpu.first_core == 3);
        CHECK(on_cpu.own_cores == 1);
        // one NUMA node: all processors are near all GPUs
        const CpuShare anywhere =
            share_of_cpu(0, 3, 8, 1, {.is_gpu = true, .processors = "0-63", .ranks = 8, .number = 3});
        CHECK(anywhere.threads == 1);
        CHECK(anywhere.first_core == 12);
        CHECK(anywhere.own_cores == 4);
    }
    {
        const ThreadsVariable many("32");
        CHECK(share(1).threads == 4);
        CHECK(share(1).reason == "OMP_NUM_THREADS = 32, more than its cores");
        CHECK(share(1).own_cores == 4);
        CHECK(share_of_cpu(0, 0, 2).threads == 32);
    }
    const ThreadsVariable unset(nullptr);
    CHECK(share(2).threads == 4);
    CHECK(share(2).own_cores == 4);
    // the deck's threads have no room there
    CHECK(share(2, 8).threads == 8);
    CHECK(share(2, 8).first_core == -1);
    CHECK(share(2, 8).own_cores == 0);
    CHECK(cores_per_rank(8, 8) == 4);
    CHECK(cores_per_rank(10, 1) == 3.2);
}

TEST_CASE("the cores per rank of bound ranks are those to which they are bound") {
    const Binding as_started;
    if (share_of_cpu(1, 0, 1).cores < 2) return test::skip("there is no second core");
    as_started.bind_to_first();
    CHECK(cores_per_rank(8, 1) == 1);
    CHECK(cores_per_rank(8, 2) == 0.5);
}

namespace {

// The calling thread's time slice in nanoseconds, or 0 if Linux does not report it.
uint64_t slice() {
    struct {
        uint64_t head[3];
        uint64_t runtime = 0;
        uint64_t tail[2];
    } attributes = {};
    return syscall(SYS_sched_getattr, 0, &attributes, 48, 0) == 0 ? attributes.runtime : 0;
}

}  // namespace

TEST_CASE("short time slices apply to the thread that asks for them and to threads that it starts") {
    uint64_t before = 0, after = 0, inherited = 0;
    std::thread([&] {
        before = slice();
        run_in_short_slices();
        after = slice();
        std::thread([&] { inherited = slice(); }).join();
    }).join();
    if (before == 0) return test::skip("this Linux has no time slices for single threads (6.12)");
    CHECK(after == 100'000);
    CHECK(inherited == 100'000);
    CHECK(slice() == before);
}
