// SPDX-License-Identifier: Apache-2.0
// Coeus with one more model family: a decoder whose feed-forward layers have squared ReLU.
#include "coeus/apps/run_program.hpp"
#include "coeus/models/build_block.hpp"
#include "coeus/models/family.hpp"
#include "coeus/models/registry.hpp"
#include "squared_relu.hpp"

namespace {

using namespace coeus;

std::unique_ptr<Block> build_primer_block(const Declare& declare, const PositionTables& tables,
                                          Output output) {
    const LayerConfig layer = declare.model().layer(declare.layer());
    const int64_t dim = declare.model().dim, hidden = layer.dense().hidden;
    std::vector<ResidualBlock::Part> parts;
    parts.push_back(build_part(declare, "attention_norm", output, [&](LinearInput input) {
        return build_attention(declare, layer.attention, tables, input);
    }));
    parts.push_back(build_part(declare, "ffn_norm", output, [&](LinearInput input) {
        Parameters& all = declare.parameters();
        const Storage& w1 =
            all.add(declare.weight("feed_forward.w1", {hidden, dim}, WeightRole::up, Split::rows));
        const Storage& w2 =
            all.add(declare.weight("feed_forward.w2", {dim, hidden}, WeightRole::down, Split::cols));
        return std::make_unique<primer::SquaredReluLayer>(w1, w2, input);
    }));
    return std::make_unique<ResidualBlock>(std::move(parts));
}

ModelFamily primer_family() {
    return {.name = "primer",
            .flavors = {{.flavor = "tiny",
                         .dim = 64,
                         .layers = 4,
                         .vocab = 384,
                         .attention = GroupedAttentionConfig{.heads = 4, .kv_heads = 2, .head_dim = 16},
                         .feed_forward = {.hidden = 256}}},
            .init = usual_init,
            .own_block = build_primer_block};
}

}  // namespace

int main(int argc, char** argv) {
    return run_program(argc, argv, [] { register_family(primer_family()); });
}
