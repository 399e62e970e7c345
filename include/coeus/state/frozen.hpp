// SPDX-License-Identifier: Apache-2.0
// Frozen: the parameters that a run does not train (model.frozen). They have weights, and nothing else: no
// gradient, no moments, no place in the plan for these, and no traffic.
#pragma once

#include "coeus/base/regex.hpp"

#include <memory>
#include <string>
#include <vector>

namespace coeus {

class Parameters;

class Frozen {
public:
    /// Nothing is frozen.
    Frozen() = default;
    /// `patterns`: regular expressions. A parameter is frozen if one of them matches a part of its name
    /// ("layers.0.attention.wq.weight"). ConfigError for what is not a regular expression.
    explicit Frozen(const std::vector<std::string>& patterns);

    bool takes(const std::string& parameter) const;
    /// ConfigError for a pattern that matches no parameter that gradients train, and if none is left to
    /// train.
    void require_sensible(const Parameters& parameters) const;
    /// The patterns, separated by commas.
    std::string text() const;
    /// "7 of 23 parameters, 1,024 of 9,216 elements"; "" if nothing is frozen.
    static std::string text(const Parameters& parameters);

private:
    struct Pattern {
        std::string text;
        Regex regex;
    };
    std::shared_ptr<const std::vector<Pattern>> patterns_;  // null: none
};

}  // namespace coeus
