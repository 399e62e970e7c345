// SPDX-License-Identifier: Apache-2.0
#include "coeus/plan/memory.hpp"

#include "coeus/base/text.hpp"

#include <algorithm>

namespace coeus {

void MemoryPlan::add(const std::string& name, int64_t bytes, MemoryPlace place) {
    require(bytes >= 0, "a term of the memory plan must not be negative");
    if (bytes == 0) return;
    for (Term& term : terms_)
        if (term.name == name && term.place == place) {
            term.bytes += bytes;
            return;
        }
    terms_.push_back({.name = name, .bytes = bytes, .place = place});
}

void MemoryPlan::add(const Parameters::Bytes& state, MemoryPlace place) {
    add(term::weights, state.master, place);
    add(term::compute_weights, state.compute, place);
    add(term::gradients, state.gradients, place);
    add(term::moments, state.moments, place);
}

int64_t MemoryPlan::bytes(std::string_view name, MemoryPlace place) const {
    for (const Term& term : terms_)
        if (term.name == name && term.place == place) return term.bytes;
    return 0;
}

int64_t MemoryPlan::total(MemoryPlace place) const {
    int64_t sum = 0;
    for (const Term& term : terms_)
        if (term.place == place) sum += term.bytes;
    return sum;
}

std::vector<MemoryPlan::Term> MemoryPlan::largest_first(MemoryPlace place) const {
    std::vector<Term> terms = terms_;
    std::erase_if(terms, [&](const Term& term) { return term.place != place; });
    std::stable_sort(terms.begin(), terms.end(),
                     [](const Term& a, const Term& b) { return a.bytes > b.bytes; });
    return terms;
}

std::string MemoryPlan::text(std::optional<int64_t> limit_bytes) const {
    std::string lines = "memory plan per rank:";
    for (const Term& term : largest_first())
        lines += fmt::format("\n  {:<28} {:>11}", term.name, bytes_text(double(term.bytes)));
    lines += fmt::format("\n  {:<28} {:>11}{}", "total", bytes_text(double(total())),
                         limit_bytes ? " of " + bytes_text(double(*limit_bytes)) : "");
    if (total(MemoryPlace::host) == 0) return lines;
    lines += fmt::format("\n  {:<28} {:>11}", "on the host", bytes_text(double(total(MemoryPlace::host))));
    for (const Term& term : largest_first(MemoryPlace::host))
        lines += fmt::format("\n    {:<26} {:>11}", term.name, bytes_text(double(term.bytes)));
    return lines;
}

int64_t most_rows(const KvCache& cache, int64_t texts_at_once, const MeshShape& mesh) {
    const int64_t tp = mesh.size(axis::tp), cp = mesh.size(axis::cp);
    return std::max(round_up(cache.context(), tp * cp) / cp, round_up(texts_at_once, tp));
}

MemoryPlan plan_generation(const Model& model, const KvCache& cache, int64_t texts_at_once,
                           const LayerMemory& layers, const MeshShape& mesh) {
    MemoryPlan plan;
    plan.add(model.parameters().bytes(false));
    plan.add(term::activations, layers.activations);
    plan.add(term::flows, layers.executor.slots);
    plan.add(term::temporaries, layers.temporaries);
    plan.add(term::workspace, layers.workspace);
    // tokens and positions of a prompt or of a step, and the slots of a step
    const int64_t ids = 2 * most_rows(cache, texts_at_once, mesh) + texts_at_once;
    plan.add(model.batches().name(), ids * size_of(Dtype::i32));
    plan.add(term::position_tables, model.table_bytes());
    plan.add(term::cache, cache.bytes());
    return plan;
}

int64_t library_bytes(Dtype compute, int ranks) {
    // measured with Open MPI 4.1 and 5.0 (0.75 MiB for each peer), and with MPICH 4.0 over UCX, which takes
    // more; a rank exchanges data with only a few of many ranks
    const int64_t peers = std::min(ranks - 1, 16);
    return gemm_library_bytes(compute) + peers * (1 << 20);
}

int64_t nccl_bytes(int communicators, bool nvls) {
    constexpr int64_t mib = int64_t(1) << 20;
    // a ring and a tree of 16 channels with 9.2 MiB for the three protocols (Simple 4, LL 0.5, LL128 4.7):
    // 294 MiB. The rest is an allowance for buffers of messages, of the network, and work kept by graphs
    constexpr int64_t rings_and_trees = 400 * mib;
    // 16 channels x 2 x 1 MiB (128 KiB x 8 steps) x 8 heads, for an NVSwitch that connects 8 GPUs
    constexpr int64_t switches = 256 * mib;
    constexpr int64_t process = 150 * mib;  // kernels and what communicators share: a guess of 100 - 200 MiB
    return communicators == 0 ? 0 : process + communicators * (rings_and_trees + (nvls ? switches : 0));
}

namespace {

std::string largest_of(const MemoryPlan& plan, MemoryPlace place) {
    const std::vector<MemoryPlan::Term> terms = plan.largest_first(place);
    std::string largest;
    for (size_t i = 0; i < std::min<size_t>(3, terms.size()); ++i)
        largest += fmt::format("{}{} {}", i ? ", " : "", terms[i].name, bytes_text(double(terms[i].bytes)));
    return largest;
}

}  // namespace

void require_fits(const MemoryPlan& plan, int64_t limit_bytes, const std::function<std::string()>& remedy) {
    if (plan.total() <= limit_bytes) return;
    throw ConfigError("the run needs {} per rank, but only {} is available; the largest terms: {}. {}",
                      bytes_text(double(plan.total())), bytes_text(double(limit_bytes)),
                      largest_of(plan, MemoryPlace::device), remedy());
}

void require_fits_on_host(const MemoryPlan& plan, int64_t limit_bytes) {
    const int64_t needed = plan.total(MemoryPlace::host);
    if (needed <= limit_bytes) return;
    const bool has_state =
        plan.bytes(term::weights, MemoryPlace::host) > 0 || plan.bytes(term::moments, MemoryPlace::host) > 0;
    throw ConfigError(
        "the run needs {} of host memory per rank besides its GPU's, but this host allows {}; the largest "
        "terms: {}. If more ranks shard the parameters (parallelism.data_parallel_shard_degree), each needs "
        "less{}",
        bytes_text(double(needed)), bytes_text(double(limit_bytes)), largest_of(plan, MemoryPlace::host),
        has_state ? "; without training.enable_cpu_offload the GPU holds the state" : "");
}

}  // namespace coeus
