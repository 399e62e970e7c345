// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt, with one algorithm for each shape: cuBLASLt's first suggestion or, if a search
// was requested, the fastest.
#include "../cuda.hpp"
#include "../launch.hpp"
#include "../libraries/cublaslt.hpp"
#include "../workspace.hpp"
#include "coeus/base/log.hpp"
#include "coeus/device/gpu_monitor.hpp"
#include "coeus/kernels/product_options.hpp"
#include "fastest.hpp"
#include "saved_matrix.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <map>
#include <optional>
#include <thread>
#include <vector>

namespace coeus::cuda {

namespace {

/// Number of runs of an algorithm that are timed together: enough that small products take longer than
/// launching them.
int repeats(const ProductShape& s) {
    constexpr double work = 1e11, most = 20;
    return int(std::clamp(work / (2.0 * double(s.m) * double(s.n) * double(s.k)), 1.0, most));
}

constexpr double infinity = std::numeric_limits<double>::infinity();

bool is_old(const KeptAlgorithm& kept) {
    constexpr int64_t days = 30, seconds_of_day = 86400;
    return !kept.timing || int64_t(time(nullptr)) - kept.timing->date > days * seconds_of_day;
}

/// The handle, the algorithms, and the descriptions of all products met so far.
class Products : public BackendState {
public:
    Products(const Device& device, const ProductOptions& options)
        : recheck_(options.recheck),
          steady_(options.steady),
          sms_(options.sm_margin > 0 ? device.multiprocessors() - options.sm_margin : 0),
          allow_tf32_(options.allow_tf32),
          cache_(options.folder),
          begin_(device.make_timed_event()),
          end_(device.make_timed_event()) {
        COEUS_CHECK_CUBLAS(cublasLtCreate(handle_.out()));
        if (steady_) monitor_ = GpuMonitor::of_bus_id(device.bus_id());
    }

    const std::vector<SearchedProduct>& searched() const { return searched_; }
    SearchedProduct keep(const std::string& problem) {
        const auto at = std::ranges::find(searched_, problem, &SearchedProduct::problem);
        require(at != searched_.end(), "a product that was not searched for cannot be kept");
        const KeptAlgorithm best = with_timing(problem, best_[size_t(at - searched_.begin())], at->best);
        const std::optional<KeptAlgorithm> kept = cache_.find(problem);
        using End = SearchedProduct::End;
        if (!kept) {
            at->end = cache_.keep(best) ? End::kept : End::cannot_be_kept;
        } else if (steady_->replaces && kept->algorithm != best.algorithm) {
            at->end = cache_.replace(best) ? End::replaced : End::cannot_be_kept;
        } else {
            at->end = End::had_been_kept;
            if (at->kept_before) cache_.renew(with_timing(problem, kept->algorithm, *at->kept_before));
        }
        return *at;
    }

    ProductShape shape(const ProductOperands& operands) const {
        return shape_of(operands, sms_, allow_tf32_);
    }

    /// False if the library has no algorithm for the product.
    bool run(Exec& exec, const ProductOperands& operands) {
        const ProductShape product_shape = shape(operands);
        Plan& plan = plans_.try_emplace(product_shape, product_shape).first->second;
        plan.product.set_scales(operands);
        if (!plan.algorithm && plan.is_possible) {
            plan.algorithm = choose({exec, plan.product, product_shape, operands});
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
    /// The first call of a product.
    struct Call {
        Exec& exec;
        const Product& product;
        const ProductShape& shape;
        const ProductOperands& operands;
    };

    std::optional<Algorithm> choose(const Call& call) {
        const std::string problem = call.shape.text();
        const bool may_time = cache_.keeps() && !is_recording(call.exec);
        if (steady_ && may_time) return choose_steady(call, *steady_);
        if (const auto kept = valid(call, cache_.find(problem))) {
            if (may_time && (recheck_ == Recheck::all || (recheck_ == Recheck::old && is_old(*kept))))
                time_again(call, *kept);
            return kept->algorithm;
        }
        const std::vector<Algorithm> suggested = call.product.suggestions(handle_);
        if (suggested.empty()) return std::nullopt;
        if (suggested.size() == 1 || !may_time) return suggested.front();
        const Fastest best = timed<Fastest>(call, suggested, fastest);
        if (!(best.seconds < infinity)) return suggested.front();
        // an algorithm that cannot be kept is not used: the next run might find another one
        const auto kept =
            valid(call, cache_.keep({problem, suggested[size_t(best.number)], timing_of(best.seconds)}));
        return kept ? kept->algorithm : suggested.front();
    }

    std::optional<KeptAlgorithm> valid(const Call& call, const std::optional<KeptAlgorithm>& kept) {
        if (!kept || call.product.takes(handle_, kept->algorithm)) return kept;
        cache_.reject(kept->problem, "cuBLASLt does not take the algorithm in it");
        return std::nullopt;
    }

    static Timing timing_of(double seconds) { return Timing::now(seconds, cuda_versions().driver); }

    /// Compares a kept algorithm with the library's first suggestion. It stays in any case, since other
    /// algorithms give other bits.
    void time_again(const Call& call, const KeptAlgorithm& kept) {
        constexpr double much_longer = 1.05;
        const std::vector<Algorithm> suggested = call.product.suggestions(handle_);
        if (suggested.empty()) return;
        const std::vector<double> seconds =
            timed<std::vector<double>>(call, {kept.algorithm, suggested.front()}, least_seconds);
        if (!(seconds[0] < infinity)) return;
        cache_.renew({kept.problem, kept.algorithm, timing_of(seconds[0])});
        if (seconds[0] > much_longer * seconds[1])
            log::warn(
                "the algorithm kept for the product {} takes {:.3g} ms, and cuBLASLt's first suggestion "
                "{:.3g} ms. It is used nevertheless, so that a resumed run has the same bits. To search "
                "again, delete {}",
                kept.problem, 1e3 * seconds[0], 1e3 * seconds[1], cache_.path_of(kept.problem));
    }

    /// Compares many algorithms at the power limit, also with the kept one, and notes what was found. Returns
    /// the kept one or, if there is none, the best.
    std::optional<Algorithm> choose_steady(const Call& call, const SteadySearch& search) {
        const std::string problem = call.shape.text();
        std::vector<Algorithm> algorithms = call.product.suggestions(handle_, most_suggestions);
        const std::optional<KeptAlgorithm> kept = valid(call, cache_.find(problem));
        if (kept && !number_of(algorithms, kept->algorithm)) algorithms.push_back(kept->algorithm);
        if (algorithms.empty()) return std::nullopt;
        const int had = kept ? *number_of(algorithms, kept->algorithm) : -1;
        std::vector<SteadySpeed> speeds(algorithms.size());
        const Steadiest found = steadiest_of(call, algorithms, had, search.seconds, speeds);
        if (!(found.shortest_turn < infinity)) return kept ? kept->algorithm : algorithms.front();
        SearchedProduct& product = searched_.emplace_back();
        product.problem = problem;
        product.operations = operations_of(problem).value_or(0);
        product.algorithms = int(algorithms.size());
        product.shortest_turn = found.shortest_turn;
        product.of_short_turns = speeds[size_t(found.of_short_turns)];
        product.best = speeds[size_t(found.number)];
        best_.push_back(algorithms[size_t(found.number)]);
        if (!kept) return best_.back();
        product.kept_before = speeds[size_t(had)];
        return kept->algorithm;
    }

    /// What is written about an algorithm after a steady search.
    static KeptAlgorithm with_timing(const std::string& problem, const Algorithm& algorithm,
                                     const SteadySpeed& speed) {
        const Timing::Steady steady = {int(std::lround(speed.watts)), speed.megahertz};
        return {problem, algorithm, Timing::now(speed.seconds, cuda_versions().driver, steady)};
    }

    static std::optional<int> number_of(const std::vector<Algorithm>& algorithms, const Algorithm& one) {
        const auto at = std::ranges::find(algorithms, one);
        return at == algorithms.end() ? std::nullopt : std::optional(int(at - algorithms.begin()));
    }

    /// Fills in the speeds of those that had long turns.
    Steadiest steadiest_of(const Call& call, const std::vector<Algorithm>& algorithms, int kept,
                           double turn_seconds, std::vector<SteadySpeed>& speeds) const {
        const auto energy = [&] { return monitor_ ? monitor_->sample().energy : std::nullopt; };
        std::vector<double> expected(algorithms.size()), joules(algorithms.size()), spent(algorithms.size());
        const auto mean = [&](int number, int runs) {
            const auto i = size_t(number);
            const std::optional<double> before = energy();
            const double seconds = seconds_of(call, algorithms[i], runs, [&] {
                if (!monitor_) return;
                // the clock falls at the beginning of a turn
                constexpr double late = 0.75;
                std::this_thread::sleep_for(std::chrono::duration<double>(late * runs * expected[i]));
                speeds[i].megahertz = monitor_->sample().sm_clock.value_or(0);
            });
            const std::optional<double> after = energy();
            if (before && after) {
                joules[i] += *after - *before;
                spent[i] += seconds * runs;
            }
            return seconds;
        };
        const auto compare = [&](int candidates, FunctionRef<double(int)> seconds) {
            const auto in_short_turn = [&](int i) { return expected[size_t(i)] = seconds(i); };
            return steadiest(candidates, kept, turn_seconds, in_short_turn, mean);
        };
        Steadiest found = timed<Steadiest>(call, algorithms, compare);
        for (size_t i = 0; i < speeds.size(); ++i) {
            if (!(found.means[i] < infinity)) continue;
            speeds[i].seconds = found.means[i];
            if (spent[i] > 0) speeds[i].watts = joules[i] / spent[i];
        }
        return found;
    }

    /// The mean time of a run of an algorithm, of so many one after the other; infinity if it cannot be run.
    /// `meanwhile` is called while they run. The device must be idle, since work of other streams would be
    /// timed as well. Waiting for it cannot deadlock: exchanges with other ranks were submitted before, in
    /// the same order on all ranks.
    double seconds_of(
        const Call& call, const Algorithm& algorithm, int runs, FunctionRef<void()> meanwhile = [] {}) const {
        COEUS_CHECK_CUDA(cudaDeviceSynchronize());
        begin_->record(*call.exec.queue);
        for (int run = 0; run < runs; ++run)
            if (call.product.run(handle_, algorithm, call.operands, state_of(call.exec).stream) !=
                CUBLAS_STATUS_SUCCESS)
                return infinity;
        end_->record(*call.exec.queue);
        meanwhile();
        return end_->seconds_since(*begin_) / runs;
    }

    /// Times the algorithms as `compare` asks for it, on the operands themselves, whose result is
    /// overwritten; a matrix that is accumulated into is restored.
    template <class Result, class Compare>
    Result timed(const Call& call, const std::vector<Algorithm>& algorithms, const Compare& compare) const {
        std::optional<SavedMatrix> saved;
        if (call.shape.adds && call.shape.in_place)
            saved.emplace(call.operands.d, state_of(call.exec).stream);
        const int runs = repeats(call.shape);
        Result result = compare(int(algorithms.size()),
                                [&](int i) { return seconds_of(call, algorithms[size_t(i)], runs); });
        if (saved) saved->restore();
        return result;
    }

    Recheck recheck_;
    std::optional<SteadySearch> steady_;
    std::optional<GpuMonitor> monitor_;  ///< only for steady searches
    std::vector<SearchedProduct> searched_;
    std::vector<Algorithm> best_;  ///< of searched_
    int sms_;
    bool allow_tf32_;
    CublasHandle handle_;
    AlgorithmCache cache_;
    std::unique_ptr<TimedEvent> begin_, end_;
    std::map<ProductShape, Plan> plans_;
};

Products& products_of(Exec& exec) {
    CudaState& state = state_of(exec);
    if (!state.products) state.products = std::make_unique<Products>(*exec.device, state.product_options);
    return static_cast<Products&>(*state.products);
}

}  // namespace

bool multiply_if_possible(Exec& exec, const ProductOperands& operands) {
    return products_of(exec).run(exec, operands);
}

void multiply(Exec& exec, const ProductOperands& operands) {
    if (!multiply_if_possible(exec, operands))
        throw SystemError(fmt::format("cuBLASLt has no algorithm for the product {}",
                                      products_of(exec).shape(operands).text()));
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

std::vector<SearchedProduct> searched_products(Exec& exec) {
    if (exec.device->is_host()) return {};
    return cuda::products_of(exec).searched();
}

SearchedProduct keep_searched(Exec& exec, const std::string& problem) {
    return cuda::products_of(exec).keep(problem);
}

void set_product_options(Exec& exec, const ProductOptions& options) {
    if (exec.device->is_host()) return;
    cuda::CudaState& state = cuda::state_of(exec);
    require(!state.products && !state.grouped_choice,
            "set_product_options must be called before the first product");
    require(options.sm_margin >= 0 && options.sm_margin < exec.device->multiprocessors(),
            "set_product_options: no multiprocessor is left");
    state.product_options = options;
    if (!options.folder.empty())
        state.product_options.folder = fmt::format(
            "{}/{}", options.folder,
            cuda::file_name_of(fmt::format("{}-cublasLt-{}", exec.device->name(), cublasLtGetVersion())));
}

}  // namespace coeus
