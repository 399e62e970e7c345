// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "coeus/base/shared_library.hpp"
#include "cudnn.hpp"

namespace coeus::cuda {

namespace {

constexpr size_t oldest = 90000;

}  // namespace

CudnnLibrary load_cudnn(const std::string& path) {
    const SharedLibrary library(path, "cuDNN", "9");
    CudnnLibrary cudnn;
    const auto find = [&](const char* name, auto*& function) { library.find(name, function); };
    find("cudnnGetVersion", cudnn.get_version);
    if (cudnn.get_version() < oldest)
        throw ConfigError("{} is cuDNN {}; 9.0 or newer is needed", path, cudnn.get_version());
    find("cudnnGetErrorString", cudnn.get_error_string);
    find("cudnnGetLastErrorString", cudnn.get_last_error_string);
    find("cudnnCreate", cudnn.create);
    find("cudnnDestroy", cudnn.destroy);
    find("cudnnSetStream", cudnn.set_stream);
    find("cudnnBackendCreateDescriptor", cudnn.create_descriptor);
    find("cudnnBackendDestroyDescriptor", cudnn.destroy_descriptor);
    find("cudnnBackendFinalize", cudnn.finalize);
    find("cudnnBackendSetAttribute", cudnn.set_attribute);
    find("cudnnBackendGetAttribute", cudnn.get_attribute);
    find("cudnnBackendExecute", cudnn.execute);
    return cudnn;
}

}  // namespace coeus::cuda
