// SPDX-License-Identifier: Apache-2.0
// The order of a run's samples, as an earlier version read them: a checkpoint stores only how many samples
// were read, so that a run that resumes under another order would repeat some and skip others in silence.
#include "coeus/train/training_data.hpp"

#include "support/catch.hpp"
#include "support/support.hpp"
#include "unit/data/token_files.hpp"

#include <algorithm>

using namespace coeus;
using namespace coeus::test;

namespace {

using Windows = std::vector<int64_t>;
constexpr int64_t length = 3;

// Two files with the same tokens, of 24 windows each.
struct Files {
    TemporaryFolder folder;
    Config config;

    Files() {
        for (const char* name : {"a.h5", "b.h5"}) counting_file(folder / name, 24 * (length + 1));
        config.training.dataset_path = {(folder / "a.h5").string(), (folder / "b.h5").string()};
        config.training.seq_len = length;
        config.training.shuffle = true;
    }
    TrainingData data() const { return {config, 1000, "/no/such/cache", Communicator::self(), 1}; }
};

// The windows of the first samples, by their first tokens.
Windows first_windows(const SampleStream& stream, int64_t count = 32) {
    SampleStream from_start = stream;
    Windows windows;
    for (int64_t i = 0; i < count; ++i) {
        std::vector<int32_t> inputs(length), labels(length), start(length);
        from_start.sample(i, inputs, labels, start);
        CHECK(inputs[0] % (length + 1) == 0);
        windows.push_back(inputs[0] / (length + 1));
    }
    return windows;
}

}  // namespace

TEST_CASE("training data: the order of one file is that of earlier versions") {
    Files files;
    files.config.training.dataset_path.resize(1);
    CHECK(first_windows(files.data().training()) ==
          (Windows{0, 15, 22, 18, 7,  14, 11, 23, 9, 6,  8,  17, 20, 12, 19, 21,
                   2, 4,  13, 1,  10, 5,  3,  16, 4, 19, 10, 11, 16, 22, 3,  13}));
    files.config.debug.seed = 7;
    CHECK(first_windows(files.data().training(), 8) == (Windows{3, 2, 9, 1, 21, 8, 23, 13}));
    files.config.training.shuffle = false;
    CHECK(first_windows(files.data().training(), 4) == (Windows{0, 1, 2, 3}));
}

TEST_CASE("training data: the order of a blend is that of earlier versions") {
    Files files;
    files.config.training.dataset_weights = {0.7, 0.3};
    CHECK(first_windows(files.data().training()) ==
          (Windows{0,  6,  15, 22, 18, 21, 7,  14, 5, 11, 23, 1, 9,  6,  8, 10,
                   17, 20, 9,  12, 19, 3,  21, 2,  4, 8,  13, 1, 13, 10, 5, 11}));
    files.config.training.dataset_weights.clear();
    CHECK(first_windows(files.data().training()) ==
          (Windows{0, 6,  15, 21, 22, 5,  18, 1, 7,  10, 14, 9,  11, 3,  23, 8,
                   9, 13, 6,  11, 8,  12, 17, 0, 20, 4,  12, 22, 19, 16, 21, 17}));
    files.config.validation.enable = true;
    files.config.validation.seq_len = length;
    CHECK(first_windows(files.data().training()) ==
          (Windows{0, 6,  15, 21, 22, 5,  18, 1, 7,  10, 14, 9,  11, 3,  16, 8,
                   9, 13, 6,  11, 8,  12, 17, 0, 20, 4,  12, 22, 19, 16, 21, 17}));
    CHECK(first_windows(*files.data().validation(), 4) == (Windows{23, 23, 23, 23}));
}

TEST_CASE("training data: the sources of a blend are permuted differently") {
    Files files;
    files.config.training.dataset_path.push_back(files.config.training.dataset_path[0]);
    files.config.training.dataset_weights = {1, 1, 1};
    const Windows all = first_windows(files.data().training(), 72);
    std::vector<Windows> of_source(3);
    for (size_t i = 0; i < all.size(); ++i) of_source[i % 3].push_back(all[i]);
    for (size_t k = 0; k < 3; ++k) {
        CHECK(of_source[k] != of_source[(k + 1) % 3]);
        std::ranges::sort(of_source[k]);
        CHECK(of_source[k] == (Windows{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                       12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}));
    }
}
