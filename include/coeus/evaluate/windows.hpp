// SPDX-License-Identifier: Apache-2.0
// Windows: what a model sees at a time of a request: ids, and for each the id after it if that is scored.
#pragma once

#include "coeus/evaluate/requests.hpp"

#include <cstdint>
#include <vector>

namespace coeus {

struct Window {
    std::vector<int32_t> inputs;
    std::vector<int32_t> labels;  ///< as many; ignored_label if it is not scored
};

/// The window of a request: the last `context` + 1 of its ids, of which the last is not an input.
Window window_of(const Request& request, int64_t context);

/// The windows of a document. The first one scores the first `context` ids. Each later one has `context`
/// inputs and scores the `stride` ids that follow those scored before, or as many as are left. So each id is
/// scored once. stride = context - context_len + 1 in lm-evaluation-harness's rolling windows.
std::vector<Window> windows_of_document(const Request& document, int64_t context, int64_t stride);

/// A window's place in a row.
struct Placed {
    size_t window = 0;
    int64_t first = 0;
};
using PackedRow = std::vector<Placed>;

/// Packs windows of these lengths into rows of `length` places: the longest first, each into the row that it
/// fills best. `alone`: a row has only one window.
std::vector<PackedRow> pack(const std::vector<int64_t>& lengths, int64_t length, bool alone);

}  // namespace coeus
