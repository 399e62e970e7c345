// SPDX-License-Identifier: Apache-2.0
#include "coeus/comm/launch_order.hpp"

#include "coeus/comm/nccl.hpp"

#include <fmt/format.h>

namespace coeus {

namespace {

constexpr int first_with_order = 22600, first_overlapped_in_graphs = 22700;      // of NCCL
constexpr int driver_for_overlap = 12030, driver_for_overlap_in_graphs = 12090;  // CUDA's versions

bool can_overlap(const LaunchFacts& facts, bool graphs) {
    return graphs ? facts.nccl >= first_overlapped_in_graphs && facts.driver >= driver_for_overlap_in_graphs
                  : facts.nccl >= first_with_order && facts.driver >= driver_for_overlap;
}

bool fit_at_once(const LaunchFacts& facts) {
    return facts.max_ctas > 0 && facts.communicators * facts.max_ctas <= facts.multiprocessors;
}

// "NCCL 2.27 or newer and a driver with CUDA 12.9 or newer"
std::string newer_ones(const LaunchFacts& facts) {
    const int nccl = facts.graphs ? first_overlapped_in_graphs : first_with_order,
              driver = facts.graphs ? driver_for_overlap_in_graphs : driver_for_overlap;
    std::string text;
    if (facts.nccl < nccl) text = fmt::format("NCCL {}.{} or newer", nccl / 10000, nccl / 100 % 100);
    if (facts.driver < driver)
        text += fmt::format("{}a driver with CUDA {}.{} or newer", text.empty() ? "" : " and ", driver / 1000,
                            driver / 10 % 100);
    return text;
}

// What lets the operations overlap, or makes it safe that they do.
std::string remedies(const LaunchFacts& facts) {
    std::string text = newer_ones(facts);
    const int64_t most = facts.asked_by_user ? 0 : facts.multiprocessors / facts.communicators;
    if (most > 0) text += fmt::format("{}comm.max_ctas = {} or less", text.empty() ? "" : ", or ", most);
    if (facts.graphs && can_overlap(facts, false)) text += ", or training.disable_cuda_graphs = true";
    return text;
}

std::string versions(const LaunchFacts& facts) {
    return fmt::format("this is NCCL {}, and the driver knows CUDA {}.{}", nccl_version_text(facts.nccl),
                       facts.driver / 1000, facts.driver / 10 % 100);
}

}  // namespace

LaunchChoice launch_choice(const LaunchFacts& facts) {
    using enum LaunchOrder;
    if (facts.communicators < 2) return {};
    if (facts.asked_by_user.value_or(true) && can_overlap(facts, facts.graphs)) return {};
    if (fit_at_once(facts) && !facts.asked_by_user.value_or(false))
        return {.order = unordered, .implicit = false};
    if (facts.asked_by_user == false)
        return {.order = unordered,
                .implicit = false,
                .warning = fmt::format(
                    "NCCL_LAUNCH_ORDER_IMPLICIT = 0 is set, so NCCL does not order the operations of {} "
                    "communicators, and ranks may wait for each other forever. Unset it, or set "
                    "comm.max_ctas = {} or less",
                    facts.communicators, facts.multiprocessors / facts.communicators)};
    if (facts.nccl < first_with_order)
        return {.order = unordered,
                .warning = fmt::format(
                    "NCCL does not order the operations of {} communicators, and ranks may wait for each "
                    "other forever: {}. What helps: {}",
                    facts.communicators, versions(facts), remedies(facts))};
    return {.order = serial,
            .warning = fmt::format("NCCL runs the operations of all {} communicators one after the other{}: "
                                   "{}. What lets them overlap: {}",
                                   facts.communicators, facts.graphs ? " in CUDA graphs" : "",
                                   versions(facts), remedies(facts))};
}

}  // namespace coeus
