// SPDX-License-Identifier: Apache-2.0
// Times of a GPU's work as observers get them: from timestamps in its queues, without waiting for the GPU.
#include "coeus/device/timestamps.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/file/json.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/observe/kernel_profile.hpp"
#include "coeus/observe/tracer.hpp"
#include "gpu/gpu.hpp"
#include "gpu/numbers.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

using namespace coeus;
using namespace coeus::test;

namespace {

struct Step {
    size_t waits = 0;  // number of waits for the GPU
    int kernels = 0, without_time = 0;
    double first = 0, last = 0;  // of the trace, on the host's clock
    double began = 0, ended = 0;
    std::vector<std::string> profile;
};

// The second of two steps, observed or not.
Step second_step(const Device& device, bool observed) {
    Engine engine(tiny_config(), {.training = {.sequences = 2, .seq_len = 7},
                                  .accumulation = 2,
                                  .machine = {.backend = device.backend()},
                                  .streams = Stream::Mode::threaded});
    engine.allocate(mesh_of_one(), device);
    engine.model().parameters().initialise(engine.exec(), engine.kernels(), 5);
    engine.renew_weights();
    TestBatch batch(4, 7, tiny_config().vocab);
    const auto take_step = [&](int64_t number) {
        engine.compute_gradients(number, 1e-2, batch.valid_labels(),
                                 [&](int64_t i) { return batch.local_batch(2 * i, 2); });
        CHECK(engine.update().taken);
    };
    take_step(1);
    Step step;
    step.began = steady_seconds();  // before the clocks are synchronised
    KernelProfile profile{Timestamps(engine.exec())};
    Tracer tracer(0, Tracer::room, Timestamps(engine.exec()));
    Observation profiling, tracing;
    if (observed) {
        profiling = engine.observe(profile);
        tracing = engine.observe(tracer);
        engine.observe_pipeline(&tracer, &tracer);
    }
    const size_t before = gpu_waits();
    take_step(2);
    step.ended = steady_seconds();
    step.waits = gpu_waits() - before;
    profile.end_step(1e-6, 1e-6);
    step.profile = lines_of(profile.table({}));
    const TemporaryFolder folder;
    tracer.write(folder / "trace.json");
    const JsonDocument trace = JsonDocument::read(folder / "trace.json");
    for (const JsonView& event : trace.root()["traceEvents"].elements()) {
        if (event.string("ph") != "X") continue;
        const double from = event.number("ts") * 1e-6, seconds = event.number("dur") * 1e-6;
        if (step.first == 0) step.first = from;
        step.last = std::max(step.last, from + seconds);
        if (event.string("cat") != "kernel") continue;
        ++step.kernels;
        step.without_time += !(seconds > 0);
    }
    return step;
}

}  // namespace

TEST_CASE("a GPU: timestamps follow the order of work in their queues, on the host's clock") {
    const Device& gpu = the_gpu();
    const Kernels& k = cuda_kernels();
    const double before = steady_seconds();
    Exec first(gpu), second(gpu);
    Numbers a(gpu, 1), b(gpu, 0);
    Timestamps stamps(first);
    CHECK(stamps.computation() == first.queue.get());
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        set_order(seed);
        const Timestamp host = stamps.take(nullptr);
        std::vector<Timestamp> taken = {stamps.take(first.queue.get())};
        for (int i = 0; i < 50; ++i) {
            k.add(first, b.memory, a.memory);
            k.add(second, a.memory, a.memory);  // in a queue that waits for no other
            taken.push_back(stamps.take(first.queue.get()));
        }
        second.queue->wait_for(*first.queue, first.queue->mark());
        taken.push_back(stamps.take(second.queue.get()));
        for (size_t i = 1; i < taken.size(); ++i) {
            const double apart = stamps.between(taken[i - 1], taken[i]);
            CHECK((i + 1 == taken.size() ? apart >= 0 : apart > 0));
            CHECK(relatively_close(stamps.seconds(taken[i]) - stamps.seconds(taken[0]),
                                   stamps.between(taken[0], taken[i]), 1e-2));
        }
        CHECK(stamps.seconds(taken[0]) > before);
        CHECK(stamps.seconds(taken[0]) < steady_seconds());
        CHECK(stamps.seconds(host) > before);
        CHECK(stamps.seconds(host) < steady_seconds());
        CHECK(stamps.between(host, stamps.take(nullptr)) > 0);
        stamps.restart();
    }
}

TEST_CASE("a GPU: an observed step has the time of each kernel, and no more waits than any other step") {
    set_order(3);
    const Step cpu = second_step(host_device(), true), gpu = second_step(the_gpu(), true),
               unobserved = second_step(the_gpu(), false);
    CHECK(gpu.waits == unobserved.waits);
    CHECK(unobserved.kernels == 0);
    CHECK(cpu.kernels > 50);
    CHECK(gpu.kernels == cpu.kernels);
    CHECK(gpu.without_time == 0);
    CHECK(gpu.first > gpu.began);
    CHECK(gpu.last < gpu.ended);
    // the step lasts a microsecond, so that every time is a visible fraction of it
    CHECK(gpu.profile.size() == cpu.profile.size());
    // a single rank sums no norm
    for (const std::string& line : gpu.profile)
        CHECK_THAT(line, !Catch::Contains(" 0.0%") || Catch::Contains("sum_squared_norm"));
}

TEST_CASE("a GPU: profile and trace take the time of each kernel from the GPU's clock, not the host's") {
    const Device& gpu = the_gpu();
    Exec exec(gpu);
    Numbers a(gpu, 1), b(gpu, 0);
    KernelProfile profile{Timestamps(exec)};
    Tracer tracer(0, Tracer::room, Timestamps(exec));
    const Observation profiling = exec.observers.add(profile), tracing = exec.observers.add(tracer);
    const int calls = 2000;
    double host_seconds = 0;
    size_t before = 0;
    for (int step = 1; step <= 2; ++step) {
        const Timer timer;
        if (step == 2) tracer.clear(), before = gpu_allocations();
        for (int i = 0; i < calls; ++i) cuda_kernels().add(exec, b.memory, a.memory);
        profile.end_step(1, 0);  // the timestamps have arrived
        host_seconds = timer.seconds();
    }
    CHECK(gpu_allocations() == before);  // events are reused
    const TemporaryFolder folder;
    tracer.write(folder / "trace.json");
    const JsonDocument trace = JsonDocument::read(folder / "trace.json");
    double traced = 0, longest = 0;
    int kernels = 0;
    for (const JsonView& event : trace.root()["traceEvents"].elements()) {
        if (event.string("ph") != "X") continue;
        ++kernels;
        traced += event.number("dur") * 1e-6;
        longest = std::max(longest, event.number("dur") * 1e-6);
    }
    CHECK(kernels == calls);
    CHECK(traced > 0);
    CHECK(traced < host_seconds);
    const std::vector<std::string> lines = lines_of(profile.table({}));
    REQUIRE(lines.size() > 2);
    if (const double each = seconds_of_kernel(); each > 0) {
        CHECK(relatively_close(traced, calls * each, 1e-3));
        CHECK(relatively_close(longest, each, 1e-3));
        CHECK_THAT(lines[2],
                   Catch::StartsWith(fmt::format("  {:<22} {:>5.1f}% {:>10.1f} {:>12.2f}", "add",
                                                 100 * calls * each, double(calls), 1e3 * calls * each)));
    }
}
