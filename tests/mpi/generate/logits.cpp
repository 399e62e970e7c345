// SPDX-License-Identifier: Apache-2.0
// The logits of texts on meshes are those of one rank, in float64: for every kind of attention and of
// experts, and on every axis. Data ranks have texts of different lengths, and one of them has fewer texts.
#include "coeus/base/error.hpp"
#include "coeus/generate/generator.hpp"
#include "support/catch.hpp"
#include "support/mesh_factors.hpp"
#include "support/support.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

namespace {

constexpr int64_t context = 13, slots = 3;

// A text: its prompt, and the tokens that are appended one by one.
struct Given {
    std::vector<int32_t> prompt, more;
};

MeshCase case_of(const MeshShape& mesh, int kind) {
    MeshCase c = {.mesh = mesh, .model = tiny_config()};
    c.model.layers = mesh.pp > 2 ? 6 : 3;
    c.model.grouped().heads = 8;
    c.model.grouped().kv_heads = 4;
    c.model.grouped().head_dim = 4;
    c.model.feed_forward.hidden = 23;
    c.model.tied = kind % 2 == 1;
    set_attention(c.model, kind % attention_kinds);
    if (kind % 2 == 0) set_two_ropes(c.model);
    set_experts(c.model, kind % expert_kinds);
    if (kind % 3 != 0) set_scales(c.model);
    if (kind % 4 == 0) set_parallel(c.model);
    set_expert_ranks(c, 1 + kind % 3);
    return c;
}

std::vector<MeshShape> meshes(int ranks) {
    return meshes_of(ranks, {axis::pp, axis::dp_replicate, axis::dp_shard, axis::cp, axis::tp});
}

// One text less than all data ranks have together, so that one of them has nothing to do at the end.
std::vector<Given> texts_for(int64_t data_ranks, int64_t vocab) {
    std::vector<Given> all;
    for (int64_t i = 0; i < slots * data_ranks - (data_ranks > 1 ? 1 : 0); ++i)
        all.push_back({TestBatch(1, 1 + (5 * i + 2) % 9, vocab, uint64_t(i) + 1).tokens,
                       TestBatch(1, 1 + i % 4, vocab, uint64_t(i) + 90).tokens});
    return all;
}

void initialise(Generator& generator) {
    generator.decoder().parameters().initialise(7, 1);
    generator.weights_changed();
}

// The logits after the prompt and after each further token, of each text.
using Logits = std::vector<std::vector<std::vector<double>>>;

Logits on_one_rank(const DecoderConfig& model, const std::vector<Given>& texts) {
    Generator generator(model, Dtype::f64, context, 1);
    initialise(generator);
    Logits all;
    for (const Given& text : texts) {
        all.push_back({values(generator.read(0, text.prompt))});
        for (const int32_t token : text.more) {
            const Generator::Next next[] = {{0, token}};
            all.back().push_back(values(generator.append(next)));
        }
    }
    return all;
}

bool is_last_stage(const Mesh& mesh) {
    return mesh.rank(axis::pp) == mesh.size(axis::pp) - 1;
}

// Text i is on data rank i % D. Those of other ranks stay empty, and all do on ranks without logits.
class OnMesh {
public:
    OnMesh(Generator& generator, const std::vector<Given>& texts)
        : generator_(generator),
          texts_(texts),
          ranks_(size_t(generator.mesh().size(axis::dp))),
          rank_(size_t(generator.mesh().rank(axis::dp))),
          has_logits_(is_last_stage(generator.mesh())),
          all_(texts.size()) {}

    Logits run() {
        for (size_t round = 0; round < size_t(slots); ++round) read(round);
        for (size_t step = 0; append(step); ++step) {
        }
        return all_;
    }

private:
    // The slots of a rank are used in descending order.
    int64_t slot_of(size_t text) const { return slots - 1 - int64_t(text / ranks_); }
    void read(size_t round) {
        size_t longest = 0;
        for (size_t i = round * ranks_; i < std::min(texts_.size(), (round + 1) * ranks_); ++i)
            longest = std::max(longest, texts_[i].prompt.size());
        const size_t own = round * ranks_ + rank_;
        if (own >= texts_.size())
            generator_.read(0, {}, int64_t(longest));
        else
            keep(own, generator_.read(slot_of(own), texts_[own].prompt, int64_t(longest)));
    }
    // False if no text has so many tokens.
    bool append(size_t step) {
        std::vector<int64_t> counts(ranks_, 0);
        std::vector<Generator::Next> next;
        std::vector<size_t> of_rows;
        for (size_t i = 0; i < texts_.size(); ++i) {
            if (step >= texts_[i].more.size()) continue;
            ++counts[i % ranks_];
            if (i % ranks_ != rank_) continue;
            next.push_back({slot_of(i), texts_[i].more[step]});
            of_rows.push_back(i);
        }
        const int64_t most = std::ranges::max(counts);
        if (most == 0) return false;
        const Tensor logits = generator_.append(next, most);
        for (size_t row = 0; row < of_rows.size(); ++row)
            keep(of_rows[row], logits ? logits.slice_rows(int64_t(row), 1) : logits);
        return true;
    }
    // Without logits: another context-parallel rank has them, or the last stage.
    void keep(size_t text, const Tensor& logits) {
        if (has_logits_) all_[text].push_back(logits ? values(logits) : std::vector<double>{});
    }

    Generator& generator_;
    const std::vector<Given>& texts_;
    size_t ranks_, rank_;
    bool has_logits_;
    Logits all_;
};

void check_case(const MeshCase& c, const Communicator& world) {
    CAPTURE(c.name());
    const Mesh mesh(world.split(0, "a mesh of ranks that generate"), c.mesh);
    const std::vector<Given> texts = texts_for(mesh.size(axis::dp), c.model.vocab);
    const Logits should = on_one_rank(c.model, texts);
    Generator generator(c.model, Dtype::f64, context, slots, {.mesh = mesh});
    initialise(generator);
    const Logits are = OnMesh(generator, texts).run();
    const bool has_logits = is_last_stage(mesh);
    for (size_t i = 0; i < texts.size(); ++i) {
        CAPTURE(i);
        const bool is_here = has_logits && int64_t(i) % mesh.size(axis::dp) == mesh.rank(axis::dp);
        REQUIRE(are[i].size() == (is_here ? should[i].size() : 0));
        for (size_t step = 0; step < are[i].size(); ++step) {
            CAPTURE(step);
            // one of the context-parallel ranks has them
            const int64_t ranks = mesh[axis::cp].all_reduce(int64_t(!are[i][step].empty()), Reduce::sum);
            CHECK(ranks == 1);
            if (!are[i][step].empty()) CHECK(normalised_error(are[i][step], should[i][step]) <= 1e-12);
        }
    }
}

}  // namespace

TEST_CASE("generation: logits on every mesh are those of one rank, for every kind of model") {
    const Communicator world = Communicator::world("world");
    const std::vector<MeshShape> all = meshes(world.size());
    // on 4 ranks, the kinds take turns
    const size_t each = world.size() > 2 ? 2 : size_t(attention_kinds);
    for (size_t i = 0; i < all.size(); ++i)
        for (size_t kind = 0; kind < each; ++kind)
            check_case(case_of(all[i], int(kind * 3 + i) % attention_kinds), world);
}

TEST_CASE("generation: a mesh uses exactly the planned memory") {
    const Communicator world = Communicator::world("world");
    for (const MeshShape& shape : meshes(world.size())) {
        MeshCase c = case_of(shape, 0);
        const Mesh mesh(world.split(0, "a mesh of ranks that generate"), shape);
        Generator generator(c.model, Dtype::f64, context, slots, {.mesh = mesh});
        initialise(generator);
        const std::vector<int32_t> prompt = TestBatch(1, context, c.model.vocab).tokens;
        generator.read(0, prompt);
        std::vector<Generator::Next> next;
        for (int64_t slot = 0; slot < slots; ++slot) {
            generator.read(slot, std::span(prompt).first(1));
            next.push_back({slot, 3});
        }
        generator.append(next);
        const LayerMemory &planned = generator.layer_memory(), used = generator.used();
        CAPTURE(shape.text());
        CHECK(used.activations == planned.activations);
        CHECK(used.executor.frame_entries == planned.executor.frame_entries);
        CHECK(used.temporaries == planned.temporaries);
        CHECK(used.workspace == planned.workspace);
        // the cache is divided as the layers and their heads are
        const DecoderPart part = DecoderPart::of(c.model, generator.decoder().parts().front());
        CHECK(generator.plan().bytes(term::cache) ==
              part.layers() * slots * context * 2 * (4 * 4 / (shape.tp * shape.cp)) * size_of(Dtype::f64));
        CHECK(generator.plan().bytes(term::gradients) == 0);
        CHECK(generator.plan().bytes(term::unreduced_gradients) == 0);
        CHECK((generator.plan().bytes(term::gathered_weights) > 0) == (shape.size(axis::fsdp) > 1));
    }
}
