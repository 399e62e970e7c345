// SPDX-License-Identifier: Apache-2.0
// Units that take turns in the memory of gathered weights and gradients: when each is gathered, and which
// reductions a backward waits for. The important case is a tied model, whose table is used at both ends.
#include "support/catch.hpp"
#include "support/mesh_run.hpp"

#include <algorithm>
#include <cstring>

using namespace coeus;
using namespace coeus::test;

namespace {

// Records what happens to the table (T) and to blocks (B), one letter each. A unit is recognised by its
// largest matrix.
class Order : public KernelObserver, public CommunicationObserver {
public:
    Order(int64_t table_bytes, int64_t block_bytes) : table_(table_bytes), block_(block_bytes) {}

    /// Gathers in the order in which they are given to an eager stream; ! marks a layer that waits for one.
    std::string gathers;
    /// T or B: a gradient whose summation begins, with zero or with its first product; t or b: a gradient
    /// that is reduced. On a deferred stream a reduction runs as late as possible, when someone waits for it.
    std::string sums;

    void begin(const char* kernel, double, double bytes) override {
        if (std::strcmp(kernel, "zero") == 0) note(sums, int64_t(bytes), "TB");
        multiplies_ = std::strcmp(kernel, "gemm") == 0;
    }
    void operands(std::span<const Tensor> all) override {
        if (multiplies_ && !all.back()) note(sums, all.front().bytes(), "TB");
    }
    void begin_exchange(Exchange, double) override { waiting_ = true; }
    void end() override { waiting_ = false; }
    int64_t begin(const std::string&, const char* operation, int64_t bytes, const std::source_location&,
                  const Queue*) override {
        if (std::strcmp(operation, "all_gather") == 0 && note(gathers, bytes, "TB") && waiting_)
            gathers += '!';
        if (std::strcmp(operation, "reduce_scatter") == 0) note(sums, bytes, "tb");
        return 0;
    }
    void end(int64_t) override {}

private:
    bool note(std::string& in, int64_t bytes, const char* letters) const {
        if (bytes != table_ && bytes != block_) return false;
        in += letters[bytes == table_ ? 0 : 1];
        return true;
    }
    int64_t table_, block_;
    bool waiting_ = false, multiplies_ = false;
};

// Two local batches of a tied model with sharded weights.
Order order_of(int64_t layers, int64_t vocab, Stream::Mode streams, const Communicator& world) {
    MeshCase c = {.mesh = {.dp_shard = world.size()}, .model = tiny_config(layers, true)};
    c.model.dim = 16;
    c.model.vocab = vocab;
    c.model.feed_forward.hidden = 32;
    c.local_batches = 2;
    c.streams = streams;
    Mesh mesh(world.split(0, "world"), c.mesh);
    MeshRun run(c, mesh);
    const int64_t element = 8;
    Order order(vocab * c.model.dim * element, 2 * c.model.feed_forward.hidden * c.model.dim * element);
    TestBatch batch = batch_of_step(c, 1);
    mesh.observe(&order);
    Observation observation = run.engine.observe(order);
    CHECK(run.step(1, batch));
    observation.end();
    mesh.observe(nullptr);
    return order;
}

}  // namespace

TEST_CASE(
    "gathered: the next unit of a tied model is gathered before it is needed, however many blocks there "
    "are") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2 && world.size() != 4) return;
    struct Case {
        int64_t layers, vocab;
        const char* gathers;
    };
    constexpr int64_t large = 512, small = 40;  // sizes of the table; a block lies between
    for (const Case& c : {Case{1, large, "T!B"}, Case{2, large, "T!BB"}, Case{2, small, "T!BB"},
                          // the third block is still there for its backward, the first for the next local
                          // batch, whose table is gathered during that block's backward
                          Case{3, large,
                               "T!BBBTBBT"
                               "BBTBB"},
                          Case{4, large,
                               "T!BBBBTBBBT"
                               "BBBTBBB"},
                          // a table smaller than a block lies between two of them, in less memory than three
                          // blocks: all but the last two are gathered again
                          Case{4, small,
                               "T!BBBBTBBT"
                               "BBBTBB"},
                          Case{5, large,
                               "T!BBBBBTBBBBT"
                               "BBBBTBBBB"},
                          Case{6, large,
                               "T!BBBBBBTBBBBBT"
                               "BBBBBTBBBBB"}}) {
        CAPTURE(c.layers, c.vocab);
        CHECK(order_of(c.layers, c.vocab, Stream::Mode::eager, world).gathers == c.gathers);
    }
}

TEST_CASE("gathered: the backward of a tied model never waits for the sum of the gradient before") {
    const Communicator world = Communicator::world("world");
    if (world.size() != 2 && world.size() != 4) return;
    struct Case {
        int64_t layers;
        const char* one_batch;  // of the first batch; the first T is the head
    };
    for (const Case& c :
         {Case{2, "TBBtT"}, Case{3, "TBtBbBbT"}, Case{4, "TBtBBbBbbT"}, Case{5, "TBtBbBbBbBbT"}}) {
        CAPTURE(c.layers);
        const std::string sums = order_of(c.layers, 512, Stream::Mode::deferred, world).sums;
        CHECK(sums.substr(0, std::strlen(c.one_batch)) == c.one_batch);
        // each is summed: in two batches, with the table twice in each
        CHECK(std::count(sums.begin(), sums.end(), 't') == 4);
        CHECK(std::count(sums.begin(), sums.end(), 'b') == 2 * c.layers);
    }
}
