// SPDX-License-Identifier: Apache-2.0
// A safetensors file: its header and, if that is valid, its elements.
#include "coeus/file/safetensors.hpp"

#include "coeus/device/memory.hpp"
#include "support/write_safetensors.hpp"
#include "target.hpp"

namespace coeus::fuzz::safetensors {

void read_input(std::string_view input) {
    const Safetensors file = Safetensors::open(write_scratch("x.safetensors", input));
    for (const std::string& name : file.names()) {
        const Safetensors::Entry& entry = file.entry(name);
        const OwnedTensor all(entry.dtype, entry.shape);
        file.read(name, all);
    }
}

std::vector<std::string> seeds() {
    std::vector<float> a = {1, 2, 3, 4, 5, 6};
    std::vector<bf16> b = {bf16(1.5f), bf16(-2.f)};
    std::vector<double> c = {0.1};
    const std::string path = (scratch() / "seed.safetensors").string();
    std::vector<std::string> all;
    test::write_safetensors(path, {});
    all.push_back(read_scratch("seed.safetensors"));
    test::write_safetensors(path,
                            {{"a", Tensor(a.data(), Dtype::f32, {2, 3})},
                             {"b", Tensor(b.data(), Dtype::bf16, {2})},
                             {"c", Tensor(c.data(), Dtype::f64, {1, 1, 1, 1})}},
                            {{"format", "pt"}});
    all.push_back(read_scratch("seed.safetensors"));
    return all;
}

const Target target("safetensors", read_input, seeds);

}  // namespace coeus::fuzz::safetensors
