// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/error.hpp"
#include "cudnn.hpp"

#include <dlfcn.h>

namespace coeus::cuda {

namespace {

constexpr size_t oldest = 90000;

template <class Function>
void look_up(void* library, const std::string& path, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    if (!function) throw ConfigError("{}: is not cuDNN 9: it has no {}", path, name);
}

}  // namespace

CudnnLibrary load_cudnn(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw ConfigError("cuDNN cannot be loaded: {}", dlerror());
    CudnnLibrary cudnn;
    const auto find = [&](const char* name, auto*& function) { look_up(library, path, name, function); };
    find("cudnnGetVersion", cudnn.get_version);
    if (cudnn.get_version() < oldest)
        throw ConfigError("{}: is cuDNN {}; 9.0 or newer is needed", path, cudnn.get_version());
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
