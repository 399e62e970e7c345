// SPDX-License-Identifier: Apache-2.0
// The golden Llama models, ten steps each on a GPU.
#include "program/golden_run.hpp"
#include "support/catch.hpp"

using namespace coeus;
using namespace coeus::test;

namespace fs = std::filesystem;

TEST_CASE("GPU: ten steps from a Hugging Face folder give the golden values", "[golden]") {
    struct Case {
        const char* name;
        Arguments arguments;
    };
    const Case cases[] = {{"llama2_mha", {"--model.name=llama2"}},
                          {"llama3_gqa", {}},
                          {"llama3_docmask", {"--training.document_mask"}},
                          {"llama3_tied", {}}};
    for (const Case& c : cases) {
        CAPTURE(c.name);
        const fs::path model = golden(std::string("models/") + c.name);
        if (model.empty()) return;
        const Arguments on_gpu = c.arguments + Arguments{"--device=cuda"};
        check_golden_run(model, model, on_gpu, 0, golden_float32);
        // with float32 master weights; the tolerance of the loss is that of tests/golden/models.cpp
        check_golden_run(model, model, on_gpu + Arguments{"--training.mixed_precision_param=bfloat16"}, 0,
                         {0.01, 0.03, 1e-12});
    }
}
