// SPDX-License-Identifier: Apache-2.0
#include "../../../src/config/suggestions.hpp"

#include "../../../src/config/option.hpp"
#include "coeus/base/error.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <set>
#include <string_view>

using namespace coeus;
using namespace coeus::config;
using Catch::Contains;

TEST_CASE(
    "suggestions: each word of another trainer names an option that exists, and is not an option itself") {
    std::set<std::string_view> words;
    for (const ForeignName& known : foreign_names()) {
        CAPTURE(known.word);
        CHECK(words.insert(known.word).second);
        const std::string_view option = known.option;
        CHECK((option.empty() ? !std::string_view(known.remark).empty() : find_option(option) != nullptr));
        const std::string text = unknown_option(known.word, "--");
        if (!option.empty()) CHECK_THAT(text, Contains("did you mean --" + std::string(option) + "?"));
    }
    CHECK(words.size() > 40);
}

TEST_CASE("suggestions: words of other trainers are known in any section and with dashes") {
    const auto meant = [](const char* name) {
        const std::string text = unknown_option(name);
        const std::string before = "did you mean ";
        const size_t at = text.find(before);
        return at == std::string::npos ? text
                                       : text.substr(at + before.size(), text.find('?') - at - before.size());
    };
    CHECK(meant("parallelism.tp") == "parallelism.tensor_parallel_degree");
    CHECK(meant("tp") == "parallelism.tensor_parallel_degree");
    CHECK(meant("training.fp16") == "training.mixed_precision_param");
    CHECK(meant("training.max_steps") == "training.steps");
    CHECK(meant("optimizer.learning_rate") == "optimizer.lr");
    CHECK(meant("lr_scheduler.min_lr") == "lr_scheduler.min_lr_factor");
    CHECK(meant("training.grad-clip") == "training.max_norm");
    // the user's section has such an option too
    CHECK(meant("validation.seq_length") == "validation.seq_len");
    CHECK(meant("validation.max_length") == "validation.seq_len");
    CHECK(meant("seq_length") == "training.seq_len");
    CHECK(unknown_option("validation.epochs") ==
          "unknown option validation.epochs; did you mean validation.steps?");
    CHECK(meant("resume") ==
          "unknown option resume; the same command resumes from the newest checkpoint (checkpoint.enable)");
}

TEST_CASE("suggestions: a misspelling is looked for in its section first, and not too far away") {
    CHECK(unknown_option("validation.step") ==
          "unknown option validation.step; did you mean validation.steps?");
    CHECK(unknown_option("training.step") == "unknown option training.step; did you mean training.steps?");
    CHECK(unknown_option("trainng.seq_len") ==
          "unknown option trainng.seq_len; did you mean training.seq_len?");
    CHECK(unknown_option("training.lr") == "unknown option training.lr; did you mean optimizer.lr?");
    CHECK(unknown_option("dry-run", "--", {"dry_run"}) ==
          "unknown option --dry-run; did you mean --dry_run?");
    // a word of three letters has one misspelt letter at most
    CHECK(unknown_option("gpx", "--", {"gpu"}) == "unknown option --gpx; did you mean --gpu?");
    CHECK_THAT(unknown_option("gxy", "--", {"gpu"}), Contains("lists all of them"));
}

TEST_CASE("suggestions: values of other trainers") {
    CHECK(foreign_value("bf16", {"float32", "bfloat16"}) == "bfloat16");
    CHECK(foreign_value("FP32", {"float32", "bfloat16"}) == "float32");
    CHECK(foreign_value("bf16", {"AdamW", "Adam"}).empty());
    for (const char* half : {"fp16", "half"}) {
        CHECK(foreign_value(half, {"bfloat16", "float32", "float16"}) == "float16");
        CHECK(foreign_value(half, {"bfloat16", "float32"}) == "bfloat16");
    }
    CHECK(foreign_value("gpu", {"auto", "cpu", "cuda"}) == "cuda");
}
