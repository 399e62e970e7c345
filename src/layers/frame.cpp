// SPDX-License-Identifier: Apache-2.0
#include "coeus/layers/frame.hpp"

#include "coeus/layers/exchanges/sequence_parallel.hpp"
#include "coeus/layers/operands.hpp"

#include <algorithm>

namespace coeus {

Frame::Frame(int64_t bytes, size_t entries, size_t owed, const Memory& memory, int64_t host_bytes,
             const Memory& host)
    : memory_(bytes, "activations", memory), host_memory_(host_bytes, "offloaded activations", host) {
    kept_.reserve(entries);
    on_host_.reserve(entries);
    owed_.reserve(owed);
}

void Frame::push(const void* owner, Tensor tensor) {
    kept_.push_back({owner, tensor});
    peak_entries_ = std::max(peak_entries_, kept_.size());
}

Tensor Frame::pop(const void* owner) {
    return pop_from(kept_, owner);
}

Tensor Frame::keep_on_host(const void* owner, Dtype dtype, const Shape& shape) {
    const Tensor tensor = host_memory_.alloc(dtype, shape);
    on_host_.push_back({owner, tensor});
    peak_entries_ = std::max(peak_entries_, on_host_.size());
    return tensor;
}

Tensor Frame::pop_from_host(const void* owner) {
    return pop_from(on_host_, owner);
}

std::span<const Frame::Kept> Frame::last_on_host() const {
    size_t first = on_host_.size();
    while (first > 0 && on_host_[first - 1].owner == on_host_.back().owner) --first;
    return std::span(on_host_).subspan(first);
}

Tensor Frame::pop_from(std::vector<Kept>& stack, const void* owner) {
    require(!stack.empty(), "a backward pops more than its forward pushed");
#ifdef COEUS_DEBUG
    require(stack.back().owner == owner, "a backward pops what another layer's forward pushed");
#else
    (void)owner;
#endif
    const Tensor tensor = stack.back().tensor;
    stack.pop_back();
    return tensor;
}

void Frame::later(Ctx& c, const WeightGradient& gradient) {
    if (gradient.parts.all().empty()) return;
    if (!owing_) return add_gradient(c, gradient);
    WeightGradient& owed = owed_.emplace_back(gradient);
    peak_owed_ = std::max(peak_owed_, owed_.size());
    const int64_t matrices = owed.groups ? owed.groups.number() : 1;
    if (owed.x_is_lent) owed.x = copy_of(c, owed.x, matrices);
    for (WeightGradient::Part& part : owed.parts.all())
        if (owed.dy_is_lent) part.dy = copy_of(c, part.dy, matrices);
}

// `matrices`: see scale_shape().
Operand Frame::copy_of(Ctx& c, const Operand& operand, int64_t matrices) {
    const Tensor lent = operand.tensor, kept = keep(lent.dtype, lent.shape, lent.groups, matrices);
    if (lent.groups == ScaleGroups::none)
        c.k.cast(c.exec, kept, lent);
    else
        copy_with_scales(c, kept, lent, matrices);
    return {kept, operand.is_transposed};
}

void Frame::pay(Ctx& c, size_t unit) {
    const auto is_of_unit = [&](const WeightGradient& gradient) { return gradient.unit() == unit; };
    // a gather of x begins while the products before it are computed
    const auto begin_next = [&](auto from) {
        const auto next = std::find_if(from, owed_.end(), [&](const WeightGradient& gradient) {
            return is_of_unit(gradient) && gradient.x_is_scattered;
        });
        if (next != owed_.end()) c.tokens.begin_gather(c, next->x.tensor);
    };
    begin_next(owed_.begin());
    for (auto gradient = owed_.begin(); gradient != owed_.end(); ++gradient) {
        if (!is_of_unit(*gradient)) continue;
        add_gradient(c, *gradient);
        if (gradient->x_is_scattered) begin_next(gradient + 1);
    }
    std::erase_if(owed_, is_of_unit);
}

void add_gradient(Ctx& c, const WeightGradient& gradient) {
    if (gradient.groups) {
        const WeightGradient::Part& part = gradient.parts.all().front();
        const Tensor x = gradient.x.tensor;
        const auto multiply_groups =
            x.groups == ScaleGroups::none ? c.k.grouped_gemm_weights : c.k.scaled_grouped_gemm_weights;
        const Tensor g = part.storage->g;
        const bool replaces = part.storage->begin_product(0, g.rows());
        return multiply_groups(c.exec, g, part.dy.tensor, x, replaces ? Tensor{} : g, gradient.groups);
    }
    const Scope temps(c.temp);
    Operand x = gradient.x;
    if (gradient.x_is_scattered) x.tensor = c.tokens.gather(c, x.tensor);
    for (const WeightGradient::Part& part : gradient.parts.all()) {
        const Tensor g = part.storage->g, of_x = g.slice_rows(part.first_row, part.dy.cols())
                                                     .slice_cols(gradient.first_col, x.cols());
        const bool replaces = part.storage->begin_product(part.first_row, part.dy.cols());
        require(!replaces || of_x.cols() == g.cols(), "only a product of all columns can replace a gradient");
        multiply(c, of_x, transposed(part.dy), x, replaces ? Tensor{} : of_x);
    }
}

void Frame::rewind(const Mark& mark) {
    memory_.rewind(mark.bytes);
    kept_.resize(std::min(kept_.size(), mark.entries));
    host_memory_.rewind(mark.host_bytes);
    on_host_.resize(std::min(on_host_.size(), mark.host_entries));
}

}  // namespace coeus
