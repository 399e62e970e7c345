// SPDX-License-Identifier: Apache-2.0
// The kernels of image transformers by their definitions.
#include "naive.hpp"
#include "naive_elements.hpp"

namespace coeus::test {

namespace {

int64_t sequence_at(const SequenceRows& rows, int64_t i) {
    return (rows.first + i) / rows.length;
}

void modulate(Exec&, Tensor y, Tensor plus, Tensor x, Tensor shift, Tensor scale, const SequenceRows& rows,
              double base) {
    for (int64_t i = 0; i < x.rows(); ++i)
        for (int64_t j = 0; j < x.cols(); ++j) {
            const int64_t s = sequence_at(rows, i);
            set(y, i, j,
                (plus ? at(plus, i, j) : 0) + (base + at(scale, s, j)) * at(x, i, j) +
                    (shift ? at(shift, s, j) : 0));
        }
}

void modulate_backward(Exec&, Tensor dx, Tensor dshift, Tensor dscale, Tensor dy, Tensor x, Tensor scale,
                       const SequenceRows& rows, double base) {
    for (int64_t s = 0; s < scale.rows(); ++s)
        for (int64_t j = 0; j < x.cols(); ++j) {
            double of_scale = 0, of_shift = 0;
            for (int64_t i = 0; i < x.rows(); ++i) {
                if (sequence_at(rows, i) != s) continue;
                const double d = at(dy, i, j);
                of_scale += d * at(x, i, j);
                of_shift += d;
                set(dx, i, j, (base + at(scale, s, j)) * d);
            }
            set(dscale, s, j, of_scale);
            if (dshift) set(dshift, s, j, of_shift);
        }
}

void activation(Exec&, Tensor y, Tensor x, Activation kind) {
    for (int64_t i = 0; i < x.count(); ++i) {
        const double value = element(x, i);
        set_element(y, i, kind == Activation::silu ? value * sigmoid(value) : gelu(value));
    }
}

void activation_backward(Exec&, Tensor dx, Tensor dy, Tensor x, Activation kind) {
    for (int64_t i = 0; i < x.count(); ++i) {
        const double value = element(x, i), s = sigmoid(value);
        const double slope = kind == Activation::silu ? s + value * s * (1 - s) : gelu_slope(value);
        set_element(dx, i, element(dy, i) * slope);
    }
}

void squared_error(Exec&, Tensor losses, Tensor dprediction, Tensor prediction, Tensor target, Tensor weights,
                   const SequenceRows& rows, const StepScalars& scalars) {
    for (int64_t i = 0; i < prediction.rows(); ++i) {
        const double w = element(weights, sequence_at(rows, i)) * scalars.loss_scale;
        double sum = 0;
        for (int64_t j = 0; j < prediction.cols(); ++j) {
            const double difference = at(prediction, i, j) - at(target, i, j);
            sum += difference * difference;
            if (dprediction) set(dprediction, i, j, w * 2 * difference);
        }
        set_element(losses, i, w * sum);
    }
}

}  // namespace

Kernels with_modulation(Kernels table) {
    table.modulate = modulate;
    table.modulate_backward = modulate_backward;
    table.activation = activation;
    table.activation_backward = activation_backward;
    table.squared_error = squared_error;
    return table;
}

}  // namespace coeus::test
