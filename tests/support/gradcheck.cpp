// SPDX-License-Identifier: Apache-2.0
#include "support/gradcheck.hpp"

#include "coeus/base/random.hpp"
#include "support/copy_converting.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace coeus::test {

namespace {

constexpr double step = 1e-3;

double normal(const RandomStream& stream, uint64_t index) {
    return normal_quantile(stream.uniform(index));
}

void fill_random(Tensor tensor, const std::string& name) {
    const RandomStream stream(7, name);
    for (int64_t i = 0; i < tensor.count(); ++i) set_element(tensor, i, normal(stream, uint64_t(i)));
}

// A tensor to differentiate with respect to: its elements, and the gradient of the backward.
struct Variable {
    std::string name;
    Tensor at;
    std::vector<double> gradient;
};

class Check {
public:
    Check(Parameters& parameters, const CheckedLayer& layer, TestBatch& batch,
          const GradcheckOptions& options)
        : options_(options), parameters_(parameters), batch_(batch.view()), layer_(layer) {
        if (options.x.rank > 0) x_ = OwnedTensor(Dtype::f64, options.x);
        plan();
        parameters_.allocate(true);
        parameters_.initialise(3, 1);
        spread();
        if (options.x.rank > 0) fill_random(x_, "x");
        if (y_shape_.rank > 0) {
            r_ = OwnedTensor(Dtype::f64, y_shape_);
            dy_ = OwnedTensor(Dtype::f64, y_shape_);
            fill_random(r_, "gradient of y");
        }
        scalars_.loss_scale = 1.0 / double(std::max<int64_t>(1, batch.valid_labels()));
    }

    std::string run() {
        run_backward();
        for (Variable& variable : variables_) {
            compare_entries(variable);
            compare_direction(variable);
        }
        return problems_;
    }

private:
    Tensor x() const { return options_.x.rank > 0 ? x_.view : Tensor{}; }

    void spread() {
        for (const Storage& storage : parameters_.storages())
            for (const Param& param : storage.params()) {
                const RandomStream stream(13, param.name);
                const Tensor w = storage.rows_of(param, storage.master);
                for (int64_t i = 0; i < w.count(); ++i)
                    set_element(w, i, element(w, i) + options_.spread * normal(stream, uint64_t(i)));
            }
    }

    // Runs forward and backward once with kernels that do nothing, to get the sizes of their memory and the
    // shape of y.
    void plan() {
        Exec exec;
        exec.threads = options_.threads;
        Frame frame;
        Arena temp;
        Ctx c{exec, dry_kernels(), frame, temp, batch_, scalars_};
        const Tensor y = layer_.forward(c, x());
        y_shape_ = y.shape;
        layer_.backward(c, y ? Tensor(nullptr, Dtype::f64, y.shape) : Tensor{});
        frame_bytes_ = frame.peak_bytes();
        frame_ = Frame(frame_bytes_, frame.peak_entries());
        temp_ = Arena(temp.peak(), "temporaries");
        exec_.threads = options_.threads;
        exec_.workspace = Arena(exec.workspace.peak(), "workspace");
        temp_bytes_ = temp.peak();
        workspace_bytes_ = exec.workspace.peak();
    }

    Ctx start() {
        frame_.rewind({0, 0});
        temp_.rewind(0);
        poison(frame_, frame_bytes_);
        poison(temp_, temp_bytes_);
        poison(exec_.workspace, workspace_bytes_);
        scalars_.loss = scalars_.losses[decoder_loss::balance] = 0;
        return {exec_, cpu_kernels(), frame_, temp_, batch_, scalars_};
    }

    double value_of(Tensor y) const {
        if (!y) return scalars_.loss;
        double sum = 0;
        for (int64_t i = 0; i < y.count(); ++i) sum += element(y, i) * element(r_, i);
        return sum;
    }

    double value() {
        Ctx c = start();
        const Tensor y = layer_.forward(c, x());
        const double of_forward = value_of(y);
        if (options_.balance_loss) layer_.backward(c, y ? dy_.view : Tensor{});
        return of_forward + scalars_.losses[decoder_loss::balance];
    }

    void run_backward() {
        // gradients are added: begin with a value other than 0
        for (const Storage& storage : parameters_.storages())
            for (int64_t i = 0; i < storage.g.count(); ++i) set_element(storage.g, i, 1);
        const std::vector<double> before = options_.x.rank > 0 ? values(x()) : std::vector<double>{};

        Ctx c = start();
        const Tensor y = layer_.forward(c, x());
        if (!std::isfinite(value_of(y))) problem("the forward gave " + fmt::format("{}", value_of(y)));
        if (y) test::copy_converting(dy_, r_);
        const Tensor dx = layer_.backward(c, y ? dy_.view : Tensor{});
        if (frame_.mark().entries != 0)
            problem(fmt::format("{} tensors are left in the frame", frame_.mark().entries));
        if (frame_.peak_bytes() != frame_bytes_ || temp_.peak() != temp_bytes_ ||
            exec_.workspace.peak() != workspace_bytes_)
            problem(fmt::format("used {}, {}, {} bytes of frame, temp and workspace; planned {}, {}, {}",
                                frame_.peak_bytes(), temp_.peak(), exec_.workspace.peak(), frame_bytes_,
                                temp_bytes_, workspace_bytes_));
        if (options_.x.rank > 0 && values(x()) != before) problem("x was overwritten");

        if (options_.x.rank > 0) variables_.push_back({"x", x_, values(dx)});
        for (const Storage& storage : parameters_.storages())
            for (const Param& param : storage.params()) {
                std::vector<double> g = values(storage.rows_of(param, storage.g));
                for (double& element : g) element -= 1;
                variables_.push_back({param.name, storage.rows_of(param, storage.master), g});
            }
    }

    // The derivative of f along `direction`.
    double difference(const Variable& v, const std::vector<double>& direction) {
        const std::vector<double> start_values = values(v.at);
        const auto at = [&](double distance) {
            for (int64_t i = 0; i < v.at.count(); ++i)
                set_element(v.at, i, start_values[size_t(i)] + distance * direction[size_t(i)]);
            return value();
        };
        const double d = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
        for (int64_t i = 0; i < v.at.count(); ++i) set_element(v.at, i, start_values[size_t(i)]);
        return d;
    }

    void compare_entries(const Variable& v) {
        double squares = 0;
        for (const double g : v.gradient) squares += g * g;
        const double typical = std::sqrt(squares / double(v.gradient.size()));
        for (const uint64_t i : sampled(v)) {
            std::vector<double> direction(v.gradient.size());
            direction[i] = 1;
            compare(fmt::format("{}[{}]", v.name, i), v.gradient[i], difference(v, direction), typical);
        }
    }

    void compare_direction(const Variable& v) {
        const RandomStream stream(11, v.name);
        std::vector<double> direction;
        double along = 0, squares = 0;
        for (size_t i = 0; i < v.gradient.size(); ++i) {
            direction.push_back(normal(stream, i) / std::sqrt(double(v.gradient.size())));
            along += v.gradient[i] * direction[i];
            squares += v.gradient[i] * v.gradient[i];
        }
        compare(v.name + " in a random direction", along, difference(v, direction),
                std::sqrt(squares / double(v.gradient.size())));
    }

    std::set<uint64_t> sampled(const Variable& v) const {
        const uint64_t count = v.gradient.size();
        std::set<uint64_t> indices;
        const RandomStream random(5, v.name);
        for (uint64_t i = 0; indices.size() < std::min(count, uint64_t(options_.entries)); ++i)
            indices.insert(count <= uint64_t(options_.entries) ? i : random.u64(i) % count);
        return indices;
    }

    void compare(const std::string& what, double backward, double differences, double typical) {
        const double scale = std::max({std::fabs(backward), std::fabs(differences), typical, 1e-6});
        // at an infinite scale any error would be small enough
        if (!std::isfinite(scale) || !(std::fabs(backward - differences) <= options_.tolerance * scale))
            problem(fmt::format("{}: backward {}, differences {}", what, backward, differences));
    }

    void problem(const std::string& line) {
        if (++found_ <= 20) problems_ += line + "\n";
    }

    GradcheckOptions options_;
    Parameters& parameters_;
    Batch batch_;
    CheckedLayer layer_;
    OwnedTensor x_, r_, dy_;
    Shape y_shape_;
    StepScalars scalars_;
    Exec exec_;
    Frame frame_;
    Arena temp_;
    int64_t frame_bytes_ = 0, temp_bytes_ = 0, workspace_bytes_ = 0;
    std::vector<Variable> variables_;
    std::string problems_;
    int found_ = 0;
};

}  // namespace

std::string gradcheck(Parameters& parameters, const CheckedLayer& layer, TestBatch batch,
                      const GradcheckOptions& options) {
    return Check(parameters, layer, batch, options).run();
}

std::string gradcheck(const std::function<CheckedLayer(Parameters&)>& build, TestBatch batch,
                      const GradcheckOptions& options) {
    Parameters parameters({Dtype::f64, Dtype::f64});
    const CheckedLayer layer = build(parameters);
    return gradcheck(parameters, layer, std::move(batch), options);
}

}  // namespace coeus::test
