// SPDX-License-Identifier: Apache-2.0
// The kernels that a GPU is given, by name.
#pragma once

#include "coeus/device/observers.hpp"

#include <set>
#include <string>

namespace coeus::test {

class Launches : public KernelObserver {
public:
    void begin(const char* /*kernel*/, double /*flops*/, double /*bytes*/) override {}
    void launch(const char* kernel) override { names.insert(kernel); }
    void end() override {}
    std::set<std::string> names;
};

}  // namespace coeus::test
