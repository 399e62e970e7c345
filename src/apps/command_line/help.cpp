// SPDX-License-Identifier: Apache-2.0
#include "help.hpp"

#include "coeus/base/error.hpp"
#include "coeus/deck/command_line.hpp"

#include <cstdio>

namespace coeus::apps {

int help_options(const Arguments& arguments) {
    const bool markdown = arguments == Arguments{"--markdown"};
    for (const std::string& word : arguments)
        if (!markdown && word.starts_with('-'))
            throw ConfigError(
                "coeus help options: {} cannot be used here; give words that the names of options contain, "
                "or only --markdown",
                word);
    std::fputs((markdown ? options_markdown(deck_rules()) : options_help(deck_rules(), arguments)).c_str(),
               stdout);
    return 0;
}

int help_as(const std::string& form) {
    std::string text;
    if (form == "--man")
        text = man_page();
    else if (form == "--bash")
        text = bash_completion();
    else if (form == "--zsh")
        text = zsh_completion();
    else
        throw ConfigError("coeus help {}: known are --man, --bash and --zsh", form);
    std::fputs(text.c_str(), stdout);
    return 0;
}

}  // namespace coeus::apps
