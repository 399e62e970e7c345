// SPDX-License-Identifier: Apache-2.0
// Options of the sub-commands that have no deck: words, and --name value or --name=value.
#pragma once

#include "commands.hpp"

#include <cstdint>
#include <map>
#include <optional>

namespace coeus::apps {

class Options {
public:
    /// `command` for messages; `names`: the options there are, without dashes. ConfigError: an unknown option
    /// (with the nearest name), one without its value, one given twice.
    Options(const char* command, const Arguments& arguments, const std::vector<std::string>& names);

    /// What is no option, in order.
    const Arguments& words() const { return words_; }
    /// The same where there must be at least one; `what` it is, for the message: "a text file or folder".
    const Arguments& words(const char* what) const;
    std::optional<std::string> find(const std::string& name) const;
    /// ConfigError where it was not given.
    std::string text(const std::string& name) const;
    /// ConfigError where it is no whole number of at least `least`.
    int64_t integer(const std::string& name, int64_t otherwise, int64_t least) const;

private:
    std::string command_;
    Arguments words_;
    std::map<std::string, std::string> values_;
};

}  // namespace coeus::apps
