// SPDX-License-Identifier: Apache-2.0
#include "coeus/device/device.hpp"

#include "coeus/device/cpu.hpp"

#include <cstring>

namespace coeus {

namespace {

class Host : public Device {
public:
    Backend backend() const override { return Backend::cpu; }
    const std::string& name() const override { return name_; }
    const Memory& memory() const override { return host_memory(); }
    const Memory& staging() const override { return host_memory(); }
    std::unique_ptr<Queue> make_queue() const override { return nullptr; }
    void copy(void* to, const void* from, int64_t bytes) const override {
        std::memcpy(to, from, size_t(bytes));
    }
    int64_t memory_bytes() const override { return memory_limit_bytes(); }
    int64_t peak_bytes() const override { return peak_resident_bytes(); }

private:
    std::string name_ = cpu_name();
};

}  // namespace

const Device& host_device() {
    static const Host host;
    return host;
}

}  // namespace coeus
