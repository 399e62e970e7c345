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
    library.find("cudnnGetVersion", cudnn.get_version);
    if (cudnn.get_version() < oldest)
        throw ConfigError("{} is cuDNN {}; 9.0 or newer is needed", path, cudnn.get_version());
    library.find("cudnnGetErrorString", cudnn.get_error_string);
    library.find("cudnnGetLastErrorString", cudnn.get_last_error_string);
    library.find("cudnnCreate", cudnn.create);
    library.find("cudnnDestroy", cudnn.destroy);
    library.find("cudnnSetStream", cudnn.set_stream);
    library.find("cudnnBackendCreateDescriptor", cudnn.create_descriptor);
    library.find("cudnnBackendDestroyDescriptor", cudnn.destroy_descriptor);
    library.find("cudnnBackendFinalize", cudnn.finalize);
    library.find("cudnnBackendSetAttribute", cudnn.set_attribute);
    library.find("cudnnBackendGetAttribute", cudnn.get_attribute);
    library.find("cudnnBackendExecute", cudnn.execute);
    return cudnn;
}

}  // namespace coeus::cuda
