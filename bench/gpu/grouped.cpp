// SPDX-License-Identifier: Apache-2.0
// gpu_grouped [KERNELS [GROUPS ROWS INPUTS OUTPUTS]]: products of experts' rows on the first GPU: the
// forward, the gradient of the rows and that of the matrices. KERNELS is all (default) or names with commas
// between them: mma, wgmma and wgmma+tma multiply bfloat16; codes, decoded and decoded+tma multiply 8 bits
// with a scale for each row or column, as they are or decoded to bfloat16, by mma or by wgmma+tma. ROWS is
// the mean of the groups, which have 3/4 or 5/4 as many. Without sizes it measures shapes of a rank of
// inputs/deepseek_v3_16b.toml (both matrices) and inputs/qwen3_30b_a3b.toml, and of many small groups. It
// prints one JSON object per line: TFLOP/s of the best and of the median run, the launches of a call, the
// largest difference from mma, or from decoded operands, relative to the largest element, and whether two
// runs gave the same bits. Both compare about 1024 rows of each result. A kernel that is not used where it
// was asked for gives an object with the reason instead.
#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/base/types.hpp"
#include "coeus/device/device.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/product_options.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

using namespace coeus;

namespace {

/// A kernel, whether it multiplies codes, and how the name of its launch ends.
struct By {
    const char* name;
    ExpertsKernel kernel;
    bool codes, in_8_bits;
    const char* launch;
};
constexpr By mma = {"mma", ExpertsKernel::mma, false, false, ""},
             decoded = {"decoded", ExpertsKernel::mma, false, true, ""};
constexpr By kernels_of_products[] = {mma,
                                      decoded,
                                      {"codes", ExpertsKernel::mma, true, true, "_8_bit"},
                                      {"decoded+tma", ExpertsKernel::tma, false, true, "_tma"},
                                      {"wgmma", ExpertsKernel::wgmma, false, false, "_wgmma"},
                                      {"wgmma+tma", ExpertsKernel::tma, false, false, "_tma"}};

/// The kernel with whose results those of `by` are compared.
const By& reference_of(const By& by) {
    return by.in_8_bits ? decoded : mma;
}
bool is_reference(const By& by) {
    return std::string_view(by.name) == reference_of(by).name;
}

/// The kernels with these names: "all", or names with commas between them.
std::vector<By> kernels_named(const std::string& names) {
    if (names == "all") return {std::begin(kernels_of_products), std::end(kernels_of_products)};
    std::vector<std::string> known;
    for (const By& by : kernels_of_products) known.emplace_back(by.name);
    std::vector<By> kernels;
    std::istringstream list(names + ",");
    for (std::string name; std::getline(list, name, ',');) {
        const auto at = std::ranges::find(known, name);
        if (at == known.end()) {
            const std::string nearest = nearest_name(name, known);
            throw ConfigError(fmt::format(
                "there is no kernel \"{}\"{}; KERNELS is all, or names with commas between them: {}", name,
                nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest), join(known, ", ")));
        }
        kernels.push_back(kernels_of_products[at - known.begin()]);
    }
    return kernels;
}

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
        if (std::isnan(d)) return d;
        most = std::max(most, d);
        largest = std::max(largest, std::abs(double(b[i])));
    }
    return most / largest;
}

bool same_bits(const Values& a, const Values& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The log of this process, which tells why a kernel cannot run.
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
    Bench(const Device& device, const Shapes& shapes, const By& by, Log& log)
        : device_(device), s_(shapes), by_(by), log_(log), places_(Dtype::i32, {2 * s_.groups}, "groups") {
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
        if (!by.in_8_bits) {
            x_ = random({rows_, s_.inputs}, 1, true);
            dy_ = random({rows_, s_.outputs}, 2, true);
            w_ = random({s_.groups * s_.outputs, s_.inputs}, 3, false);
            return;
        }
        x_ = random_codes({rows_, s_.inputs}, 4, true);
        dy_ = random_codes({rows_, s_.outputs}, 5, true);
        w_ = random_codes({s_.groups * s_.outputs, s_.inputs}, 6, false);
        // powers of two, as many as any operand needs
        const OwnedTensor scales(Dtype::f32, {std::max(rows_, s_.groups * std::max(s_.inputs, s_.outputs))},
                                 "scales");
        for (int64_t i = 0; i < scales.view.count(); ++i)
            set_element(scales, i, std::ldexp(1.0, int(i % 5) - 12));
        scales_ = on_gpu(scales.view);
    }

    void run() {
        std::vector<Result> expected;
        if (!is_reference(by_)) {
            Exec exec(device_);
            expected = results_of(reference_of(by_), exec);
            for (Result& r : expected) r.d = {};  // only the rows that are compared are kept
        }
        Exec exec(device_);
        // all before any is measured, so that a profile of the first launches has all
        const std::vector<Result> results = results_of(by_, exec);
        for (size_t i = 0; i < results.size(); ++i) {
            const Result& r = results[i];
            const Rates rate = r.reason.empty() ? rates(exec, forms[i], r.d) : Rates();
            fmt::print(R"({{"product": "{}", "kernels": "{}", "groups": {}, "rows": {}, "inputs": {}, )"
                       R"("outputs": {}, )",
                       name_of(forms[i]), by_.name, s_.groups, s_.rows, s_.inputs, s_.outputs);
            if (!r.reason.empty()) {
                fmt::print(R"("error": "{}"}})"
                           "\n",
                           r.reason);
            } else {
                fmt::print(
                    R"("tflops": {:.1f}, "tflops_best": {:.1f}, "launches": "{}", "difference": {:.2e}, )"
                    R"("same_bits": {}}})"
                    "\n",
                    rate.median, rate.best, r.launches,
                    expected.empty() ? 0 : difference(r.sample, expected[i].sample), r.same);
            }
            std::fflush(stdout);
        }
    }

private:
    struct Rates {
        double median, best;  // TFLOP/s
    };
    /// A product by one kernel.
    struct Result {
        OwnedTensor d;
        Values sample;                 ///< see values_of
        std::string launches, reason;  ///< why another kernel computed it; empty: none did
        bool same;                     ///< as the sample of a second run
    };

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
    OwnedTensor random(const Shape& shape, uint32_t seed, bool grouped) const {
        return repeated<bf16>(Dtype::bf16, shape, seed, grouped,
                              [](uint32_t bits) { return bf16(float(bits >> 8) / float(1 << 23) - 1); });
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
    void call(const Kernels& kernels, Exec& exec, Form form, const Tensor& d, bool added) const {
        const Tensor c = added ? d : Tensor();
        const auto rows = ScaleGroups::rows, cols = ScaleGroups::cols;
        if (!by_.in_8_bits) switch (form) {
                case Form::forward: return kernels.grouped_gemm(exec, d, x_, transposed(w_), groups());
                case Form::rows: return kernels.grouped_gemm(exec, d, dy_, Operand(w_), groups());
                default: return kernels.grouped_gemm_weights(exec, d, dy_, x_, c, groups());
            }
        switch (form) {
            case Form::forward:
                return kernels.scaled_grouped_gemm(exec, d, quantized(x_, rows),
                                                   transposed(quantized(w_, rows)), groups(), true);
            case Form::rows:
                return kernels.scaled_grouped_gemm(exec, d, quantized(dy_, rows),
                                                   Operand(quantized(w_, cols)), groups(), true);
            default:
                return kernels.scaled_grouped_gemm_weights(exec, d, quantized(dy_, cols), quantized(x_, cols),
                                                           c, groups());
        }
    }

    /// Some rows of a result: the first and the last of each group or matrix, and others evenly between them.
    std::vector<int64_t> rows_of_sample(Form form) const {
        constexpr int64_t all = 1024;
        const int64_t of_group = std::max<int64_t>(2, all / s_.groups);
        std::vector<int64_t> rows;
        for (int64_t g = 0; g < s_.groups; ++g) {
            const bool is_matrix = form == Form::matrices;
            const int64_t begin = is_matrix ? g * s_.outputs : int64_t(element(places_, g));
            const int64_t count = is_matrix ? s_.outputs : int64_t(element(places_, s_.groups + g));
            const int64_t taken = std::min(count, of_group);
            for (int64_t i = 0; i < taken; ++i)
                rows.push_back(begin + i * (count - 1) / std::max<int64_t>(1, taken - 1));
        }
        return rows;
    }
    /// The elements of these rows of a result.
    Values values_of(const Tensor& d, const std::vector<int64_t>& rows) const {
        const OwnedTensor some(d.dtype, {int64_t(rows.size()), d.cols()}, "sample");
        for (size_t i = 0; i < rows.size(); ++i) {
            const Tensor to = some.view.slice_rows(int64_t(i), 1);
            device_.copy(to.data, d.slice_rows(rows[i], 1).data, to.bytes());
        }
        Values values(size_t(some.view.count()));
        if (d.dtype == Dtype::f32)
            std::copy_n(some.view.as<float>(), values.size(), values.begin());
        else
            std::transform(some.view.as<bf16>(), some.view.as<bf16>() + values.size(), values.begin(),
                           [](bf16 value) { return float(value); });
        return values;
    }

    /// Why this kernel did not compute a product; empty: it did. `warning`: the first one of this kernel.
    static std::string why_another(const By& by, const std::string& warning, const std::string& launches,
                                   int architecture) {
        const bool is_by_wgmma =
            launches.find("_wgmma") != launches.npos || launches.find("_tma") != launches.npos;
        if (*by.launch ? launches.find(by.launch) != launches.npos : !is_by_wgmma) return "";
        if (!warning.empty()) return warning;
        return by.codes ? fmt::format("operands of these sizes are decoded on sm_{}", architecture)
                        : "operands of these sizes have another kernel";
    }

    /// All products by this kernel, each computed twice. Plans the workspace of `exec`.
    std::vector<Result> results_of(const By& by, Exec& exec) const {
        set_product_options(exec, {.experts = by.kernel});
        exec.experts_in_8_bits = by.codes;
        Exec planning{static_cast<const Processor&>(exec)};
        for (const Form form : forms)
            call(dry_kernels_of(device_.backend()), planning, form,
                 Tensor(nullptr, type_of(form), result_shape(form)), false);
        exec.workspace = Arena(planning.workspace.peak(), "kernel workspace", device_.memory());
        std::vector<Result> results;
        std::string warning;
        for (const Form form : forms) {
            Result r = {.d = OwnedTensor(type_of(form), result_shape(form), "result", device_.memory())};
            const std::vector<int64_t> rows = rows_of_sample(form);
            const auto sample = [&] {
                call(kernels_of(device_.backend()), exec, form, r.d, false);
                exec.queue->finish();
                return values_of(r.d, rows);
            };
            r.sample = sample();
            if (warning.empty()) warning = first_warning(log_.next());
            Launches launches;
            {
                const Observation observed = exec.observers.add(launches);
                r.same = same_bits(r.sample, sample());
            }
            r.launches = join(launches.names, ", ");
            r.reason = why_another(by, warning, r.launches, exec.architecture);
            results.push_back(std::move(r));
        }
        return results;
    }

    static Dtype type_of(Form form) { return form == Form::matrices ? Dtype::f32 : Dtype::bf16; }

    Rates rates(Exec& exec, Form form, const Tensor& d) const {
        const Kernels& kernels = kernels_of(device_.backend());
        constexpr int runs = 7, calls = 5;
        std::vector<double> seconds;
        for (int run = 0; run < runs; ++run) {
            const Timer timer;
            for (int i = 0; i < calls; ++i) call(kernels, exec, form, d, true);
            exec.queue->finish();
            seconds.push_back(timer.seconds() / calls);
        }
        std::sort(seconds.begin(), seconds.end());
        const double flops = 2.0 * double(assignments_) * double(s_.inputs) * double(s_.outputs);
        return {flops / seconds[runs / 2] / 1e12, flops / seconds[0] / 1e12};
    }

    const Device& device_;
    Shapes s_;
    By by_;
    Log& log_;
    int64_t assignments_ = 0, rows_ = 0;
    OwnedTensor places_;                       // begins and counts, on the host
    OwnedTensor place_, x_, dy_, w_, scales_;  // codes if the kernel multiplies 8 bits
};

}  // namespace

int main(int argc, char** argv) try {
    constexpr int numbers = 4;
    if (argc > 2 && argc != 2 + numbers)
        throw ConfigError("usage: gpu_grouped [KERNELS [GROUPS ROWS INPUTS OUTPUTS]]");
    const std::vector<By> kernels = kernels_named(argc > 1 ? argv[1] : "all");
    std::vector<Shapes> shapes = {
        {8, 6144, 2048, 2816}, {8, 6144, 1408, 2048}, {16, 2048, 2048, 1536}, {64, 1024, 4096, 1536}};
    if (argc > 2) {
        const auto number = [&](int i) { return int64_t(std::max(1, std::atoi(argv[i]))); };
        shapes = {{number(2), number(3), number(4), number(5)}};
    }
    if (visible_gpus() == 0) throw SystemError(why_no_gpu());
    const auto gpu = open_gpu(0);
    Log log;
    // a kernel that ends the process, or the GPU's context, loses only those after it
    for (const By& by : kernels)
        for (const Shapes& s : shapes) Bench(*gpu, s, by, log).run();
    return 0;
} catch (const std::exception& error) {
    fmt::print(stderr, "gpu_grouped: {}\n", error.what());
    return 3;
}
