// SPDX-License-Identifier: Apache-2.0
#include "coeus/state/storage.hpp"

#include <algorithm>

namespace coeus {

namespace {

// A shape with n rows; the elements of a vector are its rows.
Shape with_rows(const Shape& like, int64_t rows) {
    return like.rank == 1 ? Shape{rows} : Shape{rows, like.cols()};
}

}  // namespace

Storage::Storage(std::vector<Param> params, const StateTypes& types, const ShardPlace& place, size_t unit)
    : params_(std::move(params)),
      master_type_(types.master),
      compute_type_(types.compute),
      place_(place),
      unit_(unit) {
    require(!params_.empty(), "a storage holds at least one parameter");
    require(params_.size() <= most_params, "a storage holds at most 64 parameters");
    const Param& first = params_.front();
    require(!first.is_exact || (place.fsdp == 1 && !first.trainable),
            "exact parameters are neither gathered nor updated by the optimizer");
    if (first.is_exact) master_type_ = compute_type_ = types.accumulate();
    for (Param& param : params_) {
        require(param.shape.cols() == first.shape.cols(),
                "parameters of one storage must have equal columns");
        require(param.is_exact == first.is_exact, "parameters of one storage must be of one type");
        if (param.trainable != first.trainable)
            throw ConfigError(
                "model.frozen: {} and {} are stored together, so that both must be frozen or neither",
                first.name, param.name);
        require(param.shard.tp == first.shard.tp && param.shard.sharding == first.shard.sharding,
                "parameters of one storage must be divided alike");
        require(param.sums_products == first.sums_products,
                "parameters of one storage must have gradients of one kind");
        require(param.recipe == first.recipe, "parameters of one storage must have one recipe");
        require(param.groups == first.groups && param.groups > 0 && param.shape.rows() % param.groups == 0,
                "parameters of one storage must have equally many groups, each of equal rows");
        param.local = param.part(place);
        param.first_row = rows_per_group_;
        rows_per_group_ += param.local.rows;
    }
    lay_out();
    list_runs();
    // types and shapes are known before memory is allocated, so that a planning run can read them
    const bool is_8_bit = types.precision.gather_in_8_bits && first.recipe == Recipe::tensorwise;
    w = Tensor(nullptr, is_8_bit ? Dtype::fp8_e4m3 : compute_type_, shape_);
    if (has_one_scales())
        one_scales.assign(params_.size(),
                          {Tensor(nullptr, Dtype::i32, {1}), Tensor(nullptr, Dtype::f32, {1})});
    if (is_frozen()) return;
    const bool is_bf16 = types.gradients_in_bf16 && sums_products() && !is_partial();
    g = Tensor(nullptr, is_bf16 ? Dtype::bf16 : types.accumulate(), shape_);
    gradient = Tensor(nullptr, is_gathered() ? types.accumulate() : g.dtype, shard_shape_);
}

bool Storage::has_one_scales() const {
    const RecipeForms forms = forms_of(recipe());
    return forms.w.groups == ScaleGroups::one || forms.w_of_dgrad.groups == ScaleGroups::one;
}

void Storage::lay_out() {
    const Param& first = params_.front();
    const int64_t rows = first.local.groups * rows_per_group_;
    const bool whole =
        params_.size() == 1 && rows == first.shape.rows() && first.local.cols == first.shape.cols();
    shape_ = whole ? first.shape : first.shape.rank == 1 ? Shape{rows} : Shape{rows, first.local.cols};
    rows_per_shard_ = div_ceil(rows, place_.fsdp);
    shard_first_row_ = std::min(rows, place_.fsdp_rank * rows_per_shard_);
    const int64_t owned_rows = std::min(rows_per_shard_, rows - shard_first_row_);
    shard_shape_ = owned_rows == rows ? shape_ : with_rows(shape_, owned_rows);
}

void Storage::list_runs() {
    const int64_t last_owned = shard_first_row_ + shard_shape_.rows();
    for (int64_t group = 0; group < params_.front().local.groups; ++group)
        for (const Param& param : params_) {
            const int64_t first = group * rows_per_group_ + param.first_row;
            const int64_t begin = std::max(first, shard_first_row_),
                          end = std::min(first + param.local.rows, last_owned);
            if (begin >= end) continue;
            const OwnedRun run = {.param = &param,
                                  .first = begin - shard_first_row_,
                                  .rows = end - begin,
                                  .first_row = (param.local.first_group + group) * param.rows_per_group() +
                                               param.local.first_row + (begin - first),
                                  .first_col = param.local.first_col};
            OwnedRun* last = runs_.empty() ? nullptr : &runs_.back();
            if (last && last->param == &param && last->first_row + last->rows == run.first_row)
                last->rows += run.rows;
            else
                runs_.push_back(run);
        }
}

void Storage::keep(std::vector<Moment> kept, FunctionRef<size_t(const Param&)> group_of) {
    require(!master, "an optimizer must declare its moments before memory is allocated");
    for (Param& param : params_) param.group = group_of(param);
    kept_ = std::move(kept);
    moments.assign(kept_.size(), Tensor());
}

bool Storage::begin_product(int64_t first_row, int64_t rows) const {
    require(params_.front().groups == 1 || rows == shape_.rows(),
            "the matrices of all groups get their products at once");
    uint64_t begun = 0;
    for (size_t i = 0; i < params_.size(); ++i) {
        const Param& param = params_[i];
        if (param.first_row < first_row + rows && first_row < param.first_row + param.local.rows)
            begun |= uint64_t(1) << i;
    }
    const uint64_t replaced = forgotten_ & begun;
    require(replaced == 0 || replaced == begun,
            "a product is added to rows of which only some count as zero");
    forgotten_ &= ~begun;
    return replaced != 0;
}

void Storage::zero_forgotten(Exec& exec, const Kernels& kernels) const {
    if (forgotten_ == all_params())
        kernels.zero(exec, g);
    else
        for (size_t i = 0; i < params_.size(); ++i)
            if (const Param& param = params_[i]; is_forgotten(i))
                kernels.zero(exec, g.slice_rows(param.first_row, param.local.rows));
    forgotten_ = 0;
}

Tensor Storage::rows_of(const Param& param, Tensor of) const {
    require(param.groups == 1 || params_.size() == 1,
            "the rows of a parameter that is stacked group by group with others are not adjacent");
    const Tensor rows = of.slice_rows(param.first_row, param.local.groups * param.local.rows);
    return rows.count() == param.shape.count() ? rows.reshape(param.shape) : rows;
}

Tensor Storage::rows_of(const OwnedRun& run, Tensor of) {
    const Tensor rows = of.slice_rows(run.first, run.rows);
    return rows.count() == run.param->shape.count() ? rows.reshape(run.param->shape) : rows;
}

}  // namespace coeus
