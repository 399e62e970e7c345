// SPDX-License-Identifier: Apache-2.0
// Properties that only the emulated GPU can show: missing forks and joins, a lack of memory, no GPU.
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/device/gpu_presence.hpp"
#include "coeus/device/step_graph.hpp"
#include "coeus/device/stream.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/plan/copy_rate.hpp"
#include "gpu/numbers.hpp"
#include "stand_ins/cuda/block.hpp"
#include "stand_ins/cuda/runtime.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cuda_runtime.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

using namespace coeus;
using namespace coeus::test;

namespace {

// The computation turns 0 into 1, another stream adds that to `sum`, and the computation doubles the sum.
float two_streams(const Device& gpu, Stream::Mode mode, bool fork, bool join) {
    Numbers from(gpu, 0), one(gpu, 1), sum(gpu, 10);  // streams end before these
    Exec computation(gpu), host;
    Stream beside(mode, fork ? computation : host);
    Exec loose(gpu);  // a queue that waits for no other
    Exec& side = fork ? beside.exec() : loose;
    const Kernels& k = cuda_kernels();
    k.add(computation, from.memory, one.memory);
    Pending pending = beside.run([&] { k.add(side, sum.memory, from.memory); });
    if (join)
        pending.join();
    else
        pending.forget();
    k.add(computation, sum.memory, sum.memory);
    computation.queue->finish();
    side.queue->finish();
    return sum.first();
}

// Whether this program, and not the device, can read an address. The system says so without a signal.
bool is_readable(const void* address) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    errno = 0;
    const bool was_read = write(ends[1], address, 1) == 1;
    CHECK((was_read || errno == EFAULT));
    close(ends[0]);
    close(ends[1]);
    return was_read;
}

}  // namespace

TEST_CASE("a GPU: its memory is closed to the host, before and after the device used it") {
    const auto gpu = open_gpu(0);
    for (const int64_t bytes : {int64_t(4) << 10, int64_t(8) << 20}) {
        const Buffer some(bytes, "some", gpu->memory());
        CHECK_FALSE(is_readable(some.data()));
        int value = 7;
        gpu->copy(some.data(), &value, sizeof value);
        CHECK_FALSE(is_readable(some.data()));
        value = 0;
        gpu->copy(&value, some.data(), sizeof value);
        CHECK(value == 7);
        bool by_another_thread = true;
        std::thread([&] { by_another_thread = is_readable(some.data()); }).join();
        CHECK_FALSE(by_another_thread);
        CHECK(is_readable(&value));
    }
}

TEST_CASE("a GPU: streams fork from the computation and join it") {
    const auto gpu = open_gpu(0);
    bool fork_shows = false, join_shows = false;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        emulation::set_seed(seed);
        for (const auto mode : {Stream::Mode::eager, Stream::Mode::threaded, Stream::Mode::deferred}) {
            CHECK(two_streams(*gpu, mode, true, true) == 22);
            join_shows = join_shows || two_streams(*gpu, mode, true, false) != 22;
        }
        fork_shows = fork_shows || two_streams(*gpu, Stream::Mode::eager, false, true) != 22;
    }
    CHECK(fork_shows);
    CHECK(join_shows);
}

TEST_CASE("a GPU: memory is counted, and a lack of it is an error that names the purpose") {
    const auto gpu = open_gpu(0);
    const int64_t before = gpu->peak_bytes();
    {
        const Buffer some(1 << 20, "some", gpu->memory());
        CHECK_FALSE(some.memory().is_host());
    }
    const Buffer less(1 << 10, "less", gpu->memory());
    CHECK(gpu->peak_bytes() == before + (1 << 20));
    CHECK_THROWS_WITH(Buffer(int64_t(1) << 40, "all the weights", gpu->memory()),
                      Catch::Contains("cannot get 1.00 TiB of emulated GPU for all the weights") &&
                          Catch::Contains("out of memory"));
    CHECK(gpu->bus_id() == "0000:01:00.0");
}

TEST_CASE("a GPU: repeated work is captured, with the streams that it forks, and replayed each time") {
    const auto gpu = open_gpu(0);
    const Kernels& k = cuda_kernels();
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        emulation::set_seed(seed);
        Numbers one(*gpu, 1), sum(*gpu, 0), twice(*gpu, 0);
        Exec computation(*gpu);
        Stream beside(Stream::Mode::eager, computation);
        StepGraph work("sums");
        const size_t before = emulation::graph_launches();
        int called = 0;
        for (int time = 1; time <= 5; ++time) {
            work.give(computation, [&] {
                ++called;
                k.add(computation, sum.memory, one.memory);
                Pending pending = beside.run([&] {
                    k.add(beside.exec(), twice.memory, sum.memory);
                    k.add(beside.exec(), twice.memory, sum.memory);
                });
                k.add(computation, one.memory, one.memory);
                pending.join();
                k.add(computation, sum.memory, twice.memory);
            });
            k.zero(computation, twice.memory);
        }
        computation.queue->finish();
        float expected = 0;
        for (int time = 0, added = 1; time < 5; ++time, added *= 2) expected = (expected + float(added)) * 3;
        CHECK(sum.first() == expected);
        CHECK(called == 2);
        CHECK(work.nodes() == 5);
        CHECK(emulation::graph_launches() == before + 4);
    }
}

TEST_CASE("a GPU: the log says how large a graph is") {
    struct Restore {
        ~Restore() { log::init({}); }
    } restore;
    const test::TemporaryFolder folder;
    const std::string file = (folder / "log.txt").string();
    log::init({.file = file, .quiet = true});
    const auto gpu = open_gpu(0);
    Numbers one(*gpu, 1);
    Exec computation(*gpu);
    StepGraph graph("the sums of a test");
    CHECK(graph.nodes() == 0);
    const auto give = [&] {
        graph.give(computation, [&] { cuda_kernels().add(computation, one.memory, one.memory); });
    };
    give();
    CHECK(graph.nodes() == 0);
    give();
    log::flush();
    CHECK_THAT(test::read_file(file),
               Catch::Contains("the sums of a test: a CUDA graph of 1 nodes, instantiated in "));
    graph.forget();
    CHECK(graph.nodes() == 0);
}

TEST_CASE("a GPU: an operation that a capture forbids is an error") {
    const auto gpu = open_gpu(0);
    const Kernels& k = cuda_kernels();
    const auto recording = [&](const std::function<void(Exec&, Stream&, int64_t)>& work) {
        Numbers one(*gpu, 1);
        Exec computation(*gpu);
        Stream beside(Stream::Mode::eager, computation);
        const int64_t before = beside.exec().queue->mark();
        StepGraph graph("sums");
        const auto give = [&] {
            graph.give(computation, [&] {
                k.add(computation, one.memory, one.memory);
                if (before >= 0) work(computation, beside, before);
            });
        };
        try {
            give();
            give();
        } catch (const SystemError& error) {
            return std::string(error.what());
        }
        return std::string("no error");
    };
    CHECK(recording([](Exec&, Stream&, int64_t) {}) == "no error");
    CHECK_THAT(recording([](Exec& exec, Stream&, int64_t) { exec.queue->finish(); }),
               Catch::Contains("not permitted when stream is capturing"));
    CHECK_THAT(recording([](Exec& exec, Stream&, int64_t) { exec.queue->finish(exec.queue->mark()); }),
               Catch::Contains("not permitted on an event last recorded in a capturing stream"));
    CHECK_THAT(recording([&](Exec&, Stream&, int64_t) { const Buffer more(64, "more", gpu->memory()); }),
               Catch::Contains("not permitted when stream is capturing"));
    CHECK_THAT(recording([&](Exec&, Stream&, int64_t) { const Buffer more(64, "more", gpu->staging()); }),
               Catch::Contains("not permitted when stream is capturing"));
    CHECK_THAT(recording([](Exec& exec, Stream& beside, int64_t before) {
                   exec.queue->wait_for(*beside.exec().queue, before);
               }),
               Catch::Contains("uncaptured work"));
    Numbers other(*gpu, 0);
    CHECK_THAT(recording([&](Exec&, Stream& beside, int64_t) {
                   beside.run([&] { k.add(beside.exec(), other.memory, other.memory); }).forget();
               }),
               Catch::Contains("unjoined work"));
}

TEST_CASE("a GPU for which the program was not built is refused, with the option to build for it") {
    emulation::set_kernels_for_gpu(false);
    CHECK_THROWS_WITH(open_gpu(0), Catch::Contains("no kernels for emulated GPU (compute capability 9.0)") &&
                                       Catch::Contains("COEUS_CUDA_ARCH=90") &&
                                       Catch::Contains("device = \"cpu\""));
    emulation::set_kernels_for_gpu(true);
}

TEST_CASE("the driver compiles the kernels for GPUs that are newer than the program's") {
    for (const auto& [architecture, compiled] :
         {std::pair(80, false), {89, false}, {90, false}, {100, true}}) {
        emulation::architecture = architecture;
        CHECK(open_gpu(0)->compiles_kernels() == compiled);
    }
    emulation::architecture = 90;
    CHECK(!host_device().compiles_kernels());
}

TEST_CASE("a GPU: a thread waits for it asleep if that was asked for") {
    const auto made_for = [](Waiting waiting) {
        emulation::device_flags = 0;
        const size_t before = emulation::events_with_sleep;
        const auto gpu = open_gpu(0, {.waiting = waiting});
        const Exec computation(*gpu);
        return emulation::events_with_sleep - before;
    };
    CHECK(made_for(Waiting::awake) == 0);
    CHECK(emulation::device_flags == 0);
    CHECK(made_for(Waiting::asleep) == 64);
    CHECK(emulation::device_flags == cudaDeviceScheduleBlockingSync);
}

TEST_CASE("a GPU: a copy is done when its call returns, from pageable memory and within the device") {
    const auto gpu = open_gpu(0);
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        emulation::set_seed(seed);
        Numbers from(*gpu, 0), copied(*gpu, 0), sum(*gpu, 0), sum_of_copied(*gpu, 0);
        const std::vector<float> pageable(size_t(Numbers::count), 7);
        Exec queue(*gpu);
        gpu->copy(from.memory.view.data, pageable.data(), from.memory.view.bytes());
        cuda_kernels().add(queue, sum.memory, from.memory);
        queue.queue->finish();
        gpu->copy(copied.memory.view.data, from.memory.view.data, from.memory.view.bytes());
        cuda_kernels().add(queue, sum_of_copied.memory, copied.memory);
        queue.queue->finish();
        CHECK(sum.first() == 7);
        CHECK(sum_of_copied.first() == 7);
    }
}

TEST_CASE("a GPU: communication has a high priority, also in graphs") {
    const auto gpu = open_gpu(0);
    const auto priority_of = [](const Exec& exec) {
        return emulation::priority(static_cast<cudaStream_t>(exec.queue->native()));
    };
    Numbers one(*gpu, 1);
    Exec computation(*gpu);
    Stream copies(Stream::Mode::eager, computation),
        gathers(Stream::Mode::eager, computation, Priority::high);
    CHECK(priority_of(computation) == 0);
    CHECK(priority_of(copies.exec()) == 0);
    CHECK(priority_of(gathers.exec()) == -5);
    computation.queue->begin_recording();
    cuda_kernels().add(computation, one.memory, one.memory);
    const auto graph = computation.queue->end_recording();
    CHECK(emulation::graph_flags == cudaGraphInstantiateFlagUseNodePriority);

    const auto other = open_gpu(0, {.priorities = false});
    const Exec without(*other);
    CHECK(priority_of(Stream(Stream::Mode::eager, without, Priority::high).exec()) == 0);
}

TEST_CASE("a GPU: the memory that libraries take is counted") {
    const auto gpu = open_gpu(0);
    CHECK(gpu->taken_bytes() == 0);
    const Buffer own(1 << 20, "own", gpu->memory());
    CHECK(gpu->taken_bytes() == 1 << 20);
    emulation::bytes_of_libraries = 3 << 20;
    CHECK(gpu->taken_bytes() == 4 << 20);
    emulation::bytes_of_libraries = 0;
    CHECK(gpu->memory_bytes() - gpu->taken_bytes() == open_gpu(0)->memory_bytes());
}

TEST_CASE("a GPU: the blocks of a measured copy have an eighth of the free memory") {
    emulation::free_memory = size_t(40) << 20;
    const auto gpu = open_gpu(0);
    Exec exec(*gpu);
    CHECK(copy_rate(exec, cuda_kernels()).bytes == int64_t(2) << 20);
    emulation::free_memory = emulation::all_memory;
}

TEST_CASE("a GPU: while a thread records a graph, no thread may wait for the whole device") {
    const auto gpu = open_gpu(0);
    Numbers one(*gpu, 1);
    const auto recording = [&](const std::function<void()>& other_thread) {
        Exec computation(*gpu);
        computation.queue->begin_recording();
        cuda_kernels().add(computation, one.memory, one.memory);
        std::string text = "no error";
        std::thread([&] {
            try {
                other_thread();
            } catch (const SystemError& error) {
                text = error.what();
            }
        }).join();
        try {
            computation.queue->end_recording();
        } catch (const SystemError& error) {
            text += fmt::format(", and {}", error.what());
        }
        return text;
    };
    CHECK(recording([] {}) == "no error");
    float number = 0;
    CHECK_THAT(recording([&] { gpu->copy(&number, one.memory.view.data, sizeof number); }),
               Catch::Contains("not permitted when stream is capturing") && Catch::Contains(", and ") &&
                   Catch::Contains("due to a previous error during capture"));
    // a thread may allocate, and wait for its own queue
    CHECK(recording([] {
              void* memory = nullptr;
              if (cudaMalloc(&memory, 64) != cudaSuccess || cudaFree(memory) != cudaSuccess)
                  throw SystemError("no memory");
          }) == "no error");
    CHECK(recording([&] { Exec(*gpu).queue->finish(); }) == "no error");
}

TEST_CASE("a missing GPU is reported with the reason") {
    emulation::set_gpus(0);
    CHECK(visible_gpus() == 0);
    CHECK(!cuda_fails());
    CHECK(why_no_gpu() == "no GPU is visible (CUDA_VISIBLE_DEVICES hides them?)");
    CHECK_THROWS_WITH(open_gpu(0), Catch::Contains("no CUDA-capable device is detected"));
    emulation::set_gpus(1);
    CHECK(visible_gpus() == 1);
    CHECK(why_no_gpu().empty());
}

TEST_CASE("a GPU that cannot be used is reported with the reason") {
    const TemporaryFolder folder;
    const std::filesystem::path root = folder / "root";
    std::filesystem::create_directories(root / "dev");
    unsetenv("CUDA_VISIBLE_DEVICES");
    emulation::set_failure(cudaErrorInsufficientDriver);
    emulation::driver_version = 12040;
    CHECK(visible_gpus() == 0);
    CHECK(cuda_fails());
    CHECK(unusable_gpu(root).empty());  // there is none
    std::ofstream(root / "dev/nvidia0") << "";
    CHECK(unusable_gpu(root) ==
          "GPU /dev/nvidia0 cannot be used: the driver knows CUDA 12.4, but this program was built with CUDA "
          "13.0, which needs driver 580 or newer; update the driver, or use a program that was built with "
          "CUDA 12");
    for (const char* hides : {"", "-1", "NoDevFiles"}) {
        setenv("CUDA_VISIBLE_DEVICES", hides, 1);
        CHECK(unusable_gpu(root).empty());
    }
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    emulation::driver_version = 0;
    CHECK(unusable_gpu(root) ==
          "GPU /dev/nvidia0 cannot be used: NVIDIA's driver (libcuda.so.1) is not found; a container gets it "
          "from its host with docker --gpus or apptainer --nv");
    unsetenv("CUDA_VISIBLE_DEVICES");
    emulation::driver_version = 13000;
    emulation::set_failure(cudaErrorSystemNotReady);
    CHECK(unusable_gpu(root) ==
          "GPU /dev/nvidia0 cannot be used: CUDA reports \"system not yet initialized\"");
    emulation::set_gpus(0);  // the driver works and shows none
    CHECK(unusable_gpu(root).empty());
    emulation::set_gpus(1);
    CHECK(unusable_gpu(root).empty());
}
