// SPDX-License-Identifier: Apache-2.0
// Loads the weights of a golden model, and shows its parameters as the files have them.
#pragma once

#include "support/model.hpp"

#include <map>
#include <string>
#include <vector>

namespace coeus::test {

/// Loads the weights of a Hugging Face folder.
void load_golden_weights(TestModel& model, const std::string& folder);

/// All trainable parameters in the layout of the files, under the names used there: the elements of each
/// tensor in order.
std::map<std::string, std::vector<double>> in_golden_layout(const TestModel& model, Tensor Storage::*kind);

/// Compares the gradients with those of `grads.safetensors` in a folder, by name.
void check_golden_gradients(const TestModel& model, const std::string& folder, double each, double all);

}  // namespace coeus::test
