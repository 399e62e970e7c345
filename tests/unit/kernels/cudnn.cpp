// SPDX-License-Identifier: Apache-2.0
// Our graphs of attention as cuDNN itself judges them, without a GPU: for the properties of an A100, H100,
// H200 and B200 it must find kernels for the whole graph that need no more workspace than is planned. Skipped
// if there is no cuDNN 9.8 or newer, or neither a driver nor the toolkit's stub of one (cuDNN's engines ask
// for it).
#include "coeus/kernels/cudnn.hpp"

#include "../../../src/kernels/cuda/attention/score_blocks.hpp"
#include "../../../src/kernels/cuda/libraries/cudnn_attention.hpp"
#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/part.hpp"
#include "support/skip.hpp"

#include <array>
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

namespace {

struct Gpu {
    const char* name;
    int architecture;
    std::string properties;
};
std::vector<Gpu> gpus() {
    return {{"A100", 80, gpu("NVIDIA A100-SXM4-80GB", 800, 108, 166912)},
            {"H100", 90, gpu("NVIDIA H100 80GB HBM3", 900, 132, 232448)},
            {"H200", 90, gpu("NVIDIA H200", 900, 132, 232448)},
            {"B200", 100, gpu("NVIDIA B200", 1000, 148, 232448)}};
}

// Sequences, tokens, heads, key/value heads, width.
std::vector<AttentionShape> shapes() {
    return {{1, 8192, 32, 8, 128},  {4, 1024, 32, 8, 128}, {1, 4096, 32, 32, 128},
            {1, 16384, 32, 8, 128}, {2, 1024, 12, 12, 64}, {3, 77, 6, 3, 80},
            {1, 100, 4, 1, 8},      {2, 2049, 8, 2, 128},  {2, 512, 8, 4, 256}};
}
// What a rank of 4 computes with the keys of an earlier rank, and of a later one.
std::vector<AttentionShape> parts() {
    AttentionShape earlier = {2, 2048, 32, 8, 128}, later = earlier;
    earlier.query_part = later.query_part = {2048, 1024, 4096};
    earlier.key_part = {2048, 0, 6144};
    later.key_part = {2048, 2048, 2048};
    return {earlier, later};
}

CudnnDescriptor device_of(const CudnnLibrary& cudnn, const Gpu& gpu) {
    CudnnDescriptor device(cudnn, cudnn::Kind::device_properties);
    device.set<char>(cudnn::Attribute::device_properties_json, cudnn::Type::character,
                     {gpu.properties.begin(), gpu.properties.end()});
    device.finalize();
    return device;
}

int64_t workspace_of(const CudnnLibrary& cudnn, const CudnnDescriptor& configuration) {
    int64_t bytes = -1, count = 0;
    cudnn.check(cudnn.get_attribute(configuration.get(), cudnn::Attribute::engine_config_workspace,
                                    cudnn::Type::int64, 1, &count, &bytes),
                "cudnnBackendGetAttribute");
    return bytes;
}

// Finalizes a plan for a GPU that is not there. cuDNN compiles the kernel, and then fails when it loads it
// into the GPU.
std::string finalize_plan(const CudnnLibrary& cudnn, const CudnnDescriptor& configuration,
                          const CudnnDescriptor& device) {
    try {
        CudnnDescriptor plan(cudnn, cudnn::Kind::plan);
        plan.set(cudnn::Attribute::plan_engine_config, configuration)
            .set(cudnn::Attribute::plan_device_properties, device);
        plan.finalize();
    } catch (const SystemError& error) {
        return error.what();
    }
    return "";
}

// All kernels for a graph need at most `most` bytes, and none is noted as not deterministic. With `compiles`,
// which takes about a second each, all are compiled. Returns whether there was a compiler, or no need of one.
bool check_kernels(const CudnnLibrary& cudnn, const CudnnGraph& graph, const CudnnDescriptor& device,
                   int64_t most, bool compiles, const std::string& text) {
    const std::vector<CudnnDescriptor> configurations = graph.configurations(&device);
    INFO(text);
    CHECK_FALSE(configurations.empty());
    bool has_compiler = true;
    for (const CudnnDescriptor& configuration : configurations) {
        const CudnnEngine engine = engine_of(cudnn, configuration);
        const int64_t bytes = workspace_of(cudnn, configuration);
        fmt::print("{}: {}, {} bytes of workspace, at most {}\n", text, engine.text(), bytes, most);
        CHECK(bytes >= 0);
        CHECK(bytes <= most);
        CHECK(engine.is_deterministic());
        if (!compiles) continue;
        const std::string error = finalize_plan(cudnn, configuration, device);
        const bool without_compiler = error.find("nvrtc") != std::string::npos;
        has_compiler = has_compiler && !without_compiler;
        CHECK((without_compiler || error.empty() || error.find("cuLibraryLoadData") != std::string::npos));
    }
    return has_compiler;
}

}  // namespace

TEST_CASE("cuDNN has kernels for our graphs of attention on A100, H100, H200 and B200") {
    const std::optional<CudnnLibrary> cudnn = library();
    if (!cudnn) return;
    const KeptByLibrary kept;
    // each shape is compiled for one of the GPUs
    const int one_of = int(gpus().size());
    test::Part compiled("kernels of cuDNN", 1, {one_of, one_of});
    bool has_compiler = true;
    std::vector<AttentionShape> all = shapes();
    for (const AttentionShape& s : parts()) all.push_back(s);
    all.push_back({2, 512, 24, 24, 128});  // full attention of an image transformer
    all.back().causal = false;
    for (const AttentionShape& s : all)
        for (const ScoreBlock& block : blocks_of(s))
            for (const Gpu& gpu : gpus()) {
                const CudnnDescriptor device = device_of(*cudnn, gpu);
                // rows of queries, keys and values in one matrix
                const int64_t width = s.heads * s.head_dim, ld = width + 2 * s.kv_heads * s.head_dim,
                              keys = s.keys().count;
                const std::string text = fmt::format(
                    "{}, {} x {} and {}{}, {} and {} heads of {}", gpu.name, s.batch, block.queries,
                    block.keys, block.causal ? " causal" : "", s.heads, s.kv_heads, s.head_dim);
                const bool compiles = compiled.takes_next();
                const CudnnAttentionGraph forward(
                    *cudnn, nullptr,
                    {s.batch, block.queries, block.keys, s.heads, s.kv_heads, s.head_dim, s.sequence, keys,
                     block.queries, width, ld, ld, ld, block.causal});
                constexpr int64_t of_forward = 4096;
                has_compiler &=
                    check_kernels(*cudnn, forward, device, of_forward, compiles, text + ", forward");
                for (const bool deterministic : {true, false}) {
                    const Processor processor = {.architecture = gpu.architecture,
                                                 .cudnn_bytes = most_cudnn_bytes,
                                                 .deterministic = deterministic};
                    const Tensor bf(nullptr, Dtype::bf16, {64, 64});
                    if (!cudnn_backward_fits(processor, bf, {}, s)) {
                        CHECK((s.head_dim == 256 && gpu.architecture != 90));
                        continue;
                    }
                    const CudnnBackwardPart part = *backward_part(processor, s);
                    const CudnnBackwardGraph backward(
                        *cudnn, nullptr,
                        {part.batch, block.queries, block.keys, part.heads, part.kv_heads, s.head_dim,
                         s.sequence, keys, s.batch * s.sequence, width, width, ld, ld, ld, block.causal,
                         deterministic});
                    has_compiler &= check_kernels(
                        *cudnn, backward, device, backward_bytes(part, s, deterministic).library, compiles,
                        fmt::format("{}, {}backward of {} x {} heads at once", text,
                                    deterministic ? "deterministic " : "", part.batch, part.heads));
                }
            }
    if (!has_compiler) test::skip("cuDNN found its kernels, but compiled none: there is no NVRTC");
}

TEST_CASE(
    "the part of a batch whose gradients cuDNN computes at once keeps a GPU busy and fits its workspace") {
    const auto part = [](const AttentionShape& s, int64_t bytes = most_cudnn_bytes,
                         bool deterministic = true) {
        return backward_part({.cudnn_bytes = bytes, .deterministic = deterministic}, s);
    };
    using Part = CudnnBackwardPart;
    CHECK(part({1, 8192, 32, 8, 128}) == Part{1, 8, 2});    // 512 blocks
    CHECK(part({1, 8192, 32, 32, 128}) == Part{1, 8, 8});   // one key head for each query head
    CHECK(part({1, 16384, 32, 8, 128}) == Part{1, 4, 1});   // 2 GiB of scores
    CHECK(part({1, 32768, 32, 8, 128}) == std::nullopt);    // four heads share a key
    CHECK(part({1, 32768, 32, 32, 128}) == Part{1, 1, 1});  // too few blocks, but no more fit
    CHECK(part({4, 1024, 32, 8, 128}) == Part{2, 32, 8});
    CHECK(part({8, 64, 12, 4, 64}) == Part{8, 12, 4});  // the whole batch has too few blocks
    CHECK(part({3, 77, 6, 3, 80}) == Part{3, 6, 3});
    CHECK(part({1, 32768, 32, 8, 128}, most_cudnn_bytes, false) == Part{1, 4, 1});
    // statistics of a part begin at multiples of 16 bytes
    CHECK(part({1, 8190, 32, 8, 128}) == std::nullopt);
    const AttentionShape s = {2, 512, 8, 4, 64};
    for (const Part& p : {Part{1, 2, 1}, Part{1, 4, 2}, Part{1, 8, 4}, Part{2, 8, 4}}) {
        const int64_t bytes = backward_bytes(p, s, true).total();
        CHECK(part(s, bytes) == p);
        CHECK(part(s, bytes - 1) != p);
    }
    CHECK(part(s, backward_bytes({1, 2, 1}, s, true).total() - 1) == std::nullopt);
}

TEST_CASE("versions of cuDNN with errors do not compute gradients") {
    CHECK_THAT(wrong_version_for_backward(90501, 128), Catch::Contains("needs cuDNN 9.6 or newer"));
    CHECK_THAT(wrong_version_for_backward(91001, 128), Catch::Contains("9.10.0 and 9.10.1 has errors"));
    CHECK_THAT(wrong_version_for_backward(91500, 100),
               Catch::Contains("100 tokens") && Catch::Contains("needs cuDNN 9.15.1"));
    CHECK(wrong_version_for_backward(91500, 256).empty());
    CHECK(wrong_version_for_backward(91501, 100).empty());
    CHECK(wrong_version_for_backward(90600, 128).empty());
}

TEST_CASE("cuDNN is asked only for attention in bfloat16 whose scores are in blocks that it knows") {
    const Tensor bf(nullptr, Dtype::bf16, {64, 64}), f32(nullptr, Dtype::f32, {64, 64}),
        documents(nullptr, Dtype::i32, {1, 64});
    const AttentionShape s = {1, 64, 1, 1, 64, 0.1};
    AttentionShape part = s, odd = s, wide = s, narrow_values = s, same_values = s, window = s, chunk = s,
                   short_runs = s, crossed = s;
    part.query_part = {64, 64};
    part.key_part = {128};
    odd.head_dim = 60;
    wide.head_dim = 264;
    narrow_values.value_dim = 32;
    same_values.value_dim = 64;
    window.window = 9;
    chunk.chunk = 9;
    short_runs.sequence = 12;
    short_runs.query_part = {12, 6, 12};
    short_runs.key_part = {12, 0, 24};
    crossed.query_part = {64, 32};
    crossed.key_part = {64};
    CHECK(cudnn_fits(bf, {}, s));
    CHECK(cudnn_fits(bf, {}, same_values));
    CHECK(cudnn_fits(bf, {}, part));
    CHECK(cudnn_fits(bf, {}, {1, 77, 1, 1, 64, 0.1}));
    using Catch::Contains;
    CHECK(why_not_cudnn(bf, {}, part).empty());
    const auto check_refused = [&](const Tensor& q, const Tensor& start, const AttentionShape& shape,
                                   const char* why) {
        CHECK_FALSE(cudnn_fits(q, start, shape));
        CHECK_THAT(why_not_cudnn(q, start, shape), Contains(why));
    };
    check_refused(f32, {}, s, "is used for bfloat16 only, and attention is in float32");
    check_refused(bf, documents, s, "is not used with document masks");
    check_refused(bf, documents, part, "is not used with document masks");
    check_refused(bf, {}, window, "is not used with windows or chunks of keys");
    check_refused(bf, {}, chunk, "is not used with windows or chunks of keys");
    check_refused(bf, {}, odd, "the same width, a multiple of 8 up to 256; these have 60 and 60");
    check_refused(bf, {}, wide, "these have 264 and 264");
    check_refused(bf, {}, narrow_values, "these have 64 and 32");
    check_refused(bf, {}, short_runs, "are multiples of 8; a rank has 12 tokens in two runs");
    check_refused(bf, {}, crossed, "see all keys of a run or none, besides their own");
    short_runs.query_part = {12, 12};
    short_runs.key_part = {12};
    check_refused(bf, {}, short_runs, "a rank has 12 tokens in one run");
    AttentionShape full = s;
    full.causal = false;
    CHECK(cudnn_fits(bf, {}, full));
    full.key_part = {40, 8};
    CHECK(cudnn_fits(bf, {}, full));
    full.key_part = {44};
    check_refused(
        bf, {}, full,
        "full attention if the numbers of queries and keys are multiples of 8; these are 64 and 44");
}

TEST_CASE("the scores of ranks that divide sequences are causal squares and rectangles without a mask") {
    constexpr int64_t ranks = 4, run = 8, own = 2 * run;
    AttentionShape s = {2, own, 4, 2, 16};
    const auto part = [](int64_t rank) {
        return SequencePart{own, rank * run, 2 * (ranks - 1 - rank) * run};
    };
    using Blocks = std::vector<ScoreBlock>;
    const auto blocks = [&] {
        const auto found = score_blocks(s);
        REQUIRE(found.has_value());
        return Blocks(found->begin(), found->end());
    };
    for (int64_t rank = 0; rank < ranks; ++rank) {
        CAPTURE(rank);
        s.query_part = part(rank);
        for (int64_t other = 0; other < ranks; ++other) {
            CAPTURE(other);
            s.key_part = part(other);
            if (other == rank) CHECK(blocks() == Blocks{{0, own, 0, own, true}});
            if (other < rank) CHECK(blocks() == Blocks{{0, own, 0, run}});
            if (other > rank) CHECK(blocks() == Blocks{{run, run, 0, own}});
            CHECK(is_whole(blocks_of(s), s) == (other == rank));
            CHECK(mean_tokens(blocks_of(s)) == own);
        }
        // all keys in the order of the sequence
        s.key_part = {own * ranks};
        const int64_t late = 2 * ranks - 1 - rank;
        if (rank == ranks - 1)  // its runs follow each other
            CHECK(blocks() == Blocks{{0, own, 0, rank * run}, {0, own, rank * run, own, true}});
        else if (rank == 0)
            CHECK(blocks() == Blocks{{0, run, 0, run, true},
                                     {run, run, 0, late * run},
                                     {run, run, late * run, run, true}});
        else
            CHECK(blocks() == Blocks{{0, run, 0, rank * run},
                                     {0, run, rank * run, run, true},
                                     {run, run, 0, late * run},
                                     {run, run, late * run, run, true}});
    }
    // one run for each rank
    s.query_part = {own, own};
    s.key_part = {own};
    CHECK(blocks() == Blocks{{0, own, 0, own}});
    s.key_part = {own, 2 * own};
    CHECK(blocks().empty());
    CHECK(mean_tokens(blocks_of(s)) == 0);
    // runs that only overlap
    s.key_part = {own, own + 1};
    CHECK(score_blocks(s) == std::nullopt);
    s.key_part = {own, own - 1};
    CHECK(score_blocks(s) == std::nullopt);
    // full attention, whatever the runs are
    AttentionShape full = s;
    full.causal = false;
    const auto of_full = blocks_of(full);
    CHECK(Blocks(of_full.begin(), of_full.end()) == Blocks{{0, own, 0, own}});
    CHECK_FALSE(is_whole(of_full, full));
    // two runs of queries within two runs of keys
    s.query_part = {own, run, 10 * run};
    s.key_part = {16 * run, 0, 2 * run};
    CHECK(blocks() == Blocks{{0, run, 0, run},
                             {0, run, run, run, true},
                             {run, run, 0, 10 * run},
                             {run, run, 10 * run, run, true}});
}

TEST_CASE("gradients of parts of the keys have room for each block, and matrices of the largest") {
    AttentionShape s = {2, 1024, 8, 2, 64};
    s.query_part = {1024, 512, 2048};
    s.key_part = {4096};
    const CudnnBackwardPart all = {2, 8, 2};
    const CudnnBackwardBytes bytes = backward_bytes(all, s, true);
    constexpr int64_t pairs = 2 * 8, kv_pairs = 2 * 2, d = 64, bf16 = 2;
    // 512 x 512, causal 512, 512 x 3072, causal 512
    CHECK(bytes.dq == pairs * 4 * 512 * d * bf16);
    CHECK(bytes.dk == kv_pairs * (512 + 512 + 3072 + 512) * d * bf16);
    CHECK(bytes.dv == bytes.dk);
    CHECK(bytes.delta == pairs * 512 * 4);
    CHECK(bytes.sums == 0);
    CHECK(bytes.library == pairs * 512 * 3072 * bf16 + 2 * pairs * 3072 * d * bf16 + 4096);
    CHECK(backward_bytes(all, s, false).sums == pairs * 512 * d * 4);
    const Processor processor = {.cudnn_bytes = bytes.total(), .deterministic = true};
    CHECK(backward_part(processor, s) == all);
    CHECK(backward_part({.cudnn_bytes = bytes.total() - 1, .deterministic = true}, s) ==
          CudnnBackwardPart{1, 8, 2});
}

TEST_CASE("a missing cuDNN is an error in words") {
    CHECK_THROWS_WITH(load_cudnn("/absent/libcudnn.so.9"),
                      Catch::Contains("cuDNN cannot be loaded: /absent/libcudnn.so.9"));
    CHECK_THROWS_WITH(load_cudnn("libc.so.6"), Catch::Contains("libc.so.6 is not cuDNN 9: it has no"));
}
