// SPDX-License-Identifier: Apache-2.0
// LocalBatch: what the loader hands to the engine for a local batch, of whatever a model reads.
#pragma once

#include "coeus/base/sample_rows.hpp"

namespace coeus {

/// Views of memory of another owner.
struct LocalBatch {
    LocalBatch() = default;
    LocalBatch(const SampleRows& rows) : text(rows) {}  // NOLINT(google-explicit-constructor)

    SampleRows text;  ///< sequences 0: the batch has no text

    /// The samples [first, first + number).
    LocalBatch slice(int64_t first, int64_t number) const { return text.slice(first, number); }
};

}  // namespace coeus
