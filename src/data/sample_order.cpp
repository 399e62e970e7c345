// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/sample_order.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/random.hpp"

#include <algorithm>

namespace coeus {

namespace {

constexpr int64_t held_out_every = 100;

}  // namespace

SampleOrder::SampleOrder(int64_t all, const Options& options) : all_(all), count_(all), options_(options) {
    require(all >= (options.subset == Subset::all ? 1 : 2), "an order needs samples, and one to hold out");
    const int64_t held_out = std::max<int64_t>(1, all / held_out_every);
    if (options.subset == Subset::held_out) count_ = held_out;
    if (options.subset == Subset::training) count_ = all - held_out;
}

int64_t SampleOrder::operator()(int64_t i) const {
    const int64_t epoch = i / count_;
    int64_t index = i % count_;
    if (options_.shuffle)
        index = int64_t(Permutation(uint64_t(count_), options_.seed,
                                    stream_of("shuffle") + uint64_t(epoch))(uint64_t(index)));
    if (options_.subset == Subset::all) return index;
    if (options_.subset == Subset::held_out) return std::min((index + 1) * held_out_every, all_) - 1;
    return index + index / (held_out_every - 1);  // of each 100, the first 99 are for training
}

SampleRange samples_of(int64_t step, int64_t global_batch, int64_t rank, int64_t ranks) {
    require(global_batch > 0 && ranks > 0 && global_batch % ranks == 0 && rank >= 0 && rank < ranks,
            "the global batch size must be a multiple of the number of data-parallel ranks");
    const int64_t count = global_batch / ranks;
    return {step * global_batch + rank * count, count};
}

}  // namespace coeus
