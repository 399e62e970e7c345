// SPDX-License-Identifier: Apache-2.0
// Windows of requests and documents, and their places in rows.
#include "coeus/evaluate/windows.hpp"

#include "coeus/base/ignored_label.hpp"
#include "support/catch.hpp"

#include <numeric>

using namespace coeus;

namespace {

constexpr int32_t none = ignored_label;

std::vector<int32_t> ascending(int32_t first, size_t count) {
    std::vector<int32_t> ids(count);
    std::iota(ids.begin(), ids.end(), first);
    return ids;
}

}  // namespace

TEST_CASE("windows: a request that is too long loses its first ids") {
    const Request request = {.context = {1, 2, 3}, .continuation = {4, 5}};
    const Window whole = window_of(request, 4);
    CHECK(whole.inputs == std::vector<int32_t>{1, 2, 3, 4});
    CHECK(whole.labels == std::vector<int32_t>{none, none, 4, 5});
    const Window cut = window_of(request, 3);
    CHECK(cut.inputs == std::vector<int32_t>{2, 3, 4});
    CHECK(cut.labels == std::vector<int32_t>{none, 4, 5});
    const Window least = window_of(request, 2);
    CHECK(least.inputs == std::vector<int32_t>{3, 4});
    CHECK(least.labels == std::vector<int32_t>{4, 5});
}

TEST_CASE("windows: each id of a document is scored once, after the ids before it") {
    for (const int64_t context : {1, 2, 5, 8})
        for (int64_t stride = 1; stride <= context; ++stride)
            for (size_t count = 1; count <= 20; ++count) {
                CAPTURE(context, stride, count);
                const Request document = {.context = {100}, .continuation = ascending(1, count)};
                std::vector<int32_t> scored;
                size_t number = 0;
                for (const Window& window : windows_of_document(document, context, stride)) {
                    REQUIRE(window.inputs.size() == window.labels.size());
                    CHECK(window.inputs.size() <= size_t(context));
                    int64_t labels = 0;
                    for (size_t i = 0; i < window.labels.size(); ++i) {
                        if (window.labels[i] == none) continue;
                        ++labels;
                        scored.push_back(window.labels[i]);
                        CHECK(window.inputs[i] == (window.labels[i] == 1 ? 100 : window.labels[i] - 1));
                    }
                    CHECK(labels <= (number++ == 0 ? context : stride));
                    if (number > 1) CHECK(window.inputs.size() == size_t(context));
                }
                CHECK(scored == document.continuation);
            }
}

TEST_CASE("windows: masked ids of a document are inputs, but are not scored") {
    const Request document = {.context = {9}, .continuation = {1, 2, 3}, .counts = {1, 0, 1}};
    const std::vector<Window> windows = windows_of_document(document, 2, 2);
    REQUIRE(windows.size() == 2);
    CHECK(windows[0].inputs == std::vector<int32_t>{9, 1});
    CHECK(windows[0].labels == std::vector<int32_t>{1, none});
    CHECK(windows[1].inputs == std::vector<int32_t>{1, 2});
    CHECK(windows[1].labels == std::vector<int32_t>{none, 3});
}

TEST_CASE("windows: rows have each window once, without overlaps") {
    const std::vector<int64_t> lengths = {3, 8, 1, 5, 2, 7, 4, 4, 6, 8, 1};
    const std::vector<PackedRow> rows = pack(lengths, 8, false);
    CHECK(rows.size() == 7);  // 49 places
    std::vector<int> times(lengths.size());
    for (const PackedRow& row : rows) {
        std::vector<int> taken(8);
        for (const Placed& placed : row) {
            ++times[placed.window];
            for (int64_t i = 0; i < lengths[placed.window]; ++i) ++taken.at(size_t(placed.first + i));
        }
        for (const int count : taken) CHECK(count <= 1);
    }
    for (const int count : times) CHECK(count == 1);
    for (const PackedRow& row : pack(lengths, 8, true)) CHECK(row.size() == 1);
    CHECK(pack(lengths, 8, true).size() == lengths.size());
}
