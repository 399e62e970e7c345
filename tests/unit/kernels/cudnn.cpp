// SPDX-License-Identifier: Apache-2.0
// Our graph of attention as cuDNN itself judges it, without a GPU: for the properties of an H100 and an A100
// it must find kernels for the whole graph. Skipped if there is no cuDNN 9.8 or newer, or neither a driver
// nor the toolkit's stub of one (cuDNN's engines ask for it).
#include "../../../src/kernels/cuda/cudnn_attention.hpp"
#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/skip.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <optional>

// Functions of the leak sanitizer, if the program has one.
extern "C" {
void __lsan_disable() __attribute__((weak));
void __lsan_enable() __attribute__((weak));
}

using namespace coeus;
using namespace coeus::cuda;

namespace {

constexpr size_t with_device_properties = 90800;

bool has_driver() {
    const char* home = std::getenv("CUDA_HOME");
    for (const std::string& path : {std::string("libcuda.so.1"),
                                    std::string(home ? home : "/usr/local/cuda") + "/lib64/stubs/libcuda.so"})
        if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return true;
    return false;
}

std::optional<CudnnLibrary> library() {
    std::string why = "no libcuda.so.1, and no stub of it";
    if (has_driver())
        for (const std::string& path : cudnn_paths()) try {
                const CudnnLibrary found = load_cudnn(path);
                if (found.get_version() >= with_device_properties) return found;
                why = found.text() + " knows no GPU that is not there";
            } catch (const ConfigError& error) {
                why = error.what();
            }
    test::skip("no cuDNN can be asked: " + why);
    return std::nullopt;
}

/// Memory that a library allocates during this object's life and keeps is not our leak. The library has
/// unloaded parts of itself by the end of the process, so tools/leaks.txt cannot name them.
class KeptByLibrary {
public:
    KeptByLibrary() {
        if (__lsan_disable) __lsan_disable();
    }
    ~KeptByLibrary() {
        if (__lsan_enable) __lsan_enable();
    }
    KeptByLibrary(const KeptByLibrary&) = delete;
    KeptByLibrary& operator=(const KeptByLibrary&) = delete;
};

/// The properties of a GPU in cuDNN's format.
std::string gpu(const char* name, int version, int processors, int64_t shared_bytes) {
    return fmt::format(
        R"({{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
        R"("multiProcessorCount":{},"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
        R"("maxSharedMemoryPerBlockOptin":{},"reservedSharedMemoryPerBlock":1024,)"
        R"("maxSharedMemoryPerSM":{},"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
        R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
        R"("totalGlobalMem":85000000000,"smClockRateKHz":1410000,"memClockRateKHz":1593000,)"
        R"("l2CacheSize":41943040,"cudaDeviceId":0,"deviceVer":{},"driverVer":13000,"deviceName":"{}"}})",
        processors, shared_bytes, shared_bytes + 1024, version, name);
}

}  // namespace

TEST_CASE("cuDNN has kernels for our graph of attention on H100 and A100") {
    const std::optional<CudnnLibrary> cudnn = library();
    if (!cudnn) return;
    const KeptByLibrary kept;
    for (const std::string& properties :
         {gpu("NVIDIA H100 80GB HBM3", 900, 132, 232448), gpu("NVIDIA A100-SXM4-80GB", 800, 108, 166912)}) {
        CudnnDescriptor device(*cudnn, cudnn::Kind::device_properties);
        device.set<char>(cudnn::Attribute::device_properties_json, cudnn::Type::character,
                         {properties.begin(), properties.end()});
        device.finalize();
        // batch, sequence, heads, key/value heads, width; rows of queries, keys and values in one matrix
        for (const auto& [b, s, h, kv, d] : {std::array<int64_t, 5>{1, 4096, 32, 8, 128},
                                             {2, 1024, 12, 12, 64},
                                             {3, 77, 6, 3, 80},
                                             {1, 100, 4, 1, 8},
                                             {2, 512, 8, 4, 256}}) {
            const int64_t ld = (h + 2 * kv) * d;
            const CudnnAttentionGraph graph(*cudnn, nullptr, {b, s, h, kv, d, h * d, ld, ld, ld});
            INFO(properties << "\n" << b << " x " << s << ", " << h << " and " << kv << " heads of " << d);
            CHECK(!graph.configurations(&device).empty());
        }
    }
}

TEST_CASE("cuDNN is asked only for attention in bfloat16 of whole sequences") {
    const Tensor bf(nullptr, Dtype::bf16, {64, 64}), f32(nullptr, Dtype::f32, {64, 64}),
        documents(nullptr, Dtype::i32, {1, 64});
    const AttentionShape s = {1, 64, 1, 1, 64, 0.1};
    AttentionShape part = s, odd = s, wide = s, narrow_values = s, same_values = s;
    part.query_part = {64, 64};
    part.key_part = {128};
    odd.head_dim = 60;
    wide.head_dim = 264;
    narrow_values.value_dim = 32;
    same_values.value_dim = 64;
    CHECK(cudnn_fits(bf, bf, {}, s));
    CHECK(cudnn_fits(bf, bf, {}, same_values));
    CHECK(!cudnn_fits(f32, bf, {}, s));
    CHECK(!cudnn_fits(f32, f32, {}, s));
    CHECK(!cudnn_fits(bf, bf, documents, s));
    for (const AttentionShape& other : {part, odd, wide, narrow_values})
        CHECK(!cudnn_fits(bf, bf, {}, other));
}

TEST_CASE("a missing cuDNN is an error in words") {
    CHECK_THROWS_WITH(load_cudnn("/absent/libcudnn.so.9"),
                      Catch::Contains("cuDNN cannot be loaded: /absent/libcudnn.so.9"));
    CHECK_THROWS_WITH(load_cudnn("libc.so.6"), Catch::Contains("libc.so.6 is not cuDNN 9: it has no"));
}
