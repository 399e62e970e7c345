// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/device/device.hpp"
#include "coeus/device/named_range.hpp"
#include "coeus/device/peers.hpp"

namespace coeus {

int visible_gpus() {
    return 0;
}

bool built_with_cuda() {
    return false;
}

std::string why_no_gpu() {
    return "this program was built without CUDA (make cuda builds one with it)";
}

bool cuda_fails() {
    return false;
}

CudaVersions cuda_versions() {
    return {};
}

std::string gpu_bus_id(int /*number*/) {
    throw SystemError(why_no_gpu());
}

std::unique_ptr<Device> open_gpu(int /*number*/, const GpuOptions& /*options*/) {
    throw SystemError(why_no_gpu());
}

std::unique_ptr<Peers> peers_of(const Device& /*gpu*/) {
    throw SystemError(why_no_gpu());
}

void NamedRange::begin(const char* /*name*/) {}
void NamedRange::end() {}

}  // namespace coeus
