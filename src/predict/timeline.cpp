// SPDX-License-Identifier: Apache-2.0
#include "coeus/predict/timeline.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace coeus {

namespace {

constexpr const char *products = "products", *attention_forward = "attention, forward",
                     *attention_backward = "attention, backward", *norms = "norms", *rope = "RoPE",
                     *swiglu = "SwiGLU", *experts = "experts' rows", *loss = "loss and embedding",
                     *quantizing = "quantizing", *casts = "zeroing, casts, sums", *optimizer = "optimizer",
                     *slowed = "kernels slowed by collectives", *gaps = "gaps between launches";
constexpr std::array<const char*, num_purposes> waits = {
    "waits for gathers of weights", "waits for sums of gradients",  "waits for tensor parallelism",
    "waits for keys and values",    "waits for messages of stages", "waits for rows of experts",
    "waits for other collectives"};
constexpr std::array classes = {
    products, attention_forward, attention_backward, norms, rope, swiglu, experts, loss, quantizing,
    casts,    optimizer};

// The kernels of each class; all products are named gemm.
const std::map<std::string, const char*>& classes_of_kernels() {
    static const std::map<std::string, const char*> all = {
        {"attention", attention_forward},
        {"merge_attention", attention_forward},
        {"attention_sink", attention_forward},
        {"attention_cached", attention_forward},
        {"latent_keys", attention_forward},
        {"attention_backward", attention_backward},
        {"attention_sink_backward", attention_backward},
        {"latent_keys_backward", attention_backward},
        {"rms_norm", norms},
        {"rms_norm_backward", norms},
        {"layer_norm", norms},
        {"layer_norm_backward", norms},
        {"head_norm", norms},
        {"head_norm_backward", norms},
        {"row_products", norms},
        {"divided_norm", norms},
        {"divided_norm_backward", norms},
        {"modulate", norms},
        {"modulate_backward", norms},
        {"rope", rope},
        {"scale_rows", rope},
        {"swiglu", swiglu},
        {"swiglu_backward", swiglu},
        {"geglu", swiglu},
        {"geglu_backward", swiglu},
        {"activation", swiglu},
        {"activation_backward", swiglu},
        {"gate", swiglu},
        {"gate_backward", swiglu},
        {"route", experts},
        {"route_backward", experts},
        {"group_by_expert", experts},
        {"units_of_rows", experts},
        {"choices_of_rows", experts},
        {"rows_in_blocks", experts},
        {"gather_rows", experts},
        {"sum_rows", experts},
        {"count_by_sequence", experts},
        {"balance_sequences", experts},
        {"balance_experts", experts},
        {"embedding", loss},
        {"embedding_backward", loss},
        {"log_sum_exp", loss},
        {"add_log_sum_exp", loss},
        {"largest_of_rows", loss},
        {"cross_entropy", loss},
        {"squared_error", loss},
        {"largest_magnitudes", quantizing},
        {"quantize", quantizing},
        {"quantize_transposed", quantizing},
        {"quantize_values", quantizing},
        {"dequantize", quantizing},
        {"sum_of_squares", optimizer},
        {"finish_norm", optimizer},
        {"adam", optimizer},
        {"momentum", optimizer},
        {"normalize", optimizer},
        {"scaled_sum", optimizer},
        {"descend", optimizer},
    };
    return all;
}

class RecordingPlayer {
public:
    RecordingPlayer(const Recording& recording, const Rates& rates, bool graphs, LaunchOrder order)
        : recording_(recording),
          rates_(rates),
          gap_((graphs ? rates.machine().launch_in_graph : rates.machine().launch).value_or(0)),
          order_(order),
          queues_(recording.queues),
          points_(recording.submitted.size()) {
        const auto& overlap = rates.machine().overlap;
        if (!overlap) return;
        const auto left_by = [&](double sms) {
            return (1 - sms / overlap->sms) * (1 - overlap->memory_share);
        };
        share_ = left_by(overlap->sms_of_a_collective);
        share_by_copies_ = overlap->sms_of_a_copy > 0 ? left_by(overlap->sms_of_a_copy) : share_;
    }

    Played play() {
        if (gap_ == 0) played_.left_out.insert(gaps);
        for (size_t i = 0; i < points_.size(); ++i) {
            const Submitted& entry = recording_.submitted[i];
            submit(entry);
            points_[i] = queues_[entry.queue];
        }
        for (const Point& queue : queues_) wait_for(0, queue);
        played_.total = now();
        return std::move(played_);
    }

private:
    // The time after a queue's work so far, and what it last did or waited for.
    struct Point {
        double time = 0;
        Purpose purpose = Purpose::others;
    };

    double& now() { return queues_[0].time; }

    void submit(const Submitted& entry) {
        using enum Submitted::Kind;
        switch (entry.kind) {
            case kernel:
                return entry.queue == 0 ? compute(recording_.calls[entry.index]) : compute_beside(entry);
            case collective: return communicate(entry.queue, recording_.collectives[entry.index]);
            case wait: return wait_for(entry.queue, points_[entry.index]);
            case begin_action:
                action_ = ActionKind(entry.index);
                action_began_ = now();
                return;
            case end_action: played_.actions[action_] += now() - action_began_; return;
        }
        throw LogicError("unknown kind of work");
    }

    // 0 without a rate. Notes the calls without one.
    double seconds_of(const Call& call) {
        const std::optional<Estimate> estimate = rates_.seconds(call);
        const std::string kind = class_of(call.kernel);
        if (call.bytes > 0 && (!estimate || estimate->source == Estimate::Source::peak))
            (estimate ? played_.at_peak : played_.left_out)
                .insert(call.variant.empty() || kind == products
                            ? kind
                            : fmt::format("{} ({})", kind, call.variant));
        return estimate ? estimate->seconds : 0;
    }

    void compute(const Call& call) {
        const double gap = gap_ * call.launches, work = seconds_of(call);
        played_.seconds[class_of(call.kernel)] += work;
        played_.seconds[gaps] += gap;
        now() += gap;
        // work that is done beside a collective, and then beside copies only
        const double busy = std::ranges::max(queues_, {}, &Point::time).time - now(),
                     busy_with_collectives = std::clamp(collectives_end_ - now(), 0.0, busy),
                     beside = std::min(work, busy_with_collectives * share_),
                     beside_copies =
                         std::min(work - beside, (busy - busy_with_collectives) * share_by_copies_);
        const double slower = beside / share_ - beside + beside_copies / share_by_copies_ - beside_copies;
        played_.seconds[slowed] += slower;
        now() += work + slower;
    }

    // A kernel of another queue is a part of the communication that it is for.
    void compute_beside(const Submitted& entry) {
        const double work = seconds_of(recording_.calls[entry.index]);
        played_.communication[size_t(entry.purpose)].total += work;
        queues_[entry.queue] = {queues_[entry.queue].time + work, entry.purpose};
        collectives_end_ = std::max(collectives_end_, queues_[entry.queue].time);
    }

    void communicate(uint32_t queue, const Collective& collective) {
        double start = queues_[queue].time;
        if (collective.operation == "peer_copy") return copy(queue, collective);
        if (order_ == LaunchOrder::overlapped) start = std::max(start, begun_);
        if (order_ == LaunchOrder::serial) start = std::max(start, ended_);
        const double end = start + seconds_of(collective);
        begun_ = std::max(begun_, start);
        ended_ = std::max(ended_, end);
        played_.communication[size_t(collective.purpose)].total += end - start;
        collectives_end_ = std::max(collectives_end_, end);
        wait_for(queue, {end, collective.purpose});
    }

    // Not an operation of NCCL, so their order does not matter to it.
    void copy(uint32_t queue, const Collective& collective) {
        const double seconds = seconds_of(collective);
        played_.communication[size_t(collective.purpose)].total += seconds;
        wait_for(queue, {queues_[queue].time + seconds, collective.purpose});
    }

    // Only the computation's waits are exposed.
    void wait_for(uint32_t queue, Point until) {
        Point& point = queues_[queue];
        if (until.time <= point.time) return;
        if (queue == 0) {
            played_.communication[size_t(until.purpose)].exposed += until.time - point.time;
            played_.seconds[class_of(until.purpose)] += until.time - point.time;
        }
        point = until;
    }

    double seconds_of(const Collective& collective) {
        const RankGroup ranks =
            group_of(recording_.mesh, recording_.rank, collective.axes, rates_.machine().ranks_of_node);
        const std::optional<double> known = rates_.seconds(collective.operation, collective.bytes, ranks);
        if (!known) played_.left_out.insert(collective.operation);
        return known.value_or(0);
    }

    const Recording& recording_;
    const Rates& rates_;
    double gap_;
    LaunchOrder order_;
    // of its rate that a kernel has beside a collective, and beside copies by copy engines
    double share_ = 1, share_by_copies_ = 1;
    double collectives_end_ = 0;    // of the last one so far, or of kernels that belong to it
    std::vector<Point> queues_;     // after the work so far
    std::vector<Point> points_;     // of each entry's queue, after the entry
    double begun_ = 0, ended_ = 0;  // the latest begin and end of an operation so far
    ActionKind action_ = {};
    double action_began_ = 0;
    Played played_;
};

}  // namespace

const char* const stage_waits = "waits for other stages";

std::string class_of(const std::string& kernel) {
    if (kernel.find("gemm") != std::string::npos) return products;
    const auto found = classes_of_kernels().find(kernel);
    return found == classes_of_kernels().end() ? casts : found->second;
}

const char* name_of(Purpose purpose) {
    constexpr std::string_view waits_for = "waits for ";
    return class_of(purpose) + waits_for.size();
}

const char* class_of(Purpose purpose) {
    return waits[size_t(purpose)];
}

size_t class_order(const std::string& name) {
    static const std::vector<std::string> all = [] {
        std::vector<std::string> names(classes.begin(), classes.end());
        names.insert(names.end(), waits.begin(), waits.end());
        names.insert(names.end(), {stage_waits, slowed, gaps});
        return names;
    }();
    return size_t(std::ranges::find(all, name) - all.begin());
}

Played play(const Recording& recording, const Rates& rates, bool graphs, LaunchOrder order) {
    return RecordingPlayer(recording, rates, graphs, order).play();
}

}  // namespace coeus
