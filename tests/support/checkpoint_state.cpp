// SPDX-License-Identifier: Apache-2.0
#include "support/checkpoint_state.hpp"

#include <cstring>

namespace coeus::test {

CheckpointState::CheckpointState(Dtype dtype, double start, int64_t vocabulary) {
    for (const char* group : {"model/", "optimizer/exp_avg/", "optimizer/exp_avg_sq/"}) {
        add(group + std::string("tok_embeddings.weight"), dtype, {vocabulary, 4}, start += 1);
        add(group + std::string("layers.0.attention.wq.weight"), dtype, {4, 4}, start += 1);
        add(group + std::string("norm.weight"), dtype, {4}, start += 1);
    }
}

void CheckpointState::add(const std::string& path, Dtype dtype, const Shape& shape, double start) {
    const Tensor t = memory.emplace_back(dtype, shape);
    for (int64_t i = 0; i < t.count(); ++i) set_element(t, i, start + double(i) / 7);
    tensors.push_back({.path = path, .shape = shape, .dtype = dtype, .blocks = {{t}}});
}

std::string CheckpointState::bytes() const {
    std::string all;
    for (const auto& t : tensors) {
        const Tensor& local = t.blocks.front().local;
        all.append(static_cast<const char*>(local.data), size_t(local.bytes()));
    }
    return all;
}

void CheckpointState::set_bytes(const std::string& all) {
    size_t at = 0;
    for (const auto& t : tensors) {
        const Tensor& local = t.blocks.front().local;
        std::memcpy(local.data, all.data() + at, size_t(local.bytes()));
        at += size_t(local.bytes());
    }
}

TrainRecord record_of(int64_t step) {
    return {.step = step,
            .tokens_seen = step * 4096,
            .seed = 42,
            .sample = step * 8,
            .deck = "[training]\nsteps = 10\n",
            .version = "0.1.0",
            .model = R"({"name": "llama3"})",
            .guards = R"({"loss": [0.1]})"};
}

}  // namespace coeus::test
