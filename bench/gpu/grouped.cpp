// SPDX-License-Identifier: Apache-2.0
// gpu_grouped [GROUPS ROWS INPUTS OUTPUTS]: products of experts' rows on the first GPU, by each kernel: the
// forward, the gradient of the rows and that of the matrices, in bfloat16 (mma, wgmma, wgmma with TMA) and in
// 8 bits with a scale for each row or column (codes, and decoded to bfloat16). ROWS is the mean of the
// groups, which have 3/4 or 5/4 as many. Without arguments it measures shapes of a rank of
// inputs/deepseek_v3_16b.toml (both matrices) and inputs/qwen3_30b_a3b.toml, and of many small groups. It
// prints one JSON object per line: TFLOP/s of the best and of the median run, the launches of a call, the
// largest difference from mma, or from decoded operands, relative to the largest element, and whether two
// runs gave the same bits. A kernel that is not used where it was asked for gives an object with the reason
// instead.
#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/types.hpp"
#include "coeus/device/device.hpp"
#include "coeus/kernels/algorithm_cache.hpp"
#include "coeus/kernels/kernels.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

using namespace coeus;

namespace {

/// A kernel, and the environment variable that asks for it.
struct By {
    const char *name, *variable, *value;
    bool in_8_bits;
};
// of each kind, results are compared with those of the first one
static_assert(cuda::experts_kernels.size() == 3, "each has a line here");
constexpr By kernels_of_products[] = {{cuda::experts_kernels[0], "COEUS_EXPERTS_WGMMA", "0", false},
                                      {cuda::experts_kernels[1], "COEUS_EXPERTS_WGMMA", "1", false},
                                      {cuda::experts_kernels[2], "COEUS_EXPERTS_WGMMA", "tma", false},
                                      {"decoded", "COEUS_EXPERTS_8_BITS", "0", true},
                                      {"codes", "COEUS_EXPERTS_8_BITS", "1", true}};

enum class Form : uint8_t { forward, rows, matrices };
constexpr Form forms[] = {Form::forward, Form::rows, Form::matrices};
const char* name_of(Form form) {
    switch (form) {
        case Form::forward: return "y = x W^T";
        case Form::rows: return "dx = dy W";
        default: return "dW += dy^T x";
    }
}

struct Shapes {
    int64_t groups, rows, inputs, outputs;
};

using Values = std::vector<float>;

double difference(const Values& a, const Values& b) {
    double most = 0, largest = 1e-30;
    for (size_t i = 0; i < a.size(); ++i) {
        const double d = std::abs(double(a[i]) - double(b[i]));
        most = d <= most ? most : d;  // NaN counts
        largest = std::max(largest, std::abs(double(b[i])));
    }
    return most / largest;
}

bool same_bits(const Values& a, const Values& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The log of this process, which tells which kernel computes a product.
class Log {
public:
    Log() : file_(std::filesystem::temp_directory_path() / fmt::format("gpu_grouped-{}.log", getpid())) {
        log::use_stderr();
        log::init({.file = file_.string(), .quiet = true});
    }
    ~Log() {
        log::init({});
        std::error_code ignored;
        std::filesystem::remove(file_, ignored);
    }
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    /// What was written since the last call.
    std::string next() {
        log::flush();
        std::ostringstream all;
        all << std::ifstream(file_).rdbuf();
        std::string next = all.str().substr(read_);
        read_ += next.size();
        return next;
    }

private:
    std::filesystem::path file_;
    size_t read_ = 0;
};

/// The first warning in lines of the log; empty: there is none.
std::string first_warning(const std::string& lines) {
    const std::string mark = " warning ";
    const size_t at = lines.find(mark);
    if (at == lines.npos) return "";
    const size_t begin = at + mark.size();
    return lines.substr(begin, lines.find('\n', begin) - begin);
}

/// The launches of a call.
class Launches : public KernelObserver {
public:
    void begin(const char* /*kernel*/, double /*flops*/, double /*bytes*/) override {}
    void launch(const char* kernel) override { names.emplace_back(kernel); }
    void end() override {}
    std::vector<std::string> names;
};

class Bench {
public:
    Bench(const Device& device, const Shapes& shapes, Log& log)
        : device_(device), s_(shapes), log_(log), places_(Dtype::i32, {2 * s_.groups}, "groups") {
        int64_t end = 0;
        for (int64_t g = 0; g < s_.groups; ++g) {
            const bool is_alone = g % 2 == 0 && g + 1 == s_.groups;
            const int64_t count = is_alone ? s_.rows : s_.rows + (g % 2 ? 1 : -1) * (s_.rows / 4);
            set_element(places_, g, double(end));
            set_element(places_, s_.groups + g, double(count));
            end += div_ceil(count, group_rows) * group_rows;
            assignments_ += count;
        }
        rows_ = grouped_rows(assignments_, s_.groups);
        place_ = on_gpu(places_.view);
        x_ = random_rows(s_.inputs, 1);
        dy_ = random_rows(s_.outputs, 2);
        w_ = random(Dtype::bf16, {s_.groups * s_.outputs, s_.inputs}, 3);
        codes_of_x_ = random_codes({rows_, s_.inputs}, 4, true);
        codes_of_dy_ = random_codes({rows_, s_.outputs}, 5, true);
        codes_of_w_ = random_codes({s_.groups * s_.outputs, s_.inputs}, 6, false);
        // powers of two, as many as any operand needs
        const OwnedTensor scales(Dtype::f32, {std::max(rows_, s_.groups * std::max(s_.inputs, s_.outputs))},
                                 "scales");
        for (int64_t i = 0; i < scales.view.count(); ++i)
            set_element(scales, i, std::ldexp(1.0, int(i % 5) - 12));
        scales_ = on_gpu(scales.view);
    }

    void run() {
        std::vector<std::vector<Values>> first(2);
        for (const By& by : kernels_of_products) measure(by, first[by.in_8_bits ? 1 : 0]);
    }

private:
    Groups groups() const {
        return {.begins = place_.view.slice_rows(0, s_.groups),
                .counts = place_.view.slice_rows(s_.groups, s_.groups),
                .assignments = assignments_};
    }

    OwnedTensor on_gpu(const Tensor& host) const {
        OwnedTensor there(host.dtype, host.shape, "operand", device_.memory());
        device_.copy(there.view.data, host.data, host.bytes());
        return there;
    }
    /// Few random elements, repeated: their number is odd, so that rows differ.
    template <class T, class Make>
    OwnedTensor repeated(Dtype type, const Shape& shape, uint32_t bits, bool grouped, Make make) const {
        std::vector<T> some((1 << 18) - 1);
        for (T& value : some) {
            bits = bits * 1664525 + 1013904223;
            value = make(bits);
        }
        const OwnedTensor host(type, shape, "host");
        T* const values = static_cast<T*>(host.view.data);
        for (int64_t i = 0; i < shape.count(); i += int64_t(some.size()))
            std::copy_n(some.begin(), std::min(int64_t(some.size()), shape.count() - i), values + i);
        if (grouped) zero_padding(host.view);
        return on_gpu(host.view);
    }
    /// Rows that belong to no group.
    void zero_padding(const Tensor& t) const {
        for (int64_t g = 0; g < s_.groups; ++g) {
            const auto at = [&](int64_t i) { return int64_t(element(places_, i)); };
            const int64_t end = at(g) + at(s_.groups + g), next = g + 1 < s_.groups ? at(g + 1) : t.rows();
            const int64_t row = t.cols() * size_of(t.dtype);
            std::memset(static_cast<std::byte*>(t.data) + end * row, 0, size_t((next - end) * row));
        }
    }
    OwnedTensor random(Dtype type, const Shape& shape, uint32_t seed, bool grouped = false) const {
        return repeated<bf16>(type, shape, seed, grouped,
                              [](uint32_t bits) { return bf16(float(bits >> 8) / float(1 << 23) - 1); });
    }
    OwnedTensor random_rows(int64_t columns, uint32_t seed) const {
        return random(Dtype::bf16, {rows_, columns}, seed, true);
    }
    OwnedTensor random_codes(const Shape& shape, uint32_t seed, bool grouped) const {
        return repeated<uint8_t>(Dtype::u8, shape, seed, grouped, [](uint32_t bits) {
            const auto code = uint8_t(bits >> 24);
            return (code & 0x7f) == 0x7f ? uint8_t(0x38) : code;  // 1 instead of NaN
        });
    }

    Tensor quantized(const OwnedTensor& codes, ScaleGroups groups) const {
        Tensor t(codes.view.data, Dtype::fp8_e4m3, codes.view.shape);
        t.groups = groups;
        t.scale = scales_.view.data;
        return t;
    }

    Shape result_shape(Form form) const {
        switch (form) {
            case Form::forward: return {rows_, s_.outputs};
            case Form::rows: return {rows_, s_.inputs};
            default: return {s_.groups * s_.outputs, s_.inputs};
        }
    }

    /// `added`: the gradient of the matrices is added to d.
    void call(const Kernels& kernels, Exec& exec, const By& by, Form form, const Tensor& d,
              bool added) const {
        const Tensor c = added ? d : Tensor();
        const auto rows = ScaleGroups::rows, cols = ScaleGroups::cols;
        if (!by.in_8_bits) switch (form) {
                case Form::forward: return kernels.grouped_gemm(exec, d, x_, transposed(w_), groups());
                case Form::rows: return kernels.grouped_gemm(exec, d, dy_, Operand(w_), groups());
                default: return kernels.grouped_gemm_weights(exec, d, dy_, x_, c, groups());
            }
        switch (form) {
            case Form::forward:
                return kernels.scaled_grouped_gemm(exec, d, quantized(codes_of_x_, rows),
                                                   transposed(quantized(codes_of_w_, rows)), groups(), true);
            case Form::rows:
                return kernels.scaled_grouped_gemm(exec, d, quantized(codes_of_dy_, rows),
                                                   Operand(quantized(codes_of_w_, cols)), groups(), true);
            default:
                return kernels.scaled_grouped_gemm_weights(exec, d, quantized(codes_of_dy_, cols),
                                                           quantized(codes_of_x_, cols), c, groups());
        }
    }

    /// The rows of groups, or the matrices.
    Values values_of(const Tensor& d, Form form) const {
        std::vector<std::byte> bytes(size_t(d.bytes()));
        device_.copy(bytes.data(), d.data, d.bytes());
        const Tensor host(bytes.data(), d.dtype, d.shape);
        if (form != Form::matrices) zero_padding(host);
        Values values(size_t(d.count()));
        if (d.dtype == Dtype::f32)
            std::copy_n(host.as<float>(), values.size(), values.begin());
        else
            std::transform(host.as<bf16>(), host.as<bf16>() + values.size(), values.begin(),
                           [](bf16 value) { return float(value); });
        return values;
    }

    /// Why this kernel did not compute a product; empty: it did. `said`: by the log.
    /// `warning`: the first one of this kernel.
    static std::string why_another(const By& by, const std::string& said, const std::string& warning,
                                   const std::string& launches, int architecture) {
        if (by.value == std::string("0")) return "";
        if (by.in_8_bits && launches.find("8_bit") == launches.npos)
            return fmt::format("operands of these sizes are decoded on sm_{}", architecture);
        if (!by.in_8_bits && said.find(fmt::format(" is computed by {}\n", by.name)) == said.npos)
            return warning.empty() ? "operands of these sizes have another kernel" : warning;
        return "";
    }

    /// `first`: the results of the first kernel of this kind, which are kept if there are none yet.
    void measure(const By& by, std::vector<Values>& first) {
        setenv(by.variable, by.value, 1);
        const bool is_first = first.empty();
        struct Result {
            OwnedTensor d;
            std::string launches, reason;
            double difference;
            bool same;
        };
        std::vector<Result> results;
        std::string warning;
        Exec planning, exec(device_);
        planning.architecture = exec.architecture;
        for (const Form form : forms)
            call(dry_kernels_of(device_.backend()), planning, by, form,
                 Tensor(nullptr, type_of(form), result_shape(form)), false);
        exec.workspace = Arena(planning.workspace.peak(), "kernel workspace", device_.memory());
        const Kernels& kernels = kernels_of(device_.backend());
        // before any is measured, so that a profile of the first launches has all
        for (const Form form : forms) {
            Result r = {.d = OwnedTensor(type_of(form), result_shape(form), "result", device_.memory())};
            const auto result = [&] {
                call(kernels, exec, by, form, r.d, false);
                exec.queue->finish();
                return values_of(r.d, form);
            };
            Values values = result();
            const std::string said = log_.next();
            if (warning.empty()) warning = first_warning(said);
            Launches launches;
            {
                const Observation observed = exec.observers.add(launches);
                r.same = same_bits(values, result());
            }
            r.launches = join(launches.names, ", ");
            r.reason = why_another(by, said, warning, r.launches, exec.architecture);
            if (is_first) first.push_back(std::move(values));
            r.difference = is_first ? 0 : difference(values, first[results.size()]);
            results.push_back(std::move(r));
        }
        for (size_t i = 0; i < results.size(); ++i) {
            const Result& r = results[i];
            fmt::print(R"({{"product": "{}", "kernels": "{}", "groups": {}, "rows": {}, "inputs": {}, )"
                       R"("outputs": {}, )",
                       name_of(forms[i]), by.name, s_.groups, s_.rows, s_.inputs, s_.outputs);
            if (!r.reason.empty()) {
                fmt::print(R"("error": "{}"}})"
                           "\n",
                           r.reason);
                continue;
            }
            const auto [median, best] = rates(kernels, exec, by, forms[i], r.d);
            fmt::print(R"("tflops": {:.1f}, "tflops_best": {:.1f}, "launches": "{}", "difference": {:.2e}, )"
                       R"("same_bits": {}}})"
                       "\n",
                       median, best, r.launches, r.difference, r.same);
            std::fflush(stdout);
        }
        unsetenv(by.variable);
    }

    static Dtype type_of(Form form) { return form == Form::matrices ? Dtype::f32 : Dtype::bf16; }

    struct Rates {
        double median, best;  // TFLOP/s
    };
    Rates rates(const Kernels& kernels, Exec& exec, const By& by, Form form, const Tensor& d) const {
        constexpr int runs = 7, calls = 5;
        std::vector<double> seconds;
        for (int run = 0; run < runs; ++run) {
            const Timer timer;
            for (int i = 0; i < calls; ++i) call(kernels, exec, by, form, d, true);
            exec.queue->finish();
            seconds.push_back(timer.seconds() / calls);
        }
        std::sort(seconds.begin(), seconds.end());
        const double flops = 2.0 * double(assignments_) * double(s_.inputs) * double(s_.outputs);
        return {flops / seconds[runs / 2] / 1e12, flops / seconds[0] / 1e12};
    }

    const Device& device_;
    Shapes s_;
    Log& log_;
    int64_t assignments_ = 0, rows_ = 0;
    OwnedTensor places_;  // begins and counts, on the host
    OwnedTensor place_, x_, dy_, w_, codes_of_x_, codes_of_dy_, codes_of_w_, scales_;
};

}  // namespace

int main(int argc, char** argv) try {
    constexpr int numbers = 4;
    if (argc != 1 && argc != 1 + numbers)
        throw ConfigError("usage: gpu_grouped [GROUPS ROWS INPUTS OUTPUTS]");
    std::vector<Shapes> shapes = {
        {8, 6144, 2048, 2816}, {8, 6144, 1408, 2048}, {16, 2048, 2048, 1536}, {64, 1024, 4096, 1536}};
    if (argc > 1) {
        const auto number = [&](int i) { return int64_t(std::max(1, std::atoi(argv[i]))); };
        shapes = {{number(1), number(2), number(3), number(4)}};
    }
    if (visible_gpus() == 0) throw SystemError(why_no_gpu());
    const auto gpu = open_gpu(0);
    Log log;
    for (const Shapes& s : shapes) Bench(*gpu, s, log).run();
    return 0;
} catch (const std::exception& error) {
    fmt::print(stderr, "gpu_grouped: {}\n", error.what());
    return 3;
}
