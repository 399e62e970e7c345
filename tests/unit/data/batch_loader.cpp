// SPDX-License-Identifier: Apache-2.0
#include "coeus/data/batch_loader.hpp"

#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"
#include "token_files.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>

using namespace coeus;
using namespace coeus::test;

TEST_CASE("batch loader: the samples of each step, from any sample, on any rank") {
    const TemporaryFolder folder;
    const TokenFile file(counting_file(folder / "a.h5", 4 * 23, {9, 30}, std::vector<uint8_t>(4 * 23, 1)));
    const Sampler sampler(file, {.seq_len = 3, .seed = 3, .shuffle = true});
    for (const int64_t first_sample : {0, 1, 40}) {
        for (int64_t rank = 0; rank < 2; ++rank) {
            BatchLoader loader(sampler,
                               {.global_batch = 4, .rank = rank, .ranks = 2, .first_sample = first_sample});
            const int32_t* buffers[2] = {};
            for (int64_t step = 0; step < 9; ++step) {
                const StepBatch batch = loader.next().value();
                CHECK(batch.first_sample == first_sample + step * 4);
                CHECK(batch.samples.text.sequences == 2);
                CHECK(batch.samples.text.seq_len == 3);
                CHECK(batch.counted == 6);
                CHECK(batch.seconds_waited >= 0);
                REQUIRE(batch.samples.text.tokens.size() == 6);
                for (int64_t row = 0; row < 2; ++row) {
                    std::vector<int32_t> inputs(3), labels(3), start(3);
                    sampler.sample(first_sample + step * 4 + rank * 2 + row, inputs, labels, start);
                    const auto same = [&](std::span<const int32_t> all,
                                          const std::vector<int32_t>& expected) {
                        return std::equal(expected.begin(), expected.end(), all.begin() + row * 3);
                    };
                    CHECK(same(batch.samples.text.tokens, inputs));
                    CHECK(same(batch.samples.text.labels, labels));
                    CHECK(same(batch.samples.text.document_start, start));
                }
                // two buffers take turns, no other is allocated
                const int32_t*& buffer = buffers[step % 2];
                if (!buffer) buffer = batch.samples.text.tokens.data();
                CHECK(buffer == batch.samples.text.tokens.data());
            }
        }
    }
}

TEST_CASE("batch loader: a batch stays valid until the next call") {
    const TemporaryFolder folder;
    const TokenFile file(counting_file(folder / "a.h5", 3000));
    const Sampler sampler(file, {.seq_len = 2});
    BatchLoader loader(sampler, {.global_batch = 1});
    for (int32_t step = 0; step < 900; ++step) {
        const StepBatch batch = loader.next().value();
        std::this_thread::yield();
        REQUIRE(batch.samples.text.tokens[0] == 3 * step);
        REQUIRE(batch.samples.text.labels[1] == 3 * step + 2);
    }
}

TEST_CASE("batch loader: an error on its thread is thrown by next") {
    const TemporaryFolder folder;
    const TokenFile file(counting_file(folder / "a.h5", 30));
    const Sampler sampler(file, {.seq_len = 2});
    BatchLoader loader(sampler, {.global_batch = 1, .first_sample = -3});
    CHECK_THROWS_AS(loader.next(), LogicError);
    CHECK_THROWS_AS(loader.next(), LogicError);
    CHECK_THROWS_AS(BatchLoader(sampler, {.global_batch = 3, .rank = 0, .ranks = 2}), LogicError);
}

TEST_CASE("batch loader: it can end without having been asked for a batch") {
    const TemporaryFolder folder;
    const TokenFile file(counting_file(folder / "a.h5", 30));
    const Sampler sampler(file, {.seq_len = 2});
    const auto threads = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
    };
    constexpr int loaders = 40;
    const auto before = threads();
    for (int i = 0; i < loaders; ++i) BatchLoader(sampler, {.global_batch = 2});
    // the kernel may still show some of the ended threads
    CHECK(threads() - before < loaders / 2);
}
