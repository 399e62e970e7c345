// SPDX-License-Identifier: Apache-2.0
// Time lines of small recordings, computed by hand. A kernel of n bytes takes n seconds, and so do a gather
// and a sum of n bytes over two ranks and a message of n bytes.
#include "coeus/predict/timeline.hpp"

#include "support/catch.hpp"

#include <algorithm>

using namespace coeus;

namespace {

const MachineFile machine = parse_machine_file(R"(
name = "m"
title = "m"
kind = "sheet"
[[rows]]
kernel = "rope"
bytes_per_second = 1.0
from = "x"
[[rows]]
kernel = "swiglu"
bytes_per_second = 1.0
from = "x"
[[level]]
name = "node"
all_gather = [[1.0, 0.5]]
reduce_scatter = [[1.0, 0.5]]
all_reduce = [[1.0, 1.0]]
all_to_all = [[1.0, 0.5]]
message = [[1.0, 1.0]]
from = "x"
)",
                                               "m.toml");

using Kind = Submitted::Kind;
constexpr uint32_t computation = 0, gathers = 1, sums = 2;

// A recording that is written by hand, for a mesh whose axes have two ranks each.
class Written {
public:
    explicit Written(uint32_t queues) {
        recording_.mesh = {.pp = 2, .dp_shard = 2, .cp = 2, .tp = 2, .ep = 2};
        recording_.queues = queues;
    }
    Written& compute(double seconds, const char* kernel = "rope") {
        recording_.calls.push_back({.kernel = kernel, .variant = "", .bytes = seconds});
        return add(Kind::kernel, computation, recording_.calls.size() - 1);
    }
    Written& collective(uint32_t queue, double seconds, Purpose purpose, const char* operation,
                        unsigned axes) {
        recording_.collectives.push_back({operation, axes, seconds, purpose});
        return add(Kind::collective, queue, recording_.collectives.size() - 1);
    }
    // After everything that the computation has so far.
    Written& gather(double seconds) {
        wait(gathers, computed_);
        return collective(gathers, seconds, Purpose::weights, "all_gather", axis::dp_shard);
    }
    Written& sum(double seconds) {
        wait(sums, computed_);
        return collective(sums, seconds, Purpose::gradients, "reduce_scatter", axis::dp_shard);
    }
    Written& beside(uint32_t queue, double seconds, Purpose purpose, const char* kernel) {
        wait(queue, computed_);
        recording_.calls.push_back({.kernel = kernel, .variant = "", .bytes = seconds});
        add(Kind::kernel, queue, recording_.calls.size() - 1);
        recording_.submitted.back().purpose = purpose;
        return *this;
    }
    Written& wait(uint32_t queue, size_t entry) { return add(Kind::wait, queue, entry); }
    Written& act(ActionKind kind) { return add(Kind::begin_action, computation, size_t(kind)); }
    Written& end_act() { return add(Kind::end_action, computation, 0); }
    // The number of the last entry.
    size_t here() const { return recording_.submitted.size() - 1; }

    Played play(LaunchOrder order = LaunchOrder::overlapped, const MachineFile& on = machine) const {
        return coeus::play(recording_, Rates(on), false, order);
    }

private:
    Written& add(Kind kind, uint32_t queue, size_t index) {
        recording_.submitted.push_back({kind, queue, uint32_t(index)});
        if (queue == computation) computed_ = here();
        return *this;
    }
    Recording recording_;
    size_t computed_ = 0;  // the last entry of the computation
};

bool is(const Communication& c, double total, double exposed) {
    return c.total == Approx(total) && c.exposed == Approx(exposed).margin(1e-12);
}

const Communication& of(const Played& played, Purpose purpose) {
    return played.communication[size_t(purpose)];
}

using enum LaunchOrder;

}  // namespace

TEST_CASE("the computation waits for the gather that it needs, not for those that were submitted later") {
    Written step(3);
    step.compute(1).gather(4);
    const size_t first = step.here();
    step.gather(6);  // the next but one
    const size_t second = step.here();
    step.compute(2).wait(computation, first).compute(3).wait(computation, second).compute(1);
    // gathers 1 - 5 and 5 - 11; kernels 0 - 1, 1 - 3, 5 - 8, 11 - 12
    const Played played = step.play();
    CHECK(played.total == Approx(12));
    CHECK(is(of(played, Purpose::weights), 10, 5));
    CHECK(played.seconds.at("waits for gathers of weights") == Approx(5));
    CHECK(played.seconds.at("RoPE") == Approx(7));
}

TEST_CASE("a gather that is submitted two units ahead is hidden if one unit ahead it is not") {
    // units that compute 2 s each; the second one's gather takes 4 s
    Written near(3), far(3);
    near.compute(2).compute(2).gather(4);
    const size_t late = near.here();
    near.compute(2).wait(computation, late).compute(2);
    far.compute(2).gather(4);
    const size_t early = far.here();
    far.compute(2).compute(2).wait(computation, early).compute(2);
    CHECK(near.play().total == Approx(2 + 2 + 4 + 2));
    CHECK(is(of(near.play(), Purpose::weights), 4, 2));
    CHECK(far.play().total == Approx(8));
    CHECK(is(of(far.play(), Purpose::weights), 4, 0));
}

TEST_CASE("operations of two queues run at once, or one after the other in serial order") {
    Written step(3);
    step.compute(1).sum(5).gather(4);
    const size_t gather = step.here();
    step.compute(2).wait(computation, gather).compute(1);
    // the sum 1 - 6; the gather 1 - 5 or 6 - 10. Nothing waits for the sum but the end of the step.
    const Played overlap = step.play(overlapped), one_by_one = step.play(serial);
    CHECK(overlap.total == Approx(6));
    CHECK(is(of(overlap, Purpose::weights), 4, 2));
    CHECK(is(of(overlap, Purpose::gradients), 5, 0));
    CHECK(one_by_one.total == Approx(11));
    CHECK(is(of(one_by_one, Purpose::weights), 4, 7));
    CHECK(is(of(one_by_one, Purpose::gradients), 5, 0));
}

TEST_CASE("an operation begins after those that were submitted before have begun, unless there is no order") {
    Written step(3);
    step.compute(1).gather(4).gather(4);
    const Purpose tensor = Purpose::tensor;
    step.collective(computation, 1, tensor, "all_gather", axis::tp).compute(1);
    // the second gather begins at 5, so the exchange of the computation too: 5 - 6
    CHECK(is(of(step.play(overlapped), tensor), 1, 5));
    CHECK(step.play(overlapped).total == Approx(9));
    CHECK(is(of(step.play(unordered), tensor), 1, 1));
    CHECK(is(of(step.play(serial), tensor), 1, 9));
    CHECK(step.play(serial).total == Approx(11));
}

TEST_CASE("what is left of an operation at the end of the step is exposed") {
    Written step(3);
    step.compute(1).sum(5).compute(2);
    CHECK(step.play().total == Approx(6));
    CHECK(is(of(step.play(), Purpose::gradients), 5, 3));
}

TEST_CASE("a queue that waits for another one passes the wait on") {
    Written step(3);
    step.compute(1).sum(5);
    step.wait(gathers, step.here());
    step.wait(computation, step.here()).compute(1);
    CHECK(step.play().total == Approx(7));
    CHECK(is(of(step.play(), Purpose::gradients), 5, 5));
}

TEST_CASE("each purpose has its communication: experts, stages, context") {
    Written step(4);
    step.compute(1);
    step.wait(1, step.here()).collective(1, 3, Purpose::experts, "all_to_all", axis::ep);
    const size_t rows = step.here();
    step.compute(2, "swiglu").wait(computation, rows);  // 1 s is left
    step.wait(2, step.here()).collective(2, 2, Purpose::stages, "send_receive", axis::pp);
    const size_t message = step.here();
    step.compute(5).wait(computation, message);
    step.wait(3, step.here()).collective(3, 4, Purpose::context, "send_receive", axis::cp);
    step.wait(computation, step.here()).compute(1);
    const Played played = step.play();
    CHECK(is(of(played, Purpose::experts), 3, 1));
    CHECK(is(of(played, Purpose::stages), 2, 0));
    CHECK(is(of(played, Purpose::context), 4, 4));
    CHECK(is(of(played, Purpose::weights), 0, 0));
    CHECK(played.total == Approx(14));
    CHECK(played.seconds.at("waits for rows of experts") == Approx(1));
    CHECK(played.seconds.at("SwiGLU") == Approx(2));
    CHECK(played.left_out == std::set<std::string>{"gaps between launches"});
}

TEST_CASE("actions of a pipeline have their time, without that between them") {
    Written step(3);
    step.compute(1).act(ActionKind::forward).compute(2).end_act();
    step.compute(4)
        .act(ActionKind::backward)
        .compute(3)
        .end_act()
        .act(ActionKind::forward)
        .compute(5)
        .end_act();
    const Played played = step.play();
    CHECK(played.actions ==
          std::map<ActionKind, double>{{ActionKind::forward, 7}, {ActionKind::backward, 3}});
}

TEST_CASE("kernels are slower while an operation of another queue runs") {
    MachineFile half = machine;
    half.overlap = MachineFile::Overlap{.sms = 4, .sms_of_a_collective = 2, .memory_share = 0};
    Written step(3);
    step.compute(1).gather(4);
    step.compute(3);
    // 2 s of work take the 4 s of the gather, and 1 s is done after it
    const Played played = step.play(overlapped, half);
    CHECK(played.total == Approx(6));
    CHECK(played.seconds.at("kernels slowed by collectives") == Approx(2));
}

TEST_CASE("kernels beside copies only are slowed less, and copies wait for no other operation") {
    MachineFile half = machine;
    half.overlap =
        MachineFile::Overlap{.sms = 4, .sms_of_a_collective = 2, .sms_of_a_copy = 1, .memory_share = 0};
    Written step(3);
    step.compute(1).wait(2, step.here()).collective(2, 4, Purpose::tensor, "peer_copy", axis::tp);
    step.compute(6);
    // 3 s of work take the 4 s of the copy
    CHECK(step.play(overlapped, half).total == Approx(8));
    half.overlap->sms_of_a_copy = 0;  // as a collective: 2 s of work take 4 s
    CHECK(step.play(overlapped, half).total == Approx(9));
    half.overlap->sms_of_a_copy = 1;
    Written both(3);
    both.compute(1).gather(2).wait(2, 1).collective(2, 4, Purpose::tensor, "peer_copy", axis::tp);
    both.compute(6);
    // 1 s of work in the 2 s of the gather, 1.5 s in the rest of the copy, and 3.5 s after it
    for (const LaunchOrder order : {overlapped, serial}) {
        const Played played = both.play(order, half);
        CHECK(played.total == Approx(1 + 2 + 2 + 3.5));
        CHECK(is(of(played, Purpose::tensor), 4, 0));
    }
}

TEST_CASE("an operation without a rate takes no time, and is named") {
    MachineFile without = machine;
    without.levels.front().bandwidth.erase("all_gather");
    Written step(3);
    step.compute(1).gather(4);
    CHECK(step.play(overlapped, without).total == Approx(1));
    CHECK(step.play(overlapped, without).left_out.contains("all_gather"));
}

TEST_CASE("kernels beside the computation are a part of their communication") {
    MachineFile casts = machine;
    casts.rows.push_back({.kernel = "cast", .bytes_per_second = 1});
    casts.rows.push_back({.kernel = "add", .bytes_per_second = 1});
    Written step(3);
    step.compute(1).beside(gathers, 4, Purpose::weights, "cast").gather(4);
    step.wait(computation, step.here()).compute(1).sum(2);
    step.beside(sums, 3, Purpose::gradients, "add").beside(sums, 2, Purpose::gradients, "cast");
    // the cast 1 - 5, the gather 5 - 9, the kernel 9 - 10, the sum 10 - 12, and the kernels after it 12 - 17
    const Played played = step.play(overlapped, casts);
    CHECK(is(of(played, Purpose::weights), 4 + 4, 8));
    CHECK(is(of(played, Purpose::gradients), 2 + 3 + 2, 7));
    CHECK(played.total == Approx(17));
    CHECK(!played.seconds.contains("zeroing, casts, sums"));
}

TEST_CASE("a kernel beside the computation without a rate is named") {
    Written step(3);
    step.compute(1).beside(gathers, 4, Purpose::weights, "cast").gather(4);
    step.wait(computation, step.here()).compute(1);
    const std::string casts = "zeroing, casts, sums";
    const Played left_out = step.play();
    CHECK(left_out.left_out.contains(casts));
    CHECK(!left_out.at_peak.contains(casts));
    CHECK(is(of(left_out, Purpose::weights), 4, 4));
    MachineFile only_bandwidth = machine;
    only_bandwidth.memory_bandwidth = 2;
    const Played at_peak = step.play(overlapped, only_bandwidth);
    CHECK(at_peak.at_peak.contains(casts));
    CHECK(!at_peak.left_out.contains(casts));
    CHECK(is(of(at_peak, Purpose::weights), 4 + 2, 6));
}
