// SPDX-License-Identifier: Apache-2.0
// Optimizer: the rule by which the parameters of a group are updated. It declares what state it keeps for
// each parameter; storages, checkpoints, snapshots and the memory plan take names, sizes and types from
// there.
#pragma once

#include "coeus/deck_names/optimizers.hpp"
#include "coeus/state/parameters.hpp"

#include <memory>
#include <string>
#include <vector>

namespace coeus {

class MatrixOptimizer;

class Optimizer {
public:
    virtual ~Optimizer() = default;

    /// The state that it keeps for a parameter: at most OwnedRows::most_moments tensors.
    virtual std::vector<Moment> moments(const StateTypes& types) const = 0;
    /// True if it updates the parameter when a deck does not name an optimizer for the parameter's group.
    virtual bool is_for(const Param&) const { return true; }
    /// True if it is able to update the parameter.
    virtual bool can_take(const Param&) const { return true; }
    /// Sets the values that a step (counted from 1) needs besides the learning rate.
    virtual void begin_step(uint64_t step, GroupScalars& scalars) const = 0;
    /// Updates rows that this rank owns, in one sweep. Writes nothing if scalars.refusals is not 0.
    virtual void update(Exec& exec, const Kernels& kernels, const OwnedRows& rows,
                        const StepScalars& scalars) const = 0;
    /// The optimizer itself if it needs whole matrices; else null.
    virtual const MatrixOptimizer* of_matrices() const { return nullptr; }
};

/// An optimizer whose update of a row needs the whole matrix. update() replaces the gradient by a direction,
/// transform() changes the direction of a whole matrix, and descend() takes the step along it.
class MatrixOptimizer : public Optimizer {
public:
    const MatrixOptimizer* of_matrices() const override { return this; }
    /// Changes `direction`, [rows, cols] of the parameter's global shape, in the compute type, in place.
    virtual void transform(Exec& exec, const Kernels& kernels, const Param& param, Tensor direction,
                           Arena& scratch) const = 0;
    /// Updates rows that this rank owns, whose gradient is the direction, in one sweep. Writes nothing if
    /// scalars.refusals is not 0.
    virtual void descend(Exec& exec, const Kernels& kernels, const OwnedRows& rows,
                         const StepScalars& scalars) const = 0;
};

/// Makes an optimizer by its name. `seed` is that of stochastic rounding. `group` is the number of the
/// parameter group whose scalars it reads. ConfigError for an unknown name or an invalid option; the message
/// begins with the option's name.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, uint64_t seed, size_t group);

}  // namespace coeus
