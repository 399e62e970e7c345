// SPDX-License-Identifier: Apache-2.0
// Init: the initial values of a parameter.
#pragma once

namespace coeus {

/// Initial values: a function of the seed, the parameter's name and the global element index, so that any
/// mesh and any device start from the same model.
struct Init {
    double constant = 0;  ///< value of every element if std is 0
    double std = 0;       ///< of a normal distribution with mean 0
    double bound = 0;     ///< the distribution is truncated to +-bound; 0: no bound. Uniform if std is 0

    static Init ones() { return {.constant = 1}; }
    static Init normal(double std) { return {.std = std}; }
    static Init truncated_normal(double std, double bound) { return {.std = std, .bound = bound}; }
    static Init uniform(double bound) { return {.bound = bound}; }
};

}  // namespace coeus
