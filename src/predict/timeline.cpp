// SPDX-License-Identifier: Apache-2.0
#include "timeline.hpp"

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
                     *exposed_gathers = "waits for gathers of weights",
                     *exposed_reductions = "waits for sums of gradients", *exchanges = "other collectives",
                     *slowed = "kernels slowed by collectives", *gaps = "gaps between launches";
constexpr std::array classes = {products,
                                attention_forward,
                                attention_backward,
                                norms,
                                rope,
                                swiglu,
                                experts,
                                loss,
                                quantizing,
                                casts,
                                optimizer,
                                exposed_gathers,
                                exposed_reductions,
                                exchanges,
                                slowed,
                                gaps};

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
        {"rope", rope},
        {"scale_rows", rope},
        {"swiglu", swiglu},
        {"swiglu_backward", swiglu},
        {"gate", swiglu},
        {"gate_backward", swiglu},
        {"route", experts},
        {"route_backward", experts},
        {"group_by_expert", experts},
        {"rows_in_blocks", experts},
        {"arrival_experts", experts},
        {"gather_rows", experts},
        {"sum_rows", experts},
        {"count_by_sequence", experts},
        {"balance_sequences", experts},
        {"balance_experts", experts},
        {"embedding", loss},
        {"embedding_backward", loss},
        {"log_sum_exp", loss},
        {"add_log_sum_exp", loss},
        {"cross_entropy", loss},
        {"largest_magnitudes", quantizing},
        {"quantize", quantizing},
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

class Player {
public:
    Player(const Recording& recording, const Rates& rates, bool graphs)
        : recording_(recording),
          rates_(rates),
          gap_((graphs ? rates.machine().launch_in_graph : rates.machine().launch).value_or(0)) {
        const auto& overlap = rates.machine().overlap;
        if (!overlap) return;
        share_ = (1 - overlap->sms_of_a_collective / overlap->sms) * (1 - overlap->memory_share);
        serial_ = overlap->serial_collectives;
    }

    Played play() {
        if (gap_ == 0) played_.left_out.insert(gaps);
        const std::vector<Submitted>& all = recording_.submitted;
        for (size_t i = 0; i < all.size();) i = submit(i);
        played_.total = std::max({now_, gathered_, reduced_});
        played_.seconds[exposed_reductions] += played_.total - now_;
        return std::move(played_);
    }

private:
    // Plays what was submitted at i. Returns the next; collectives of a unit begin together.
    size_t submit(size_t i) {
        using enum Submitted::Kind;
        const std::vector<Submitted>& all = recording_.submitted;
        switch (all[i].kind) {
            case kernel: compute(recording_.calls[all[i].index]); return i + 1;
            case gather:
            case reduce: {
                const size_t end = end_of_group(i);
                const auto [operation, seconds] = group(i, end);
                const bool gathers = all[i].kind == gather;
                double& queue = gathers ? gathered_ : reduced_;
                double start = std::max(queue, now_);
                if (serial_) start = std::max({start, gathered_, reduced_});
                if (!gathers) room_ = reduced_;
                queue = start + seconds;
                return end;
            }
            case exchange: {
                const Collective& collective = recording_.collectives[all[i].index];
                const double seconds = seconds_of(collective, collective.bytes);
                played_.seconds[exchanges] += seconds;
                now_ += seconds;
                return i + 1;
            }
            case wait_for_gathers: wait(gathered_, exposed_gathers); return i + 1;
            case wait_for_room: wait(room_, exposed_reductions); return i + 1;
            case wait_for_gradients: wait(reduced_, exposed_reductions); return i + 1;
        }
        throw LogicError("unknown kind of work");
    }

    void compute(const Call& call) {
        const std::optional<Estimate> estimate = rates_.seconds(call);
        const std::string kind = class_of(call.kernel);
        if (call.bytes > 0 && (!estimate || estimate->source == Estimate::Source::peak))
            (estimate ? played_.at_peak : played_.left_out)
                .insert(call.variant.empty() || kind == products
                            ? kind
                            : fmt::format("{} ({})", kind, call.variant));
        const double gap = gap_ * call.launches, work = estimate ? estimate->seconds : 0;
        played_.seconds[kind] += work;
        played_.seconds[gaps] += gap;
        now_ += gap;
        const double busy = std::max({gathered_, reduced_, now_}) - now_;
        const double beside = std::min(work, busy * share_);  // work that is done beside a collective
        const double slower = beside / share_ - beside;
        played_.seconds[slowed] += slower;
        now_ += work + slower;
    }

    void wait(double until, const char* name) {
        if (until <= now_) return;
        played_.seconds[name] += until - now_;
        now_ = until;
    }

    size_t end_of_group(size_t i) const {
        const std::vector<Submitted>& all = recording_.submitted;
        const auto axes = [&](size_t at) { return recording_.collectives[all[at].index].axes; };
        size_t end = i + 1;
        while (end < all.size() && all[end].kind == all[i].kind && axes(end) == axes(i)) ++end;
        return end;
    }

    // A gather begins with a cast of the own part, a sum of gradients ends with the addition of it.
    std::pair<std::string, double> group(size_t i, size_t end) {
        double bytes = 0;
        const std::vector<Submitted>& all = recording_.submitted;
        for (size_t at = i; at < end; ++at) bytes += recording_.collectives[all[at].index].bytes;
        const Collective& collective = recording_.collectives[all[i].index];
        const double own = bytes / recording_.mesh.size(collective.axes);
        double seconds = seconds_of(collective, bytes);
        const auto add = [&](const char* kernel, double moved) {
            if (const auto more = rates_.seconds(Call{.kernel = kernel, .variant = "", .bytes = moved}))
                seconds += more->seconds;
        };
        if (collective.operation == "all_gather") add("cast", 2 * own);
        if (collective.operation == "reduce_scatter") add("add", 3 * own);
        return {collective.operation, seconds};
    }

    double seconds_of(const Collective& collective, double bytes) {
        const RankGroup ranks =
            group_of(recording_.mesh, recording_.rank, collective.axes, rates_.machine().ranks_of_node);
        const std::optional<double> seconds = rates_.seconds(collective.operation, bytes, ranks);
        if (!seconds) played_.left_out.insert(collective.operation);
        return seconds.value_or(0);
    }

    const Recording& recording_;
    const Rates& rates_;
    double gap_;
    double share_ = 1;  // of its rate that a kernel has beside a collective
    bool serial_ = false;
    double now_ = 0;                     // end of the computation's work so far
    double gathered_ = 0, reduced_ = 0;  // ends of the other queues' work
    double room_ = 0;                    // the same without the last reduction
    Played played_;
};

}  // namespace

std::string class_of(const std::string& kernel) {
    if (kernel.find("gemm") != std::string::npos) return products;
    const auto found = classes_of_kernels().find(kernel);
    return found == classes_of_kernels().end() ? casts : found->second;
}

size_t class_order(const std::string& name) {
    return size_t(std::ranges::find(classes, name) - classes.begin());
}

Played play(const Recording& recording, const Rates& rates, bool graphs) {
    return Player(recording, rates, graphs).play();
}

}  // namespace coeus
