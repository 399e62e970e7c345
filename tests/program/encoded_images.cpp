// SPDX-License-Identifier: Apache-2.0
// Files of encoded images as the program sees them: `coeus info`, and a language model that is to read one.
#include "support/encoded_images.hpp"

#include "program/tiny_run.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <filesystem>
#include <limits>

using namespace coeus;
using namespace coeus::test;
using Catch::Contains;

namespace {

Outcome info_of_images(const Arguments& arguments, int exit_code) {
    Outcome outcome = run_coeus(Arguments{"info"} + arguments);
    INFO(outcome.output);
    CHECK(outcome.exit_code == exit_code);
    CHECK(count_of(" - error - ", outcome.output) == (exit_code == 0 ? 0 : 1));
    return outcome;
}

constexpr EncodedShape images_of_program = {
    .channels = 16, .height = 4, .width = 4, .text_tokens = 3, .text_width = 5, .pooled_width = 7};

}  // namespace

TEST_CASE("info: encoded images") {
    const std::string text =
        info_of_images({paths::source() + "/tests/data/images/images.h5", "--verify"}, 0).output;
    for (const char* line : {
             "images.h5: encoded images, 11.1 KiB\n",
             "  samples        3, 2 crops each\n",
             "  images         32 x 16 pixels\n",
             "  latents        2 x 2 x 4 (float16), drawn around their mean\n",
             "  codec          ae, scale 0.3611, shift 0.1159\n",
             "  text           2 tokens x 3 (bfloat16), pooled 5 (float32)\n",
             "  encoders       words of a test\n",
             "  empty prompt   yes\n",
             "  times          given\n",
             "  noise          given\n",
             "  a sample       168 B\n",
             "  caption 0      a red circle\n",
             "  caption 1      zwei Kreise – ein Quadrat\n",
             "  caption 2      (empty)\n",
             "  verified       all numbers are finite\n",
         })
        CHECK_THAT(text, Contains(line));

    const TemporaryFolder folder;
    EncodedImages images = encoded_images(2, images_of_program);
    for (const char* name : {"latents/logvar", "t5_empty"}) images.arrays.erase(name);
    const std::string plain = info_of_images({images.write(folder / "a.h5").string()}, 0).output;
    CHECK_THAT(plain, Contains("  samples        2\n") && Contains("(float32), as they are\n") &&
                          Contains("  empty prompt   no, so no prompt can be dropped\n") &&
                          Contains("  times          drawn\n") && !Contains("caption"));
}

TEST_CASE("info: damaged files of encoded images, with one error each") {
    const TemporaryFolder folder;
    EncodedImages images = encoded_images(40, images_of_program);
    const std::string path = folder / "a.h5";
    images.arrays["clip"].values[9] = std::numeric_limits<float>::quiet_NaN();
    images.write(path);
    CHECK_THAT(info_of_images({path, "--verify"}, 2).output,
               Contains("a.h5: /clip[1] is damaged: it contains NaN; encode this sample again"));
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4096);
    CHECK_THAT(info_of_images({path}, 2).output, Contains("a.h5 is truncated"));
    images.arrays.erase("t5");
    images.write(path);
    CHECK_THAT(info_of_images({path}, 2).output, Contains("a.h5 has no dataset /t5"));
}

TEST_CASE("encoded images: a language model refuses them as data") {
    const TemporaryFolder folder;
    const std::string path = encoded_images(2, images_of_program).write(folder / "a.h5");
    const Outcome outcome = run_coeus(
        {"train", "--training.dataset_path=" + path, "--job.dump_folder=" + (folder / "run").string()});
    CHECK(outcome.exit_code == 2);
    CHECK_THAT(outcome.output, Contains("a.h5 has encoded images, which a language model cannot read"));
}
