// SPDX-License-Identifier: Apache-2.0
// Collects the errors of a deck, so that they can be corrected at once.
#pragma once

#include "coeus/base/text.hpp"
#include "coeus/config/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace coeus::config {

class Errors {
public:
    /// After so many errors, also those that are left out, collect() and demand() throw one ConfigError with
    /// all lines: a file that is not a deck may have a million errors.
    static constexpr int most_errors = 100;

    /// Runs `step` and notes the ConfigError that it throws. `option`: the option that it checks; after an
    /// error, later messages about this option are left out, since they would be about its default.
    template <class Step>
    void collect(Step&& step, const std::string& option = "") {
        try {
            step();
        } catch (const ConfigError& error) {
            add(error.what());
            if (!option.empty()) pass_over(option);
        }
    }
    /// Notes the message unless the rule holds.
    template <class... Args>
    void demand(bool holds, fmt::format_string<Args...> message, Args&&... args) {
        if (!holds) add(fmt::format(message, std::forward<Args>(args)...));
    }
    /// Leaves out later messages that contain the last part of this option's name ("seq_len" of
    /// "training.seq_len"), since they are consequences of an error that was noted already.
    void pass_over(const std::string& option) {
        passed_over_.push_back(option.substr(option.rfind('.') + 1));
    }
    /// Notes a line, whatever was noted before, unless it was noted already.
    void note(const std::string& line) {
        if (std::ranges::find(lines_, line) == lines_.end()) lines_.push_back(line);
    }
    bool any() const { return !lines_.empty(); }
    /// Throws one ConfigError with a line for each error, if there are any.
    void require_none() const {
        if (any()) throw ConfigError("{}", join(lines_, "\n"));
    }

private:
    void add(const std::string& line) {
        const bool follows = std::ranges::any_of(
            passed_over_, [&](const std::string& part) { return line.find(part) != std::string::npos; });
        if (!follows) note(line);
        if (++found_ < most_errors) return;
        note(fmt::format("the first {} errors are shown; there may be more", most_errors));
        require_none();
    }

    Words lines_, passed_over_;
    int found_ = 0;
};

}  // namespace coeus::config
