// SPDX-License-Identifier: Apache-2.0
#include "cudnn.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/shared_library.hpp"
#include "coeus/kernels/cudnn.hpp"

namespace coeus::cuda {

std::string CudnnLibrary::text() const {
    const size_t version = get_version();
    return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void CudnnLibrary::check(int status, const char* call) const {
    if (status == 0) return;
    char more[512] = {};
    get_last_error_string(more, sizeof more);
    throw SystemError(
        fmt::format("cuDNN: {}: {}{}{}", call, get_error_string(status), *more ? ": " : "", more));
}

std::vector<std::string> cudnn_paths() {
    return library_paths("COEUS_CUDNN", "libcudnn.so.9", "nvidia/cudnn/lib");
}

}  // namespace coeus::cuda

namespace coeus {

std::string find_cudnn() {
    std::string why;
    for (const std::string& path : cuda::cudnn_paths()) try {
            return cuda::load_cudnn(path).text();
        } catch (const ConfigError& error) {
            if (why.empty()) why = error.what();
        }
    throw ConfigError("{}", why);
}

}  // namespace coeus
