// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt, with one algorithm for each shape: cuBLASLt's first suggestion or, if a search
// was requested, the fastest.
#include "algorithm_cache.hpp"
#include "coeus/base/clock.hpp"
#include "coeus/kernels/autotune.hpp"
#include "cublaslt.hpp"
#include "cuda.hpp"
#include "fastest.hpp"
#include "launch.hpp"
#include "workspace.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <vector>

namespace coeus::cuda {

namespace {

/// A copy of a matrix on the host, while a search overwrites the matrix.
class SavedMatrix {
public:
    SavedMatrix(const Tensor& t, cudaStream_t stream)
        : matrix_(t),
          stream_(stream),
          row_bytes_(size_t(t.cols() * size_of(t.dtype))),
          pitch_(size_t(t.ld * size_of(t.dtype))),
          rows_(size_t(t.rows()) * row_bytes_) {
        copy(rows_.data(), row_bytes_, matrix_.data, pitch_);
    }
    void restore() { copy(matrix_.data, pitch_, rows_.data(), row_bytes_); }

private:
    void copy(void* to, size_t to_pitch, const void* from, size_t from_pitch) const {
        COEUS_CHECK_CUDA(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes_, size_t(matrix_.rows()),
                                           cudaMemcpyDefault, stream_));
        COEUS_CHECK_CUDA(cudaStreamSynchronize(stream_));
    }

    Tensor matrix_;
    cudaStream_t stream_;
    size_t row_bytes_, pitch_;
    std::vector<std::byte> rows_;
};

/// Number of runs of an algorithm that are timed together: enough that small products take longer than
/// launching them.
int repeats(const ProductShape& s) {
    constexpr double work = 1e11, most = 20;
    return int(std::clamp(work / (2.0 * double(s.m) * double(s.n) * double(s.k)), 1.0, most));
}

/// The handle, the algorithms, and the descriptions of all products met so far.
class Products : public BackendState {
public:
    explicit Products(const std::string& folder) : cache_(folder) {
        COEUS_CHECK_CUBLAS(cublasLtCreate(handle_.out()));
    }

    /// False if the library has no algorithm for the product.
    bool run(Exec& exec, const ProductOperands& operands) {
        const ProductShape shape = shape_of(operands);
        Plan& plan = plans_.try_emplace(shape, shape).first->second;
        plan.product.set_scales(operands);
        if (!plan.algorithm && plan.is_possible) {
            plan.algorithm = choose(exec, plan.product, shape, operands);
            plan.is_possible = plan.algorithm.has_value();
        }
        if (plan.algorithm)
            COEUS_CHECK_CUBLAS(plan.product.run(handle_, *plan.algorithm, operands, state_of(exec).stream));
        return plan.is_possible;
    }

private:
    struct Plan {
        explicit Plan(const ProductShape& shape) : product(shape) {}
        Product product;
        std::optional<Algorithm> algorithm;
        bool is_possible = true;
    };

    std::optional<Algorithm> choose(Exec& exec, const Product& product, const ProductShape& shape,
                                    const ProductOperands& operands) {
        if (const auto kept = valid(product, shape, cache_.find(shape.text()))) return *kept;
        const std::vector<Algorithm> suggested = product.suggestions(handle_);
        if (suggested.empty()) return std::nullopt;
        if (suggested.size() == 1 || !cache_.keeps() || is_recording(exec)) return suggested.front();
        const Algorithm best = search(product, shape, suggested, operands, state_of(exec).stream);
        // an algorithm that cannot be kept is not used: the next run might find another one
        return valid(product, shape, cache_.keep(shape.text(), best)).value_or(suggested.front());
    }

    std::optional<Algorithm> valid(const Product& product, const ProductShape& shape,
                                   const std::optional<Algorithm>& kept) {
        if (!kept || product.takes(handle_, *kept)) return kept;
        cache_.reject(shape.text(), "cuBLASLt does not take the algorithm in it");
        return std::nullopt;
    }

    /// Times the algorithms on the operands themselves, whose result is overwritten; a matrix that is
    /// accumulated into is restored. The device must be idle, since work of other streams would be timed as
    /// well. Waiting for it cannot deadlock: exchanges with other ranks were submitted before, in the same
    /// order on all ranks.
    Algorithm search(const Product& product, const ProductShape& shape,
                     const std::vector<Algorithm>& suggested, const ProductOperands& operands,
                     cudaStream_t stream) const {
        std::optional<SavedMatrix> saved;
        if (shape.adds && shape.in_place) saved.emplace(operands.d, stream);
        const int runs = repeats(shape);
        const int best = fastest(int(suggested.size()), [&](int i) {
            COEUS_CHECK_CUDA(cudaDeviceSynchronize());
            const Timer timer;
            for (int run = 0; run < runs; ++run)
                if (product.run(handle_, suggested[size_t(i)], operands, stream) != CUBLAS_STATUS_SUCCESS)
                    return std::numeric_limits<double>::infinity();
            COEUS_CHECK_CUDA(cudaStreamSynchronize(stream));
            return timer.seconds() / runs;
        });
        if (saved) saved->restore();
        return suggested[size_t(best)];
    }

    CublasHandle handle_;
    AlgorithmCache cache_;
    std::map<ProductShape, Plan> plans_;
};

Products& products_of(CudaState& state) {
    if (!state.products) state.products = std::make_unique<Products>(state.algorithms_folder);
    return static_cast<Products&>(*state.products);
}

}  // namespace

bool multiply_if_possible(Exec& exec, const ProductOperands& operands) {
    return products_of(state_of(exec)).run(exec, operands);
}

void multiply(Exec& exec, const ProductOperands& operands) {
    if (!multiply_if_possible(exec, operands))
        throw SystemError(
            fmt::format("cuBLASLt has no algorithm for the product {}", shape_of(operands).text()));
}

void Cuda::gemm(Exec& exec, Tensor d, Operand a, Operand b, Tensor c) {
    const int64_t m = d.rows(), n = d.cols(), k = a.is_transposed ? a.tensor.rows() : a.tensor.cols();
    require((a.is_transposed ? a.tensor.cols() : a.tensor.rows()) == m &&
                (b.is_transposed ? b.tensor.rows() : b.tensor.cols()) == n &&
                (b.is_transposed ? b.tensor.cols() : b.tensor.rows()) == k &&
                (!c || (c.rows() == m && c.cols() == n && c.dtype == d.dtype)) &&
                a.tensor.dtype == b.tensor.dtype,
            "gemm: the operands' shapes do not fit");
    if (m == 0 || n == 0) return;
    if (k == 0) {
        if (!c) return zero(exec, d);
        if (c.data != d.data) cast(exec, d, c);
        return;
    }
    const Scope scope(exec.workspace);
    const Tensor workspace = exec.workspace.alloc(Dtype::u8, {workspace::gemm(d, a.tensor)});
    multiply(exec, {d, a, b, c ? c : d, workspace, bool(c)});
}

}  // namespace coeus::cuda

namespace coeus {

void autotune_products(Exec& exec, const std::string& folder) {
    if (exec.device->is_host() || folder.empty()) return;
    cuda::CudaState& state = cuda::state_of(exec);
    require(!state.products, "autotune_products must be called before the first product");
    state.algorithms_folder = fmt::format(
        "{}/{}", folder,
        cuda::file_name_of(fmt::format("{}-cublasLt-{}", exec.device->name(), cublasLtGetVersion())));
}

}  // namespace coeus
