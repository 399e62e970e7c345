// SPDX-License-Identifier: Apache-2.0
// SampleOrder: which sample of a source, such as a window of a token file, a run reads as its i-th. A pure
// function of (seed, i), so that the data are the same on any mesh and a checkpoint stores the position in
// the data as one integer. Epochs repeat. With `shuffle`, the order is different in each epoch.
//   step s uses samples [s G, (s + 1) G), with the global batch size G; data rank r of R uses the r-th of R
//   contiguous parts of them
// The position itself is train's Progress.
#pragma once

#include <cstdint>

namespace coeus {

/// A subset of a source's samples: `held_out` is every 100th (the last one if there are fewer than 100);
/// `training` is all others.
enum class Subset { all, training, held_out };

class SampleOrder {
public:
    struct Options {
        uint64_t seed = 0;
        bool shuffle = false;
        Subset subset = Subset::all;
    };

    SampleOrder() = default;
    /// The source has `all` samples: at least 1, or at least 2 if some are held out.
    SampleOrder(int64_t all, const Options& options);

    /// Number of samples of the subset; [k count(), (k + 1) count()) are epoch k.
    int64_t count() const { return count_; }
    /// The number, in the whole source, of the run's i-th sample.
    int64_t operator()(int64_t i) const;

private:
    int64_t all_ = 0, count_ = 0;
    Options options_;
};

/// The samples of one step that belong to data rank r of R: global_batch must be a multiple of R.
struct SampleRange {
    int64_t first, count;
};
SampleRange samples_of(int64_t step, int64_t global_batch, int64_t rank, int64_t ranks);

}  // namespace coeus
