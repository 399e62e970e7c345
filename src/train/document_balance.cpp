// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/document_balance.hpp"

#include <algorithm>
#include <vector>

namespace coeus {

double busiest_over_mean(const SampleRows& samples, int64_t together, int ranks, Balancing balancing) {
    double busiest = 0, all = 0;
    for (int64_t first = 0; first < samples.sequences; first += together) {
        std::vector<int64_t> pairs(size_t(ranks), 0);
        for (int64_t s = first; s < std::min(first + together, samples.sequences); ++s)
            for (int rank = 0; rank < ranks; ++rank) {
                const SequencePart part = part_of_sequence(samples.seq_len, ranks, rank, balancing);
                for (int64_t i = 0; i < part.count; ++i) {
                    const int64_t place = part.index(i);
                    pairs[size_t(rank)] +=
                        place - samples.document_start[size_t(s * samples.seq_len + place)] + 1;
                }
            }
        busiest += double(std::ranges::max(pairs));
        for (const int64_t of_rank : pairs) all += double(of_rank);
    }
    return all > 0 ? busiest * ranks / all : 1;
}

}  // namespace coeus
