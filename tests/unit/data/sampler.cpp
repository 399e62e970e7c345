// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/sampler.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/ignored_label.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "token_files.hpp"

#include <algorithm>
#include <set>

using namespace coeus;
using namespace coeus::test;

namespace {

struct Sample {
    std::vector<int32_t> inputs, labels, document_start;
    int64_t valid;
};

Sample sample_of(const Sampler& sampler, int64_t i) {
    const auto n = size_t(sampler.seq_len());
    Sample s{std::vector<int32_t>(n, -7), std::vector<int32_t>(n, -7), std::vector<int32_t>(n, -7), 0};
    s.valid = sampler.sample(i, s.inputs, s.labels, s.document_start);
    return s;
}

std::vector<int64_t> epoch_of(const Sampler& sampler, int64_t epoch) {
    std::vector<int64_t> windows;
    for (int64_t i = 0; i < sampler.num_windows(); ++i)
        windows.push_back(sampler.window_of(epoch * sampler.num_windows() + i));
    return windows;
}

std::vector<int64_t> counting(int64_t n) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < n; ++i) all.push_back(i);
    return all;
}

}  // namespace

TEST_CASE("sampler: consecutive windows of seq_len + 1, then again from the start") {
    const TemporaryFolder folder;
    const TokenFile file(counting_file(folder / "a.h5", 19));
    const Sampler sampler(file, {.seq_len = 4});
    CHECK(sampler.num_windows() == 3);
    CHECK(sample_of(sampler, 1).inputs == std::vector<int32_t>{5, 6, 7, 8});
    CHECK(sample_of(sampler, 1).labels == std::vector<int32_t>{6, 7, 8, 9});
    CHECK(sample_of(sampler, 2).labels == std::vector<int32_t>{11, 12, 13, 14});
    CHECK(sample_of(sampler, 3).inputs == std::vector<int32_t>{0, 1, 2, 3});
    CHECK(sample_of(sampler, 1).valid == 4);
    const Sampler whole(file, {.seq_len = 18});
    CHECK(whole.num_windows() == 1);
    CHECK(sample_of(whole, 5).labels.back() == 18);
    const Sampler one(file, {.seq_len = 1});
    CHECK(sample_of(one, 8).inputs == std::vector<int32_t>{16});
    CHECK(sample_of(one, 8).labels == std::vector<int32_t>{17});
}

TEST_CASE("sampler: shuffling permutes all windows, differently in each epoch and for each seed") {
    const TemporaryFolder folder;
    const TokenFile file(counting_file(folder / "a.h5", 3 * 57 + 2));
    const Sampler sampler(file, {.seq_len = 2, .seed = 5, .shuffle = true});
    std::set<std::vector<int64_t>> orders;
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
        auto order = epoch_of(sampler, epoch);
        orders.insert(order);
        std::sort(order.begin(), order.end());
        CHECK(order == counting(57));
    }
    CHECK(orders.size() == 4);
    CHECK(epoch_of(Sampler(file, {.seq_len = 2, .seed = 5, .shuffle = true}), 2) == epoch_of(sampler, 2));
    CHECK(epoch_of(Sampler(file, {.seq_len = 2, .seed = 6, .shuffle = true}), 2) != epoch_of(sampler, 2));
}

TEST_CASE("sampler: every 100th window is held out") {
    const TemporaryFolder folder;
    for (const int64_t windows : {2, 99, 100, 101, 199, 200, 350}) {
        const TokenFile file(counting_file(folder / "a.h5", windows * 2 + 1));
        const Sampler training(file, {.seq_len = 1, .subset = Subset::training});
        const Sampler held_out(file, {.seq_len = 1, .subset = Subset::held_out});
        const auto first = epoch_of(training, 0), second = epoch_of(held_out, 0);
        std::vector<int64_t> expected;
        for (int64_t w = 99; w < windows; w += 100) expected.push_back(w);
        if (windows < 100) expected = {windows - 1};
        CHECK(second == expected);
        CHECK(std::is_sorted(first.begin(), first.end()));
        std::vector<int64_t> both = first;
        both.insert(both.end(), second.begin(), second.end());
        std::sort(both.begin(), both.end());
        CHECK(both == counting(windows));
        const Sampler shuffled(file, {.seq_len = 1, .seed = 1, .shuffle = true, .subset = Subset::training});
        auto order = epoch_of(shuffled, 3);
        std::sort(order.begin(), order.end());
        CHECK(order == first);
    }
}

TEST_CASE("sampler: for each token, where its document begins in the window") {
    const TemporaryFolder folder;
    const std::vector<uint64_t> begins = {1, 6, 6, 7, 12, 20};
    const TokenFile file(counting_file(folder / "a.h5", 25, begins));
    for (const int64_t length : {1, 4, 24}) {
        const Sampler sampler(file, {.seq_len = length});
        for (int64_t w = 0; w < sampler.num_windows(); ++w) {
            const auto start = sample_of(sampler, w).document_start;
            for (int64_t t = 0; t < length; ++t) {
                const int64_t position = w * (length + 1) + t;
                int64_t begin = 0;
                for (const uint64_t b : begins)
                    if (int64_t(b) <= position) begin = int64_t(b);
                CHECK(start[size_t(t)] == std::max<int64_t>(0, begin - w * (length + 1)));
            }
        }
    }
}

TEST_CASE(
    "sampler: a token beyond the vocabulary is found in inputs, in labels, and where the mask hides it") {
    const TemporaryFolder folder;
    // the token at position i is i; the last label of window 1 is at 7
    const TokenFile file(counting_file(folder / "a.h5", 12, {}, std::vector<uint8_t>(12, 0)));
    for (const int64_t vocab : {0, 8, 12}) {
        const Sampler sampler(file, {.seq_len = 3, .vocab_size = vocab});
        CHECK_NOTHROW(sample_of(sampler, 1));
    }
    for (const int64_t vocab : {5, 7}) {
        const Sampler sampler(file, {.seq_len = 3, .vocab_size = vocab});
        CHECK_NOTHROW(sample_of(sampler, 0));
        CHECK_THROWS_WITH(sample_of(sampler, 1),
                          Catch::Contains(fmt::format("token {0} at position {0} is not in the model's "
                                                      "vocabulary of {0}",
                                                      vocab)));
    }
}

TEST_CASE("sampler: labels that the mask excludes") {
    const TemporaryFolder folder;
    const TokenFile file(counting_file(folder / "a.h5", 8, {}, {0, 0, 1, 1, 1, 0, 1, 0}));
    const Sampler sampler(file, {.seq_len = 3});
    const Sample first = sample_of(sampler, 0), second = sample_of(sampler, 1);
    CHECK(first.inputs == std::vector<int32_t>{0, 1, 2});
    CHECK(first.labels == std::vector<int32_t>{ignored_label, 2, 3});
    CHECK(first.valid == 2);
    CHECK(second.labels == std::vector<int32_t>{ignored_label, 6, ignored_label});
    CHECK(second.valid == 1);
}

TEST_CASE("sampler: too little data is reported with the numbers") {
    const TemporaryFolder folder;
    const auto path = counting_file(folder / "a.h5", 1500);
    const TokenFile file(path);
    CHECK_THROWS_WITH(
        Sampler(file, {.seq_len = 2048}),
        path.string() +
            ": 1,500 tokens are fewer than one window of seq_len + 1 = 2,049; use more data, or "
            "a training.seq_len of at most 1,499");
    CHECK_NOTHROW(Sampler(file, {.seq_len = 1499}));
    CHECK_THROWS_WITH(
        Sampler(file, {.seq_len = 1499, .subset = Subset::held_out}),
        path.string() +
            ": 1,500 tokens make only one window of seq_len + 1 = 1,500, so none can be held out for "
            "validation; use more data, or separate validation data (validation.dataset_path)");
    CHECK_THROWS_WITH(Sampler(file, {.seq_len = 0}), "training.seq_len must be at least 1, but is 0");
}

TEST_CASE("samples of a step are divided among the data ranks in order") {
    for (const int64_t ranks : {1, 2, 3, 6}) {
        int64_t next = 5 * 6;
        for (int64_t rank = 0; rank < ranks; ++rank) {
            const SampleRange range = samples_of(5, 6, rank, ranks);
            CHECK(range.first == next);
            next += range.count;
        }
        CHECK(next == 6 * 6);
    }
    CHECK_THROWS_AS(samples_of(0, 6, 0, 4), LogicError);
}
