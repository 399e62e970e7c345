// SPDX-License-Identifier: Apache-2.0
// Optimizer: the rule by which the parameters of a group are updated. It says what state it keeps of each;
// storages, checkpoints, snapshots and the memory plan take names, sizes and types from there.
#pragma once

#include "coeus/optim/options.hpp"
#include "coeus/state/parameters.hpp"

#include <memory>
#include <string>
#include <vector>

namespace coeus {

class MatrixOptimizer;

class Optimizer {
public:
    virtual ~Optimizer() = default;

    /// What it keeps of a parameter, at most OwnedRows::most_moments tensors.
    virtual std::vector<Moment> moments(const StateTypes& types) const = 0;
    /// Whether it is for a parameter, if a deck does not name it for that parameter's group.
    virtual bool is_for(const Param&) const { return true; }
    /// Whether it can update a parameter at all.
    virtual bool can_take(const Param&) const { return true; }
    /// What the step (from 1) needs beside the learning rate.
    virtual void begin_step(uint64_t step, GroupScalars& scalars) const = 0;
    /// One pass over rows that this rank owns. Nothing is written where scalars.refusals is not 0.
    virtual void update(Exec& exec, const Kernels& kernels, const OwnedRows& rows,
                        const StepScalars& scalars) const = 0;
    /// Itself, if it looks at whole matrices; else null.
    virtual const MatrixOptimizer* of_matrices() const { return nullptr; }
};

/// An optimizer whose update of a row needs the whole matrix. update() puts a direction into the gradient;
/// transform() changes it, whole; descend() takes the step along it.
class MatrixOptimizer : public Optimizer {
public:
    const MatrixOptimizer* of_matrices() const override { return this; }
    /// `direction`: [rows, cols] of the parameter's global shape, in the compute type; in place.
    virtual void transform(Exec& exec, const Kernels& kernels, const Param& param, Tensor direction,
                           Arena& scratch) const = 0;
    /// One pass over rows that this rank owns, whose gradient is the direction. Nothing is written where
    /// scalars.refusals is not 0.
    virtual void descend(Exec& exec, const Kernels& kernels, const OwnedRows& rows,
                         const StepScalars& scalars) const = 0;
};

/// An optimizer by its name; `seed`: of stochastic rounding; `group`: whose scalars of a step it reads.
/// ConfigError for a name that none has, or an option that cannot be; it begins with the option's name.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, uint64_t seed, size_t group);
/// The names that make_optimizer() knows.
std::vector<std::string> optimizer_names();
/// Whether an optimizer reads an option ("momentum").
bool reads_option(const std::string& optimizer, const std::string& option);
/// The optimizer of the parameters that one is not for; "": it is for all.
std::string substitute_of(const std::string& optimizer);

}  // namespace coeus
