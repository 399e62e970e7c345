// SPDX-License-Identifier: Apache-2.0
// What tests of FSDP count: allocated memory and called kernels.
#pragma once

#include "coeus/kernels/kernels.hpp"
#include "support/support.hpp"

#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace coeus::test {

using Values = std::vector<double>;

// The host, with a record of the memory allocated on it.
class CountedHost : public Device, public Memory {
public:
    mutable std::map<std::string, int64_t> taken;

    std::byte* take(int64_t bytes, const std::string& what) const override {
        taken[what] += bytes;
        return host_memory().take(bytes, what);
    }
    void give_back(std::byte* data, int64_t bytes) const override { host_memory().give_back(data, bytes); }
    Backend backend() const override { return Backend::cpu; }
    const std::string& name() const override { return host_device().name(); }
    const Memory& memory() const override { return *this; }
    const Memory& staging() const override { return *this; }
    std::unique_ptr<Queue> make_queue(Priority priority) const override {
        return host_device().make_queue(priority);
    }
    std::unique_ptr<Event> make_event() const override { return host_device().make_event(); }
    void copy(void* to, const void* from, int64_t bytes) const override {
        host_device().copy(to, from, bytes);
    }
    int64_t memory_bytes() const override { return host_device().memory_bytes(); }
    int64_t peak_bytes() const override { return host_device().peak_bytes(); }
};

// One cast of owned rows for each gathered storage, one addition for each reduced one.
struct Calls {
    int casts = 0, adds = 0, zeros = 0;
    bool adding_fails = false;
};
inline Calls calls;

inline Kernels counting_kernels() {
    Kernels kernels = cpu_kernels();
    kernels.cast = [](Exec& exec, Tensor out, Tensor a) {
        ++calls.casts;
        cpu_kernels().cast(exec, out, a);
    };
    kernels.add = [](Exec& exec, Tensor out, Tensor a) {
        if (calls.adding_fails) throw SystemError("the link is down");
        ++calls.adds;
        cpu_kernels().add(exec, out, a);
    };
    kernels.zero = [](Exec& exec, Tensor out) {
        ++calls.zeros;
        cpu_kernels().zero(exec, out);
    };
    return kernels;
}

inline void fill(const Tensor& t, double first) {
    for (int64_t i = 0; i < t.count(); ++i) set_element(t, i, first + double(i));
}
inline Values counted(double first, size_t count) {
    Values all_of_them(count);
    std::iota(all_of_them.begin(), all_of_them.end(), first);
    return all_of_them;
}

}  // namespace coeus::test
