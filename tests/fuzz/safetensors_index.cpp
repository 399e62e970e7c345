// SPDX-License-Identifier: Apache-2.0
// model.safetensors.index.json next to two valid files.
#include "coeus/file/safetensors.hpp"
#include "support/write_safetensors.hpp"
#include "target.hpp"

namespace coeus::fuzz::safetensors_index {

namespace {

void write_files() {
    std::vector<float> a = {1, 2, 3, 4, 5, 6};
    const Tensor tensor(a.data(), Dtype::f32, {2, 3});
    test::write_safetensors((scratch() / "model-1.safetensors").string(), {{"a", tensor}, {"b", tensor}});
    test::write_safetensors((scratch() / "model-2.safetensors").string(), {{"c", tensor}});
}

}  // namespace

void read_input(std::string_view input) {
    static const bool written = (write_files(), true);
    if (!written) return;
    Safetensors::open(write_scratch("model.safetensors.index.json", input));
}

std::vector<std::string> seeds() {
    return {R"({"metadata": {"total_size": 72}, "weight_map": {"a": "model-1.safetensors",)"
            R"( "b": "model-1.safetensors", "c": "model-2.safetensors"}})",
            R"({"weight_map": {}})"};
}

const Target target("safetensors_index", read_input, seeds);

}  // namespace coeus::fuzz::safetensors_index
