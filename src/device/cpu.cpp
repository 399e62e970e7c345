// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/cpu.hpp"

#include "coeus/base/error.hpp"

#include <hwloc.h>
#include <omp.h>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>

namespace coeus {

namespace {

// The machine's topology, and the part of it that this process may use.
class Topology {
public:
    Topology() {
        if (hwloc_topology_init(&topology_) != 0 || hwloc_topology_load(topology_) != 0)
            throw SystemError("hwloc cannot read the machine's topology");
        bound_ = hwloc_bitmap_alloc();
        if (hwloc_get_cpubind(topology_, bound_, HWLOC_CPUBIND_PROCESS) != 0)
            hwloc_bitmap_copy(bound_, hwloc_topology_get_allowed_cpuset(topology_));
    }
    ~Topology() {
        hwloc_bitmap_free(bound_);
        hwloc_topology_destroy(topology_);
    }
    Topology(const Topology&) = delete;
    Topology& operator=(const Topology&) = delete;

    int cores() const { return std::max(1, hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_CORE)); }
    int bound_cores() const {
        int n = 0;
        for (int i = 0; i < cores(); ++i)
            if (const hwloc_obj_t core = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_CORE, unsigned(i)))
                n += hwloc_bitmap_intersects(core->cpuset, bound_);
        return std::max(1, n);
    }
    // A range of adjacent cores.
    struct Cores {
        int first = 0, count = 0;
    };
    // The longest range of cores whose processors are all in the list; empty if that is the whole machine.
    Cores cores_of(const std::string& processors) const {
        hwloc_bitmap_t set = hwloc_bitmap_alloc();
        Cores found, run;
        if (!processors.empty() && hwloc_bitmap_list_sscanf(set, processors.c_str()) == 0)
            for (int i = 0; i < cores(); ++i) {
                const hwloc_obj_t core = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_CORE, unsigned(i));
                const bool inside = core && hwloc_bitmap_isincluded(core->cpuset, set);
                run = inside ? Cores{run.count > 0 ? run.first : i, run.count + 1} : Cores{};
                if (run.count > found.count) found = run;
            }
        hwloc_bitmap_free(set);
        return found.count < cores() ? found : Cores{};
    }
    std::string binding() const {
        char* text = nullptr;
        if (hwloc_bitmap_list_asprintf(&text, bound_) < 0) return "";
        std::string list = text;
        std::free(text);
        return list;
    }
    // Binds the process, with its present and future threads, to a range of cores. If the system refuses, it
    // runs unbound.
    void bind_process(int first_core, int count) const {
        hwloc_bitmap_t set = hwloc_bitmap_alloc();
        for (int i = first_core; i < first_core + count; ++i)
            if (const hwloc_obj_t core = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_CORE, unsigned(i)))
                hwloc_bitmap_or(set, set, core->cpuset);
        hwloc_set_cpubind(topology_, set, HWLOC_CPUBIND_PROCESS);
        hwloc_bitmap_free(set);
    }

private:
    hwloc_topology_t topology_ = nullptr;
    hwloc_bitmap_t bound_ = nullptr;
};

}  // namespace

std::string processors_near(const std::string& bus_id, const std::filesystem::path& root) {
    std::string list;
    if (!bus_id.empty())
        std::getline(std::ifstream(root / "sys/bus/pci/devices" / bus_id / "local_cpulist"), list);
    return list;
}

namespace {

// The first number of OMP_NUM_THREADS, which may be a list for nested regions; 0 if there is none.
int threads_of_environment() {
    const char* const text = std::getenv("OMP_NUM_THREADS");
    if (!text) return 0;
    const long threads = std::strtol(text, nullptr, 10);  // the largest number if it is larger
    if (threads > most_threads)
        throw ConfigError(
            "OMP_NUM_THREADS = {}: must be at most {}. The option training.threads comes before it", text,
            most_threads);
    return int(std::max(threads, 0L));
}

}  // namespace

CpuShare share_of_cpu(int wanted, int local_rank, int local_size, int sharing, const NearDevice& near) {
    const Topology topology;
    CpuShare share;
    share.cores = topology.bound_cores();
    share.machine_cores = topology.cores();
    share.bound = share.cores < share.machine_cores;
    share.sharing = share.bound ? sharing : local_size;
    // if something has bound the process, that binding is kept
    const Topology::Cores nearby = share.bound ? Topology::Cores{} : topology.cores_of(near.processors);
    if (nearby.count > 0) {
        share.cores = nearby.count;
        share.sharing = near.ranks;
    }
    const int equal = share.cores / share.sharing;  // 0: ranks share cores
    const int environment = wanted > 0 ? 0 : threads_of_environment();
    if (wanted > 0) {
        share.threads = wanted;
        share.reason = "training.threads";
    } else if (environment > 0) {
        share.threads = environment;
        share.reason = "OMP_NUM_THREADS";
        if (near.is_gpu && !share.bound && share.threads > equal && equal > 0) {
            share.reason += fmt::format(" = {}, more than its cores", share.threads);
            share.threads = equal;
        }
    } else {
        share.threads = std::max(1, equal);
        share.reason = share.bound
                           ? fmt::format("bound to {} of {} cores", share.cores, share.machine_cores)
                           : fmt::format("{} cores{}", share.cores, nearby.count > 0 ? " near the GPU" : "");
        if (!share.bound || sharing > 1)
            share.reason += fmt::format(" / {} {}", share.sharing, share.sharing == 1 ? "rank" : "ranks");
    }
    // a rank alone is not bound to CPUs: other programs on this host may be bound to some of the cores
    if (share.bound || (nearby.count == 0 && local_size == 1) || share.threads > equal) return share;
    share.own_cores = near.is_gpu ? equal : share.threads;
    share.first_core = nearby.first + (nearby.count > 0 ? near.number : local_rank) * share.own_cores;
    return share;
}

double cores_per_rank(int local_size, int sharing) {
    const Topology topology;
    const int cores = topology.bound_cores();
    return double(cores) / (cores < topology.cores() ? sharing : local_size);
}

std::string cpu_binding() {
    return Topology().binding();
}

bool share_processors(const std::string& list, const std::string& other) {
    hwloc_bitmap_t first = hwloc_bitmap_alloc(), second = hwloc_bitmap_alloc();
    const bool known = !list.empty() && !other.empty() &&
                       hwloc_bitmap_list_sscanf(first, list.c_str()) == 0 &&
                       hwloc_bitmap_list_sscanf(second, other.c_str()) == 0;
    const bool share = !known || hwloc_bitmap_intersects(first, second);
    hwloc_bitmap_free(first);
    hwloc_bitmap_free(second);
    return share;
}

void apply(const CpuShare& share) {
    omp_set_dynamic(0);
    omp_set_num_threads(share.threads);
    if (share.first_core >= 0) Topology().bind_process(share.first_core, share.own_cores);
}

void run_in_short_slices() {
#ifdef SYS_sched_setattr
    // called through syscall(), since the C library has sched_setattr(2) only from glibc 2.41 on
    struct {
        uint32_t size = 48, policy = 0;
        uint64_t flags = 0;
        int32_t nice = 0;
        uint32_t priority = 0;
        uint64_t runtime = 0, deadline = 0, period = 0;
    } attributes;
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 ||
        attributes.policy != SCHED_OTHER)
        return;
    attributes.runtime = 100'000;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}

std::string cpu_name() {
    std::ifstream info("/proc/cpuinfo");
    std::string part;
    for (std::string line; std::getline(info, line);) {
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
        if (line.starts_with("CPU part")) part = line.substr(line.find(':') + 2);  // aarch64 has no name
    }
    return part.empty() ? "unknown CPU" : "CPU part " + part;
}

#if defined(__x86_64__)
std::string cpu_vector_level() {
    if (__builtin_cpu_supports("avx512bf16")) return "avx512 bf16";
    if (__builtin_cpu_supports("avx512f")) return "avx512";
    if (__builtin_cpu_supports("avx2")) return "avx2";
    return __builtin_cpu_supports("avx") ? "avx" : "no avx";
}
#elif defined(__aarch64__)
std::string cpu_vector_level() {
    const std::string level = getauxval(AT_HWCAP) & HWCAP_SVE ? "sve" : "neon";
    return level + (getauxval(AT_HWCAP2) & HWCAP2_BF16 ? " bf16" : "");
}
#else
std::string cpu_vector_level() {
    return "unknown";
}
#endif

bool built_for_bf16_pairs() {
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return true;
#else
    return false;
#endif
}

bool built_for_avx2() {
#ifdef __AVX2__
    return true;
#else
    return false;
#endif
}

}  // namespace coeus
