// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/document_balance.hpp"

#include <algorithm>

namespace coeus {

void DocumentBalance::add(const SampleRows& samples) {
    int64_t most = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
        const SequencePart part = part_of_sequence(samples.seq_len, ranks_, rank, balancing_);
        int64_t pairs = 0;
        for (int64_t s = 0; s < samples.sequences; ++s)
            for (int64_t i = 0; i < part.count; ++i) {
                const int64_t place = part.index(i);
                pairs += place - samples.document_start[size_t(s * samples.seq_len + place)] + 1;
            }
        most = std::max(most, pairs);
        all_ += double(pairs);
    }
    busiest_ += double(most);
}

}  // namespace coeus
