// SPDX-License-Identifier: Apache-2.0
#include "coeus/evaluate/windows.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/ignored_label.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace coeus {

namespace {

// Context and continuation one after the other, with the label of each id but the last.
struct Whole {
    std::vector<int32_t> ids, labels;

    explicit Whole(const Request& request) : ids(request.context) {
        ids.insert(ids.end(), request.continuation.begin(), request.continuation.end());
        labels.assign(request.context.size() - 1, ignored_label);
        for (size_t i = 0; i < request.continuation.size(); ++i) {
            const bool counts = request.counts.empty() || request.counts[i] != 0;
            labels.push_back(counts ? request.continuation[i] : ignored_label);
        }
    }
    // The inputs [first, end), of which those before `scored` have no label.
    Window window(size_t first, size_t scored, size_t end) const {
        const auto part = [&](const std::vector<int32_t>& all) {
            return std::vector<int32_t>(all.begin() + int64_t(first), all.begin() + int64_t(end));
        };
        Window window = {part(ids), part(labels)};
        std::fill_n(window.labels.begin(), scored - first, ignored_label);
        return window;
    }
};

}  // namespace

Window window_of(const Request& request, int64_t context) {
    const Whole whole(request);
    const size_t end = whole.labels.size(), most = size_t(context), first = end > most ? end - most : 0;
    return whole.window(first, first, end);
}

std::vector<Window> windows_of_document(const Request& document, int64_t context, int64_t stride) {
    require(document.context.size() == 1 && stride >= 1 && stride <= context,
            "a document has one id before it, and windows overlap by less than a context");
    const Whole whole(document);
    const size_t count = whole.labels.size(), most = size_t(context);
    std::vector<Window> windows;
    for (size_t scored = 0; scored < count;) {
        const size_t end = std::min(count, scored == 0 ? most : scored + size_t(stride));
        windows.push_back(whole.window(end > most ? end - most : 0, scored, end));
        scored = end;
    }
    return windows;
}

std::vector<PackedRow> pack(const std::vector<int64_t>& lengths, int64_t length, bool alone) {
    std::vector<size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
    std::vector<PackedRow> rows;
    std::multimap<int64_t, size_t> left;  // places that are left in rows
    for (const size_t window : order) {
        require(lengths[window] <= length, "a window is longer than a row");
        const auto best = alone ? left.end() : left.lower_bound(lengths[window]);
        const size_t row = best == left.end() ? rows.size() : best->second;
        const int64_t room = best == left.end() ? length : best->first;
        if (best == left.end())
            rows.emplace_back();
        else
            left.erase(best);
        rows[row].push_back({window, length - room});
        if (room > lengths[window]) left.emplace(room - lengths[window], row);
    }
    return rows;
}

}  // namespace coeus
