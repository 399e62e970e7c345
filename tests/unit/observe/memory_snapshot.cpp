// SPDX-License-Identifier: Apache-2.0
// A snapshot accounts for every byte of the arenas, names what it finds, and changes nothing.
#include "coeus/observe/memory_snapshot.hpp"

#include "coeus/file/json.hpp"
#include "support/catch.hpp"
#include "support/model.hpp"
#include "support/support.hpp"

#include <algorithm>
#include <regex>
#include <set>
#include <string>

using namespace coeus;
using namespace coeus::test;

namespace {

struct ReadyEngine {
    explicit ReadyEngine(const RecomputeOptions& recompute = {})
        : engine(tiny_config(), {.types = {Dtype::f32, Dtype::bf16},
                                 .training = {.sequences = 2, .seq_len = 7},
                                 .accumulation = 2,
                                 .recompute = recompute}),
          batch(4, 7, tiny_config().vocab) {
        engine.allocate();
        engine.model().parameters().initialise(5, 1);
        engine.renew_weights();
    }
    double step() {
        engine.compute_gradients(1, 1e-2, batch.valid_labels(),
                                 [&](int64_t i) { return batch.local_batch(2 * i, 2); });
        engine.update();
        return engine.scalars().loss;
    }
    Engine engine;
    TestBatch batch;
};

bool has(const std::vector<std::string>& all, const std::string& name) {
    return std::find(all.begin(), all.end(), name) != all.end();
}

}  // namespace

TEST_CASE("snapshot: every byte that was ever in use belongs to exactly one tensor") {
    using Mode = RecomputeOptions::Mode;
    for (const Mode mode : {Mode::nothing, Mode::operations, Mode::blocks}) {
        CAPTURE(int(mode));
        ReadyEngine ready({.mode = mode});
        MemorySnapshot snapshot(ready.engine, 100000);
        ready.step();
        REQUIRE(snapshot.arenas().size() == 3);
        CHECK(snapshot.left_out() == 0);
        const int64_t calls = int64_t(snapshot.calls().size());
        std::vector<int64_t> peaks(3);
        for (int64_t now = 0; now < calls; ++now) {
            for (size_t arena = 0; arena < 3; ++arena) {
                std::vector<std::pair<int64_t, int64_t>> areas;
                for (const auto& held : snapshot.held())
                    if (held.arena == arena && held.from <= now && now < held.to)
                        areas.emplace_back(held.first, held.bytes);
                std::sort(areas.begin(), areas.end());
                int64_t end = 0;
                for (const auto& [first, bytes] : areas) {
                    CHECK(first == end);  // neither gaps nor overlaps
                    end = first + round_up(bytes, 64);
                }
                peaks[arena] = std::max(peaks[arena], end);
            }
        }
        CHECK(peaks[0] == ready.engine.layer_memory().activations);
        CHECK(peaks[1] == ready.engine.layer_memory().temporaries);
        CHECK(peaks[2] == ready.engine.layer_memory().workspace);
    }
}

TEST_CASE("snapshot: tensors are named after the kernel that wrote them") {
    ReadyEngine ready;
    MemorySnapshot snapshot(ready.engine, 100000);
    ready.step();
    CHECK(snapshot.calls()[1] == "embedding of tok_embeddings");
    CHECK(snapshot.calls()[2] == "rms_norm of layers.0.attention_norm");
    CHECK(snapshot.calls()[3] == "gemm of layers.0.attention.wq+wk+wv");
    CHECK(has(snapshot.calls(), "attention_backward of layers.1.attention"));
    CHECK(has(snapshot.calls(), "adam of output"));
    std::multiset<std::string> kept;
    for (const auto& held : snapshot.held())
        if (held.arena == 0) kept.insert(held.name);
    // two micro-batches
    for (const char* name : {"rms_norm of layers.1.ffn_norm", "rms_norm of layers.1.ffn_norm, 1/rms",
                             "attention of layers.0.attention, log of sums",
                             "gemm of layers.1.feed_forward.w2", "swiglu of layers.0.feed_forward"})
        CHECK(kept.count(name) == 2);
    CHECK(kept.count("") == 0);
    CHECK(kept.size() == 2 * (1 + 2 * 11 + 2));
}

TEST_CASE("snapshot: observing changes no bit, and ends") {
    ReadyEngine plain, observed;
    const double loss = plain.step();
    {
        MemorySnapshot snapshot(observed.engine, 100000);
        CHECK(observed.step() == loss);
        const size_t calls = snapshot.calls().size();
        MemorySnapshot other(observed.engine, 3);  // both see the kernels, only the last one the arenas
        observed.step();
        CHECK(snapshot.calls().size() == 2 * calls);
        CHECK(other.calls().size() == calls);
        CHECK(other.held().size() == 3);
        CHECK(other.left_out() > 50);
    }
    CHECK(observed.engine.exec().observers.none());
    observed.step();
}

TEST_CASE("snapshot: its files") {
    ReadyEngine ready;
    MemorySnapshot snapshot(ready.engine, 100000);
    ready.step();
    const TemporaryFolder folder;
    snapshot.write(folder.path(), 20, 3);
    const JsonDocument document = JsonDocument::read(folder / "step-00000020/rank_3.json");
    const JsonView json = document.root();
    CHECK(json.integer("step") == 20);
    CHECK(json.integer("rank") == 3);
    CHECK(json["tensors"].size() == snapshot.held().size());
    CHECK(json["calls"].size() == snapshot.calls().size());
    CHECK(json["arenas"][0].string("name") == "activations");
    CHECK(json["arenas"][0].integer("peak") <= ready.engine.layer_memory().activations);
    CHECK(json["fixed_bytes"].integer("optimizer moments") == ready.engine.plan().bytes(term::moments));
    CHECK_FALSE(json["fixed_bytes"].contains("activations"));
    const std::string svg = read_file(folder / "step-00000020/rank_3.svg");
    CHECK_THAT(svg, Catch::StartsWith("<svg") && Catch::Contains("Memory of step 20, rank 3") &&
                        Catch::Contains("<title>gemm of layers.0.attention.wq+wk+wv: 1.31 KiB, calls 3 to"));
    CHECK(count_of("<rect", svg) ==
          count_of("</rect>", svg) + 7);  // one of the background, six of the legend
    // the areas are as wide as the picture, although the calls of the update, at the end, hold nothing
    double right = 0;
    const std::regex area("class=\"h .\" x=\"([0-9.]+)\" y=\"[0-9.]+\" width=\"([0-9.]+)\"");
    for (std::sregex_iterator at(svg.begin(), svg.end(), area), end; at != end; ++at)
        right = std::max(right, std::stod((*at)[1]) + std::stod((*at)[2]));
    CHECK(close(right, 1300, 0.1));
    CHECK_THAT(svg, Catch::Contains("calls after them, of the update, need almost nothing"));
}
