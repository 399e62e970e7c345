// SPDX-License-Identifier: Apache-2.0
// Sets a field of a model's configuration to another valid value.
#pragma once

#include "coeus/models/decoder_config.hpp"

#include <cstdint>
#include <string>

namespace coeus::test {

inline void change(std::string& value) {
    value += "0";  // a name, or a choice of no layer
}
inline void change(int64_t& value) {
    ++value;
}
inline void change(double& value) {
    value = value == 1 ? 2.0 / 3 : 1.25 * value + 0.5;  // RoPE can rotate two thirds of a head
}
inline void change(bool& value) {
    value = !value;
}
inline void change(NormType& value) {
    value = value == NormType::layer_norm ? NormType::rms_norm : NormType::layer_norm;
}
inline void change(NormPlacement& value) {
    value = value == NormPlacement::after ? NormPlacement::around : NormPlacement::after;
}
inline void change(QkNorm& value) {
    value = value == QkNorm::before_rope ? QkNorm::none : QkNorm::before_rope;
}
inline void change(AttentionBias& value) {
    value = value == AttentionBias::qkv ? AttentionBias::none : AttentionBias::qkv;
}
inline void change(ScoreFunction& value) {
    value = value == ScoreFunction::sigmoid ? ScoreFunction::softmax : ScoreFunction::sigmoid;
}
inline void change(Activation& value) {
    value = value == Activation::silu ? Activation::gelu_tanh : Activation::silu;
}
inline void change(InitialValues& value) {
    value = value == InitialValues::of_2025 ? InitialValues::of_2026 : InitialValues::of_2025;
}
inline void change(RopeLayout& value) {
    value = value == RopeLayout::half_split ? RopeLayout::interleaved : RopeLayout::half_split;
}
inline void change(RopeScaling& value) {
    value = Llama3Scaling{.factor = 3, .original_positions = 64};
}

}  // namespace coeus::test
