// SPDX-License-Identifier: Apache-2.0
// The sub-commands of the program, one file each. A new one needs a file here and a line in commands.cpp.
#pragma once

#include "coeus/config/command_flags.hpp"

#include <string>
#include <vector>

namespace coeus::apps {

using Arguments = std::vector<std::string>;  ///< the words after the sub-command

struct Command {
    const char* name;
    const char* summary;                     ///< one line for `coeus help`
    int (*run)(const Arguments& arguments);  ///< returns the exit code; throws the errors of base/error.hpp
    Flags (*help)();                         ///< usage, meaning and flags
    bool takes_options = false;              ///< takes the options of a deck, too
    bool needs_stdout = true;                ///< its result is what it prints: exit code 3 if that is lost
    bool shares_work = false;                ///< among MPI ranks; otherwise one of mpirun's processes works
};

const std::vector<Command>& commands();

}  // namespace coeus::apps
