// SPDX-License-Identifier: Apache-2.0
#include "support/one_rank.hpp"

#include "coeus/comm/nccl_world.hpp"
#include "coeus/comm/together.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace coeus::test {

namespace {

// How many references each rank keeps at a time: so few that they need little memory, and enough that ranks
// with cheap ones need not wait for others after each.
constexpr size_t references_of_a_rank = 4;

// All members, for comparison. A new member makes these not compile.
auto members(const OptimizerOptions& options) {
    const auto& [name, lr, beta1, beta2, eps, weight_decay, exclude, momentum, nesterov, ns_steps,
                 coefficients, adjust, implementation] = options;
    return std::tie(name, lr, beta1, beta2, eps, weight_decay, exclude, momentum, nesterov, ns_steps,
                    coefficients, adjust, implementation);
}

auto members(const Precision& precision) {
    const auto& [linear, filter, fqns, experts, expert_fqns, gather, emulate] = precision;
    return std::tie(linear, filter, fqns, experts, expert_fqns, gather, emulate);
}

auto members(const RecomputeOptions& options) {
    const auto& [mode, every, budget] = options;
    return std::tie(mode, every, budget);
}

auto members(const StateTypes& types) {
    const auto& [master, compute, offload, precision, in_bf16, frozen] = types;
    return std::tuple_cat(std::tie(master, compute, offload, in_bf16), std::tuple(frozen.text()),
                          members(precision));
}

// Those that one_rank_of() leaves as they are.
auto members(const MeshCase& c) {
    const auto& [mesh, model, types, sequences, local_batches, validated, seq_len, document_mask,
                 document_length, gather, exchanges, streams, recompute, pipeline, device, nccl, graphs,
                 offload_chunk, optimizer, overlap_pairs, keeps_operands, guarded] = c;
    return std::tuple_cat(
        std::tie(model, sequences, local_batches, validated, seq_len, document_mask, document_length),
        members(types), members(recompute), members(optimizer));
}

// The same model and batches on one rank, without what only ranks of a mesh or a GPU have.
MeshCase one_rank_of(const MeshCase& c) {
    MeshCase one = {.model = c.model, .types = c.types};
    one.types.offload = false;
    // scales belong to micro-batches, so these are the same
    const int64_t micro_batches = c.types.precision.any() ? c.pipeline.timetable.microbatches : 1;
    one.sequences = c.sequences / micro_batches;
    one.local_batches = c.local_batches * c.mesh.size(axis::dp) * micro_batches;
    one.validated = c.validation_batch();
    one.seq_len = c.seq_len;
    one.document_mask = c.document_mask;
    one.document_length = c.document_length;
    one.recompute = c.recompute;
    one.optimizer = c.optimizer;
    return one;
}

// Validation comes before a graph is captured, but not before the graph is replayed.
bool is_validated(int64_t step, int64_t steps, bool validates_first) {
    return step == steps || (validates_first && step == 1);
}

OneRankResults train(const MeshCase& one_rank, int64_t steps, bool validates_first) {
    MeshRun run(one_rank, mesh_of_one());
    OneRankResults results;
    for (int64_t number = 1; number <= steps; ++number) {
        OneRankResults::Step& step = results.steps.emplace_back();
        TestBatch batch = batch_of_step(one_rank, uint64_t(number));
        run.poison_gradients();
        step.is_finite = run.step(number, batch);
        const StepScalars& scalars = run.engine.scalars();
        step.loss = scalars.loss;
        step.losses = scalars.losses;
        step.norm = scalars.grad_norm;
        step.gradients = run.whole(&Storage::gradient);
        if (!is_validated(number, steps, validates_first)) continue;
        TestBatch validated = batch_of_step(one_rank, 1);
        step.validation_loss = run.evaluate(validated);
    }
    results.weights = run.whole(&Storage::master);
    results.loads = run.engine.counts();
    return results;
}

// If any rank reports a difference, so do all. The rank that has the reference knows most.
std::string agreed(std::string lines, int owner, const Communicator& world) {
    if (world.all_reduce(int64_t(!lines.empty()), Reduce::max) == 0) return "";
    const std::string owners = broadcast_text(world, lines, owner);
    if (world.rank() != owner && lines != owners && !owners.empty())
        lines += fmt::format("on rank {}:\n{}", owner, owners);
    return lines.empty() ? "another rank differs\n" : lines;
}

}  // namespace

void OneRankComparison::add(const MeshCase& c, int64_t steps, const Tolerances& tolerances,
                            const std::string& about) {
    Reference reference = {one_rank_of(c), steps, c.graphs && steps > 1, cases_.size(), std::nullopt};
    const auto found = std::ranges::find_if(references_, [&](const Reference& other) {
        return other.steps == steps && other.validates_first == reference.validates_first &&
               members(other.one_rank) == members(reference.one_rank);
    });
    cases_.push_back({c, steps, tolerances, about, size_t(found - references_.begin())});
    if (found != references_.end())
        found->last_use = reference.last_use;
    else
        references_.push_back(std::move(reference));
}

void OneRankComparison::train_next_references() {
    const size_t first = trained_;
    trained_ = std::min(references_.size(), first + references_of_a_rank * size_t(world_.size()));
    for (size_t i = first; i < trained_; ++i)
        if (Reference& next = references_[i]; owner_of(i) == world_.rank())
            next.results = train(next.one_rank, next.steps, next.validates_first);
}

std::string OneRankComparison::difference(size_t i) {
    const auto& [c, steps, tolerances, about, number] = cases_[i];
    while (trained_ <= number) train_next_references();
    Reference& reference = references_[number];
    const int owner = owner_of(number);
    const OneRankResults* const one = reference.results ? &*reference.results : nullptr;

    Mesh mesh(world_.split(0, "world"), c.mesh);
    std::optional<MeshRun> with_queues;
    std::string overdue;
    QueueWatch watch(
        {.who = "this rank", .fail = [&](const std::string& message) { overdue = message + "\n"; }});
    watch.allow(1e9, "no time-out");
    std::optional<NcclWorld> nccl;  // destroyed before the mesh and the watch
    if (c.nccl) mesh.connect(nccl.emplace(*c.nccl, mesh.world(), *c.device, &watch));
    MeshRun& many = with_queues.emplace(c, mesh);
    if (nccl) nccl->end_connecting();
    std::string lines;
    const auto compare_all = [&, &limits = tolerances](const char* what, const StorageTensor& kind,
                                                       int64_t step, const auto& of_one) {
        const auto is = many.whole(kind);
        if (!one) return;
        const std::map<std::string, std::vector<double>>& should = of_one(*one);
        if (is.size() != should.size()) lines += "the mesh has other parameters than one rank\n";
        std::string differing;
        size_t some = 0;
        bool is_far = false;
        for (const auto& [name, values] : should) {
            const auto found = is.find(name);
            const double error = found == is.end() ? 1 : normalised_error(found->second, values);
            if (error <= limits.arrays) continue;
            differing += fmt::format("step {}: {} of {} differs by {:.2e}\n", step, what, name, error);
            ++some;
            is_far = is_far || !(error <= limits.some_arrays);
        }
        if (is_far || double(some) > limits.share * double(should.size())) lines += differing;
    };
    const auto compare = [&](const char* what, double is, double should, int64_t step, double tolerance) {
        world_.broadcast(Tensor(&should, Dtype::f64, {1}), owner);
        if (!relatively_close(is, should, tolerance))
            lines += fmt::format("step {}: {} is {:.15g}, on one rank {:.15g}\n", step, what, is, should);
    };
    for (int64_t step = 1; step <= steps; ++step) {
        TestBatch batch = batch_of_step(c, uint64_t(step));
        many.poison_gradients();
        const OneRankResults::Step unknown, &of_one = one ? one->steps[size_t(step - 1)] : unknown;
        if (!many.step(step, batch) || (one && !of_one.is_finite)) lines += "a step was not finite\n";
        const StepScalars& scalars = many.engine.scalars();
        compare("loss", scalars.loss, of_one.loss, step, tolerances.loss);
        for (size_t part = 0; part < scalars.losses.size(); ++part)
            compare("part of the loss", scalars.losses[part], of_one.losses[part], step, tolerances.loss);
        compare("norm", scalars.grad_norm, of_one.norm, step, tolerances.later);
        compare_all(
            "gradient", &Storage::gradient, step, [&](const OneRankResults& results) -> const auto& {
                return results.steps[size_t(step - 1)].gradients;
            });
        if (!is_validated(step, steps, reference.validates_first)) continue;
        TestBatch validated = batch_of_step(c, 1);
        compare("validation loss", many.evaluate(validated), of_one.validation_loss.value_or(0), step,
                tolerances.later);
    }
    compare_all(
        "weight", &Storage::master, steps,
        [](const OneRankResults& results) -> const auto& { return results.weights; });
    // integers, and biases that follow from them
    std::vector<int64_t> loads = one ? one->loads : many.engine.counts();
    if (one && loads.size() != many.engine.counts().size()) lines += "there are loads of other experts\n";
    loads.resize(many.engine.counts().size());
    if (!loads.empty()) world_.broadcast(Tensor(loads.data(), Dtype::i64, {int64_t(loads.size())}), owner);
    if (many.engine.counts() != loads) lines += "the loads of experts differ\n";
    const auto is = many.whole(&Storage::master);
    if (one)
        for (const auto& [name, values] : one->weights)
            if (name.ends_with(".expert_bias") && is.at(name) != values) lines += name + " has other bits\n";
    lines += use_differs_from_plan(c, many.engine);
    many.engine.forget_graphs();
    watch.allow(-1, "all has ended");
    watch.look();
    lines += overdue;
    if (reference.last_use == i) reference.results.reset();
    lines = agreed(std::move(lines), owner, world_);
    return lines.empty() ? "" : about + c.name() + ":\n" + lines;
}

void OneRankComparison::check() {
    for (size_t i = 0; i < size(); ++i) CHECK(difference(i) == "");
}

std::string differs_from_one_rank(const MeshCase& c, const Communicator& world, int64_t steps,
                                  const Tolerances& tolerances) {
    OneRankComparison comparison(world);
    comparison.add(c, steps, tolerances);
    return comparison.difference(0);
}

}  // namespace coeus::test
