// SPDX-License-Identifier: Apache-2.0
#include "coeus/optim/whole_matrices.hpp"

#include "coeus/state/replica.hpp"

#include <algorithm>

namespace coeus {

namespace {

// The parts of a storage that the tensor-parallel ranks have, one after the other in memory, each with the
// layout of its rank's storage. If it is not divided there is one part.
class Parts {
public:
    explicit Parts(const Storage& storage) : storage_(storage) {
        const ShardPlace& place = storage.place();
        const bool divided = is_divided_over_tp(storage.params().front());
        count_ = divided ? place.tp : 1;
        own_ = divided ? place.tp_rank : 0;
        int64_t rows = 0, cols = 0;
        for (const Param& param : storage.params()) {
            const Extent largest = param.part(count_, 0);  // that of the first rank
            rows += largest.rows;
            cols = largest.cols;
        }
        rows *= storage.params().front().local.groups;
        size_ = place.fsdp * div_ceil(rows, place.fsdp) * cols;
    }

    int count() const { return count_; }
    int64_t elements() const { return count_ * size_; }
    Tensor part(Tensor all, int rank) const { return all.slice_rows(rank * size_, size_); }
    Tensor own(Tensor all) const { return part(all, own_); }

    // A rank's part of one group of a parameter: [rows, cols] of that rank's extent.
    Tensor of(Tensor all, const Param& param, int64_t group, int rank) const {
        int64_t before = 0, rows = 0;  // rows of the parameters before it, and of all, in a group
        for (const Param& other : storage_.params()) {
            if (&other == &param) before = rows;
            rows += other.part(count_, rank).rows;
        }
        const Extent e = param.part(count_, rank);
        return part(all, rank)
            .slice_rows((group * rows + before) * e.cols, e.rows * e.cols)
            .reshape({e.rows, e.cols});
    }

private:
    const Storage& storage_;
    int count_, own_;
    int64_t size_;  // elements of the largest part, including the padding for FSDP's equal shares
};

}  // namespace

WholeMatrices::WholeMatrices(Arena& scratch) : scratch_(scratch) {
    static const MatrixRanks one[] = {{alone(), alone()}};
    ranks_ = one;
}

void WholeMatrices::replace(Exec& exec, const Kernels& kernels, const Storage& storage, Each each) const {
    require(storage.sharding() < ranks_.size(), "whole matrices need the ranks of each sharding");
    const MatrixRanks& ranks = ranks_[storage.sharding()];
    const Scope scope(scratch_);
    const Parts parts(storage);
    const ShardPlace& place = storage.place();
    const Dtype type = storage.compute_type();
    const Tensor all = scratch_.alloc(type, {parts.elements()});
    const Tensor own = parts.own(all).slice_rows(0, storage.padded_count());
    const int64_t share = own.count() / place.fsdp, count = storage.shard_shape().count();
    const Tensor owned = own.slice_rows(place.fsdp_rank * share, share);
    if (count > 0) kernels.cast(exec, owned.slice_rows(0, count), storage.gradient.reshape({count}));
    {
        const ObservedExchange noted(exec, Exchange::gather_matrix_rows, own);
        ranks.fsdp.all_gather(exec, own, owned);
    }
    if (parts.count() > 1) {
        const ObservedExchange noted(exec, Exchange::gather_matrix_parts, all);
        ranks.tp.all_gather(exec, all, parts.own(all));
    }
    for (const Param& param : storage.params())
        for (int64_t group = 0; group < param.local.groups; ++group) {
            const Scope of_matrix(scratch_);
            const int64_t rows = param.rows_per_group();
            Tensor whole = parts.of(all, param, group, 0);
            if (parts.count() > 1) {
                whole = scratch_.alloc(type, {rows, param.shape.cols()});
                for (int rank = 0; rank < parts.count(); ++rank) {
                    const Extent e = param.part(parts.count(), rank);
                    if (e.rows * e.cols > 0)
                        kernels.cast(exec,
                                     whole.slice_rows(e.first_row, e.rows).slice_cols(e.first_col, e.cols),
                                     parts.of(all, param, group, rank));
                }
            }
            each(param, whole);
            for (const OwnedRun& run : storage.runs()) {
                if (run.param != &param) continue;
                // its rows within the group, which is one of this rank's
                const int64_t first = (param.local.first_group + group) * rows,
                              begin = std::max(run.first_row, first),
                              end = std::min(run.first_row + run.rows, first + rows);
                if (begin < end)
                    kernels.cast(exec,
                                 storage.gradient.slice_rows(run.first + begin - run.first_row, end - begin),
                                 whole.slice_rows(begin - first, end - begin)
                                     .slice_cols(run.first_col, param.local.cols));
            }
        }
}

}  // namespace coeus
