// SPDX-License-Identifier: Apache-2.0
#include "support/mesh_factors.hpp"

#include "coeus/base/random.hpp"

#include <algorithm>

namespace coeus::test {

namespace {

bool always(const MeshShape&) {
    return true;
}
bool shards(const MeshShape& mesh) {
    return mesh.size(axis::fsdp) > 1;
}
bool has_tp(const MeshShape& mesh) {
    return mesh.tp > 1;
}
bool has_cp(const MeshShape& mesh) {
    return mesh.cp > 1;
}
bool has_pp(const MeshShape& mesh) {
    return mesh.pp > 1;
}
// tensor and context ranks divide the heads of the keys
bool can_group(const MeshShape& mesh) {
    return mesh.tp * mesh.cp <= 4;
}

// No degree divides these sizes evenly, except where it must.
void set_sizes(MeshCase& c, int odd) {
    c.model = tiny_config();
    c.model.layers = 3;
    c.model.grouped().heads = c.model.grouped().kv_heads = 8;
    c.model.grouped().head_dim = 4;
    c.model.feed_forward.hidden = odd ? 23 : 24;
    c.model.vocab = odd ? 37 : 48;
    if (!odd) c.model.dim = 32;
    c.seq_len = (odd ? 6 : 4) * c.mesh.cp * c.mesh.tp;
}

void set_grouped(MeshCase& c, int grouped) {
    if (grouped) c.model.grouped().kv_heads = 4;
}

bool can_divide_experts(const MeshShape& mesh) {
    return mesh.size(axis::fsdp | axis::tp) > 1;
}

bool can_halve(const MeshShape& mesh) {
    return can_divide_experts(mesh) && !has_pp(mesh);
}

// In documents of three tokens, only the first one has a label two places ahead. It attends to itself alone,
// so that the gradients of queries would be nothing but rounding errors. Two depths therefore have longer
// documents, and longer sequences for several of them.
void set_depths(MeshCase& c, int depths) {
    set_mtp(c, depths);
    if (depths < 2 || !c.document_mask) return;
    c.document_length = 5;
    c.seq_len *= 2;
}

void set_recompute(MeshCase& c, int choice) {
    c.recompute = {.mode = RecomputeOptions::Mode(choice), .every = 2, .budget = 0.3};
}

}  // namespace

void set_frozen(MeshCase& c, int choice) {
    if (choice == 1) c.types.frozen = Frozen({"tok_embeddings", R"(layers\.[01]\.)"});
    if (choice == 2)
        c.types.frozen =
            Frozen({R"(layers\.2\.)", R"(attention\.w[qk].*weight)", "w[13]|mlp1", "norm|bias|sinks"});
}

void set_recipe(MeshCase& c, int choice) {
    if (choice == 0) return;
    constexpr Recipe recipes[] = {Recipe::none, Recipe::tensorwise, Recipe::tensorwise, Recipe::rowwise,
                                  Recipe::mx_rceil};
    Precision& precision = c.types.precision;
    precision.linear = recipes[choice];
    precision.gather_in_8_bits = choice == 2;
    c.keeps_operands = c.local_batches > 1;
    const bool in_blocks = choice == 4;
    const int64_t width = in_blocks ? 32 * c.mesh.tp : 48;
    c.model.dim = 32;
    c.model.feed_forward.hidden = width;
    if (c.model.vocab % 16 == 0) c.model.vocab = 2 * width;
    if (in_blocks) {
        c.seq_len = round_up(c.seq_len, 64 * c.mesh.cp * c.mesh.tp);
        if (c.mesh.tp > 1) precision.filter_fqns = {"attention"};
    }
    if (c.model.moe.experts == 0) return;
    c.model.moe.hidden = width;
    if (c.model.moe.shared_hidden > 0) c.model.moe.shared_hidden = width;
    // columns have the scales of the rows that an expert has on a rank
    if (choice > 2 && c.mesh.ep == 1 && c.mesh.cp == 1) {
        precision.experts = recipes[choice];
        precision.expert_fqns = {"experts"};
    }
}

void set_schedule(MeshCase& c, const Schedule& schedule) {
    const int ranks = c.mesh.pp, virtual_stages = schedule.default_virtual_stages;
    c.model.layers = std::max(c.model.layers, int64_t(ranks * virtual_stages - 1));
    c.pipeline = pipeline_of(schedule.name, ranks, 2 * ranks, virtual_stages, c.model);
    c.sequences = 2 * ranks;
}

MeshCase float32_case_of(const MeshShape& mesh, int recipe) {
    MeshCase c = {.mesh = mesh, .types = {Dtype::f32, Dtype::f32}};
    set_sizes(c, 0);
    if (has_pp(mesh)) set_schedule(c, *find_schedule(recipe % 2 ? "InterleavedZeroBubble" : "1F1B"));
    c.exchanges.overlap_tokens = recipe % 2 == 1;
    set_recipe(c, recipe);
    c.optimizer.eps = float32_eps;
    return c;
}

void set_expert_ranks(MeshCase& c, int choice) {
    const int block = c.mesh.size(axis::fsdp | axis::tp), smallest = block % 2 == 0 ? 2 : block;
    if (choice == 0 || block == 1 || c.model.moe.experts == 0) return;
    const int fsdp = c.mesh.size(axis::fsdp);
    const bool divides_each = choice == 3 && fsdp > 1;
    c.mesh.ep = divides_each ? fsdp : choice == 1 ? block : smallest;
    c.mesh.etp = divides_each ? c.mesh.tp : 1;
    c.model.moe.experts = round_up(c.model.moe.experts, c.mesh.ep * c.model.moe.groups);
}

void set_halves(MeshCase& c) {
    if (c.mesh.ep == 1 || has_pp(c.mesh)) return;
    c.pipeline.timetable = two_halves();
    c.sequences = 2;
}

void set_value_dim(MeshCase& c, int n) {
    c.model.grouped().value_dim = 3 * n;
}

void set_irregular_layers(MeshCase& c, int irregular) {
    if (irregular) set_layer_choices(c.model);
}

const std::vector<MeshFactor>& mesh_factors() {
    static const std::vector<MeshFactor> all = {
        {2, always, set_sizes},
        {2, can_group, set_grouped},
        {2, always, [](MeshCase& c, int tied) { c.model.tied = tied != 0; }},
        {2, always, [](MeshCase& c, int more) { c.local_batches = 1 + more; }},
        {2, always, [](MeshCase& c, int mask) { c.document_mask = mask != 0; }},
        {4, always, set_recompute},
        {3, has_cp, [](MeshCase& c, int n) { c.exchanges.context.exchange = ContextExchange(n); }},
        {int(schedules().size()), has_pp,
         [](MeshCase& c, int n) {
             if (has_pp(c.mesh)) set_schedule(c, schedules()[size_t(n)]);
         }},
        {2, has_cp, [](MeshCase& c, int n) { c.exchanges.context.balancing = Balancing(n); }, true},
        {2, has_tp, [](MeshCase& c, int whole) { c.exchanges.split_loss = whole == 0; }, true},
        {2, has_tp, [](MeshCase& c, int n) { c.exchanges.overlap_tokens = n != 0; }, true},
        {3, shards,
         [](MeshCase& c, int n) {
             c.gather.weights = Keep(n % 2);
             c.gather.prefetch = n == 2 ? 2 : 1;
         },
         true},
        {2, shards, [](MeshCase& c, int n) { c.gather.gradients = Keep(n); }, true},
        {3, always, [](MeshCase& c, int n) { c.streams = Stream::Mode(n); }, true},
        {3, always, set_value_dim, true},
        {2, always, [](MeshCase& c, int n) { c.optimizer.name = n == 0 ? "AdamW" : "Muon"; }, true},
        {attention_kinds, always, [](MeshCase& c, int n) { set_attention(c.model, n); }, true},
        {norm_kinds, always, [](MeshCase& c, int n) { set_norms(c.model, n); }, true},
        {2, always,
         [](MeshCase& c, int part) {
             if (part) set_rope_part(c.model);
         },
         true},
        {2, always,
         [](MeshCase& c, int two) {
             if (two) set_two_ropes(c.model);
         },
         true},
        {expert_kinds, always, [](MeshCase& c, int n) { set_experts(c.model, n); }, true},
        {4, can_divide_experts, [](MeshCase& c, int n) { set_expert_ranks(c, n); }, true, 1},
        {3, can_divide_experts,
         [](MeshCase& c, int n) {
             constexpr double factors[] = {2, 0.3, 1};
             c.exchanges.expert_capacity = factors[n];
         },
         true, 2},
        {2, can_halve,
         [](MeshCase& c, int halves) {
             if (halves) set_halves(c);
         },
         true, 3},
        {3, always, set_depths, true},
        {2, always, set_irregular_layers, true},
        {recipe_choices, always, set_recipe, true},
        {3, always, set_frozen, true},
        {2, always, [](MeshCase& c, int z) { c.model.z_loss_weight = z ? 0.05 : 0; }, true},
        {2, always,
         [](MeshCase& c, int scaled) {
             if (scaled) set_scales(c.model);
         },
         true},
        {2, always, [](MeshCase& c, int n) { c.model.feed_forward.activation = Activation(n); }, true},
        {2, always,
         [](MeshCase& c, int parallel) {
             if (parallel) set_parallel(c.model);
         },
         true},
    };
    return all;
}

MeshCase MeshVariant::mesh_case() const {
    MeshCase c = {.mesh = mesh};
    for (size_t f = 0; f < choices.size(); ++f) mesh_factors()[f].set(c, choices[f]);
    return c;
}

MeshCase short_case(const std::vector<MeshVariant>& variants, size_t first) {
    for (size_t i = first;; ++i) {
        MeshCase c = variants[i % variants.size()].mesh_case();
        if (!has_blocks(c.types.precision.linear)) return c;
    }
}

namespace {

// Draws the same numbers on every rank and in every run.
class Draw {
public:
    int operator()(int choices) { return int(random_.u64(count_++) % uint64_t(choices)); }

private:
    RandomStream random_{11, "cases of meshes"};
    uint64_t count_ = 0;
};

}  // namespace

std::vector<MeshVariant> full_product(const std::vector<MeshShape>& meshes) {
    const std::vector<MeshFactor>& factors = mesh_factors();
    Draw draw;
    std::vector<MeshVariant> all;
    for (const MeshShape& mesh : meshes) {
        const size_t first = all.size();
        all.push_back({mesh, MeshChoices(factors.size(), 0)});
        for (size_t f = 0; f < factors.size(); ++f) {
            if (!factors[f].matters(mesh)) continue;
            if (factors[f].drawn) {
                for (size_t i = first; i < all.size(); ++i) all[i].choices[f] = draw(factors[f].choices);
                continue;
            }
            for (size_t i = first, end = all.size(); i < end; ++i)
                for (int choice = 1; choice < factors[f].choices; ++choice) {
                    all.push_back(all[i]);
                    all.back().choices[f] = choice;
                }
        }
    }
    return all;
}

namespace {

constexpr int candidates = 60;  // drawn for each variant; the one with the most new pairs is taken

// All pairs that any of the meshes allows.
std::set<ChoicePair> pairs_of(const std::vector<MeshShape>& meshes) {
    const std::vector<MeshFactor>& factors = mesh_factors();
    std::set<ChoicePair> pairs;
    for (const MeshShape& mesh : meshes)
        for (size_t a = 0; a < factors.size(); ++a)
            for (size_t b = 0; b < a; ++b)
                if (factors[a].matters(mesh) && factors[b].matters(mesh))
                    for (int i = int(a - b) <= factors[a].needs ? 1 : 0; i < factors[b].choices; ++i)
                        for (int j = 0; j < factors[a].choices; ++j) pairs.emplace(b, i, a, j);
    return pairs;
}

}  // namespace

std::vector<ChoicePair> pairs_of(const MeshVariant& variant) {
    const std::vector<MeshFactor>& factors = mesh_factors();
    const auto has_effect = [&](size_t f) {
        const auto& choices = variant.choices;
        return factors[f].matters(variant.mesh) && std::count(choices.begin() + int64_t(f) - factors[f].needs,
                                                              choices.begin() + int64_t(f), 0) == 0;
    };
    std::vector<ChoicePair> pairs;
    for (size_t a = 0; a < factors.size(); ++a)
        for (size_t b = 0; b < a; ++b)
            if (has_effect(a) && has_effect(b))
                pairs.emplace_back(b, variant.choices[b], a, variant.choices[a]);
    return pairs;
}

std::vector<MeshVariant> pairwise_complete(const std::vector<MeshShape>& meshes,
                                           const std::vector<MeshShape>& tested_elsewhere) {
    const std::vector<MeshFactor>& factors = mesh_factors();
    Draw draw;
    std::set<ChoicePair> missing = pairs_of(meshes);
    for (const ChoicePair& pair : pairs_of(tested_elsewhere)) missing.erase(pair);
    std::vector<MeshVariant> all;
    // a variant of the mesh with as many of the missing pairs as possible
    const auto best_of = [&](const MeshShape& mesh) {
        MeshVariant best;
        int64_t most = -1;
        for (int i = 0; i < candidates; ++i) {
            MeshVariant variant = {mesh, MeshChoices(factors.size(), 0)};
            for (size_t f = 0; f < factors.size(); ++f)
                if (factors[f].matters(mesh)) variant.choices[f] = draw(factors[f].choices);
            const int64_t count = std::ranges::count_if(
                pairs_of(variant), [&](const ChoicePair& p) { return missing.contains(p); });
            if (count > most) {
                most = count;
                best = variant;
            }
        }
        return std::pair(best, most);
    };
    for (bool first = true; first || !missing.empty(); first = false)
        for (const MeshShape& mesh : meshes) {
            const auto [variant, new_pairs] = best_of(mesh);
            if (!first && new_pairs == 0) continue;
            for (const ChoicePair& pair : pairs_of(variant)) missing.erase(pair);
            all.push_back(variant);
        }
    return all;
}

std::vector<MeshVariant> broadcast(const Communicator& world, const std::vector<MeshShape>& meshes,
                                   const std::vector<MeshVariant>& variants) {
    const size_t width = 1 + mesh_factors().size();  // the number of the mesh, and the choices
    auto count = int64_t(variants.size() * width);
    world.broadcast(Tensor(&count, Dtype::i64, {1}), 0);
    std::vector<int64_t> numbers;
    for (const MeshVariant& variant : variants) {
        const auto mesh = std::ranges::find(meshes, variant.mesh.text(), &MeshShape::text);
        numbers.push_back(mesh - meshes.begin());
        numbers.insert(numbers.end(), variant.choices.begin(), variant.choices.end());
    }
    numbers.resize(size_t(count));
    world.broadcast(Tensor(numbers.data(), Dtype::i64, {count}), 0);
    std::vector<MeshVariant> all;
    for (auto i = numbers.begin(); i != numbers.end(); i += int64_t(width))
        all.push_back({meshes[size_t(*i)], MeshChoices(i + 1, i + int64_t(width))});
    return all;
}

}  // namespace coeus::test
