// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/call_stack.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <memory>

namespace coeus {

namespace {

std::string demangled(const char* name) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(
        abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
    return status == 0 && text ? text.get() : name;
}

// "coeus::Trainer::run() const" -> "coeus::Trainer::run": the parameters of our functions would fill lines.
std::string without_parameters(std::string name) {
    if (name.ends_with(" const")) name.resize(name.size() - 6);
    if (!name.ends_with(')')) return name;
    int depth = 0;
    for (size_t i = name.size(); i-- > 0;) {
        depth += name[i] == ')' ? 1 : name[i] == '(' ? -1 : 0;
        if (depth == 0) return name.substr(0, i);
    }
    return name;
}

}  // namespace

void CallStack::load() {
    CallStack first;
    first.capture();
}

void CallStack::capture() {
    count_ = backtrace(addresses_.data(), int(addresses_.size()));
}

std::vector<CallStack::Call> CallStack::calls() const {
    std::vector<Call> all;
    for (int i = 0; i < count_; ++i) {
        // a return address may already belong to the function after the call
        auto* const address = static_cast<char*>(addresses_[size_t(i)]) - 1;
        Call call;
        Dl_info found;
        if (dladdr(address, &found) != 0) {
            if (found.dli_sname) call.function = without_parameters(demangled(found.dli_sname));
            const std::string object = found.dli_fname ? found.dli_fname : "";
            call.object = object.substr(object.rfind('/') + 1);
            call.offset = uintptr_t(address) - uintptr_t(found.dli_fbase);
        }
        all.push_back(std::move(call));
    }
    return all;
}

std::string CallStack::Call::text() const {
    if (function.empty()) return fmt::format("{} +{:#x}", object.empty() ? "?" : object, offset);
    return fmt::format("{} in {}", function, object);
}

}  // namespace coeus
