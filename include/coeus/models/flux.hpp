// SPDX-License-Identifier: Apache-2.0
// Flux: the transformer of FluxConfig. Its segments are `input`, the blocks `double_blocks.i` and
// `single_blocks.i`, and `final_layer`. Parameters have torchtitan's names.
#pragma once

#include "coeus/base/function_ref.hpp"
#include "coeus/layers/rope_table.hpp"
#include "coeus/models/flux_config.hpp"
#include "coeus/models/model.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace coeus {

/// The angle by which RoPE rotates a pair of columns of a head at (0, row, column). Each axis rotates its own
/// columns (FluxConfig::axes_dim), one axis after the other.
double flux_angle(const FluxConfig& config, const std::array<int64_t, 3>& place, int64_t pair);

class Flux : public Model {
public:
    /// `parts`: those of this rank. `recompute`: what each block of the whole model recomputes; empty:
    /// nothing.
    Flux(const FluxConfig& config, const StateTypes& types, const ModelPlace& place,
         const std::vector<ModelPart>& parts, const std::vector<Recompute>& recompute = {});

    const BatchKind& batches() const override { return batches_; }
    /// Rows of text and patches [S (T + P), D], and what blocks are modulated by, [S, D] (acc). Rows are in
    /// stream order up to the first of single_blocks, and then in sample order (ImageRows).
    Flow flow_into(size_t segment, const BatchShape& local) const override;
    void allocate_tables(const Device& device) override { rope_.allocate(device); }
    int64_t table_bytes() const override { return rope_.view().bytes(); }

private:
    bool has(size_t segment) const;
    /// Adds a segment, with the unit and the storages of what `make` declares for its name.
    void add_block(const std::string& name, Segment::Kind kind,
                   FunctionRef<std::unique_ptr<Block>(const std::string&)> make);

    int64_t width_;
    ImageBatches batches_;
    RopeTable rope_;
};

}  // namespace coeus
