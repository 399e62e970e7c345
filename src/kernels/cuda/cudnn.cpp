// SPDX-License-Identifier: Apache-2.0
#include "cudnn.hpp"

#include "coeus/base/error.hpp"

#include <cstdlib>
#include <filesystem>

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
    if (const char* path = std::getenv("COEUS_CUDNN"); path && *path) return {path};
    std::vector<std::string> paths = {"libcudnn.so.9"};
    const char* environment = std::getenv("VIRTUAL_ENV");
    std::error_code ignored;
    if (environment && *environment)
        for (const auto& python :
             std::filesystem::directory_iterator(std::string(environment) + "/lib", ignored))
            if (const auto path = python.path() / "site-packages/nvidia/cudnn/lib/libcudnn.so.9";
                std::filesystem::exists(path, ignored))
                paths.push_back(path.string());
    return paths;
}

}  // namespace coeus::cuda
