// SPDX-License-Identifier: Apache-2.0
// gpu_gemm [SIZE ...]: the matrix-multiply rate of the first GPU, for y = x W^T and dW += dy^T x, called as
// the model calls them: by the fastest of the algorithms that cuBLASLt suggests, which is kept in the user's
// cache as a run's is. If nothing can be kept there, its first suggestion is measured.
// It measures square matrices of the given sizes (default 8192) and the shapes of a Llama block (tokens 8192,
// dim 4096, ffn 14336).
// It prints one JSON object per line: type, sizes, TFLOP/s of the best and of the median run, by the GPU's
// clock.
//
// gpu_gemm --steady [SECONDS [SIZE]]: what `coeus products` would find for the layers of 7B with 16 x 1024
// tokens and of 8B with 8192, with turns of so many seconds (default 0.3): the algorithm that is fastest in
// short turns beside the one that is fastest at the power limit, with watts and MHz. The widest layer also in
// other forms: dx, and dW in float32 without a sum and in bfloat16. With SIZE, square matrices only. Nothing
// is kept.
#include "coeus/base/error.hpp"
#include "coeus/base/user_cache.hpp"
#include "coeus/device/device.hpp"
#include "coeus/kernels/kernels.hpp"
#include "coeus/kernels/product_options.hpp"
#include "on_gpu.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

using namespace coeus;
using namespace coeus::bench;

namespace {

namespace fs = std::filesystem;

/// y = x W^T, dx = dy W, dW = dy^T x in float32, the same added to the previous content, and in bfloat16.
enum class ProductForm { y, dx, dw, dw_added, dw_bf16 };

constexpr const char* name_of(ProductForm form) {
    switch (form) {
        case ProductForm::y: return "y = x W^T";
        case ProductForm::dx: return "dx = dy W";
        case ProductForm::dw: return "dW = dy^T x";
        case ProductForm::dw_added: return "dW += dy^T x";
        case ProductForm::dw_bf16: return "dW = dy^T x in bfloat16";
    }
    return "";
}

struct Product {
    int64_t rows, outputs, inputs;
    ProductForm form = ProductForm::y;

    double flops() const { return 2.0 * double(rows) * double(outputs) * double(inputs); }
};

/// A product with its operands and its Exec.
class Call {
public:
    Call(const Device& device, const Product& p, Dtype type, const ProductOptions& options)
        : form_(p.form),
          x_(numbers(device, type, {p.rows, p.inputs})),
          w_(numbers(device, type, {p.outputs, p.inputs})),
          dy_(numbers(device, type, {p.rows, p.outputs})),
          out_(room(device, out_type(type), out_shape(p))),
          exec_(device) {
        Exec planning;
        call(dry_kernels_of(device.backend()), planning);
        exec_.workspace = Arena(planning.workspace.peak(), "kernel workspace", device.memory());
        set_product_options(exec_, options);
        kernels_of(device.backend()).zero(exec_, out_);
        call();  // the fastest algorithm is searched for
        exec_.queue->finish();
    }

    void call() { call(kernels_of(exec_.device->backend()), exec_); }
    Exec& exec() { return exec_; }

private:
    Dtype out_type(Dtype type) const {
        return form_ == ProductForm::dw || form_ == ProductForm::dw_added ? Dtype::f32 : type;
    }
    static Shape out_shape(const Product& p) {
        switch (p.form) {
            case ProductForm::y: return {p.rows, p.outputs};
            case ProductForm::dx: return {p.rows, p.inputs};
            default: return {p.outputs, p.inputs};
        }
    }
    void call(const Kernels& kernels, Exec& exec) const {
        switch (form_) {
            case ProductForm::y: return kernels.gemm(exec, out_, Operand(x_), transposed(w_), {});
            case ProductForm::dx: return kernels.gemm(exec, out_, Operand(dy_), Operand(w_), {});
            case ProductForm::dw_added: return kernels.gemm(exec, out_, transposed(dy_), Operand(x_), out_);
            default: return kernels.gemm(exec, out_, transposed(dy_), Operand(x_), {});
        }
    }

    ProductForm form_;
    OwnedTensor x_, w_, dy_, out_;
    Exec exec_;
};

void measure(const Device& device, const Product& p, Dtype type) {
    Call call(device, p, type, {.folder = user_cache("products"), .recheck = Recheck::old});
    const Seconds seconds = seconds_of(call.exec(), [&] { call.call(); });
    call.exec().queue->finish();
    fmt::print(
        R"({{"type": "{}", "product": "{}", "rows": {}, "outputs": {}, "inputs": {}, "tflops": {:.1f}, )"
        R"("tflops_best": {:.1f}}})"
        "\n",
        name_of(type), ::name_of(p.form), p.rows, p.outputs, p.inputs, p.flops() / seconds.median / 1e12,
        p.flops() / seconds.best / 1e12);
    std::fflush(stdout);
}

void compare(const Device& device, const Product& p, double seconds, const std::string& folder) {
    Call call(device, p, Dtype::bf16, {.folder = folder, .steady = SteadySearch{.seconds = seconds}});
    const std::vector<SearchedProduct> found = searched_products(call.exec());
    if (found.empty())
        throw SystemError("cuBLASLt has no algorithm for the product, or " + folder + " is not writable");
    const SearchedProduct& one = found.front();
    const auto rate = [&](double of_one) { return of_one > 0 ? p.flops() / of_one / 1e12 : 0; };
    fmt::print(
        "{:>5} x {:>5} x {:>5}  {:<24} {:>3} {:>7.1f} {:>7.1f} {:>5.0f} {:>5} {:>7.1f} {:>5.0f} {:>5} "
        "{:>6.1f}\n",
        p.rows, p.outputs, p.inputs, ::name_of(p.form), one.algorithms, rate(one.shortest_turn),
        rate(one.of_short_turns.seconds), one.of_short_turns.watts, one.of_short_turns.megahertz,
        rate(one.best.seconds), one.best.watts, one.best.megahertz,
        100 * (one.of_short_turns.seconds / one.best.seconds - 1));
    std::fflush(stdout);
}

/// A folder that a search may keep algorithms in, which goes at the end.
class TemporaryCache {
public:
    TemporaryCache() : path_((fs::temp_directory_path() / "gpu_gemm.XXXXXX").string()) {
        if (mkdtemp(path_.data()) == nullptr) throw SystemError("cannot make the folder " + path_);
    }
    ~TemporaryCache() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    TemporaryCache(const TemporaryCache&) = delete;
    TemporaryCache& operator=(const TemporaryCache&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// A whole word that is a number above 0 and at most `most`.
double number_of(const char* name, const char* word, double most) {
    const std::string_view text = word;
    double value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc() || end != text.data() + text.size() || !(value > 0 && value <= most))
        throw ConfigError("{} must be a number above 0 and at most {}, but is \"{}\"", name, most, word);
    return value;
}

void compare_all(const Device& device, double seconds, int64_t size) {
    std::vector<Product> products;
    const auto add = [&](int64_t rows, int64_t outputs, int64_t inputs, bool all_forms = false) {
        for (const ProductForm form :
             {ProductForm::y, ProductForm::dx, ProductForm::dw, ProductForm::dw_added, ProductForm::dw_bf16})
            if (all_forms || form == ProductForm::y || form == ProductForm::dw_added)
                products.push_back({rows, outputs, inputs, form});
    };
    if (size > 0) {
        add(size, size, size, true);
    } else {
        add(16384, 12288, 4096), add(16384, 4096, 4096), add(16384, 22016, 4096, true),
            add(16384, 4096, 11008);
        add(8192, 6144, 4096), add(8192, 4096, 4096), add(8192, 28672, 4096, true), add(8192, 4096, 14336);
    }
    const TemporaryCache cache;
    fmt::print("{:<21}  {:<24} {:>3} {:>7} {:>7} {:>5} {:>5} {:>7} {:>5} {:>5} {:>6}\n",
               "rows, outputs, inputs", "TFLOP/s in short turns:", "of", "short", "steady", "W", "MHz",
               "best", "W", "MHz", "gain %");
    for (const Product& p : products) compare(device, p, seconds, cache.path());
}

}  // namespace

int main(int argc, char** argv) try {
    if (visible_gpus() == 0) throw SystemError(why_no_gpu());
    const auto gpu = open_gpu(0);
    if (argc > 1 && std::string_view(argv[1]) == "--steady") {
        const double seconds = argc > 2 ? number_of("SECONDS", argv[2], 60) : SteadySearch().seconds;
        compare_all(*gpu, seconds, argc > 3 ? int64_t(number_of("SIZE", argv[3], 1e5)) : 0);
        return 0;
    }
    std::vector<Product> products;
    for (int i = 1; i < argc; ++i) {
        const int64_t size = std::max(1, std::atoi(argv[i]));
        products.push_back({size, size, size});
        products.push_back({size, size, size, ProductForm::dw_added});
    }
    if (argc == 1)
        products = {{8192, 8192, 8192},
                    {8192, 28672, 4096},
                    {8192, 4096, 14336},
                    {8192, 28672, 4096, ProductForm::dw_added}};
    for (const Product& p : products) measure(*gpu, p, Dtype::bf16);
    measure(*gpu, products.front(), Dtype::f32);
    return 0;
} catch (const std::exception& error) {
    fmt::print(stderr, "gpu_gemm: {}\n", error.what());
    return 3;
}
