// SPDX-License-Identifier: Apache-2.0
// coeus.1, from the table of commands.
#include "coeus/base/version.hpp"
#include "help.hpp"

#include <fmt/format.h>

#include <sstream>

namespace coeus::apps {

namespace {

// Text that no character of which is a command to troff.
std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '\\')
            out += "\\e";
        else if (c == '-')
            out += "\\-";
        else
            out += c;
    }
    return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

// Lines as one paragraph; lines that begin with a space keep their form.
std::string paragraph(const std::string& text) {
    std::string out;
    std::istringstream lines(text);
    bool keeps_form = false;
    for (std::string line; std::getline(lines, line);) {
        if (keeps_form != line.starts_with(' ')) {
            keeps_form = !keeps_form;
            out += keeps_form ? ".PP\n.nf\n" : ".fi\n";
        }
        out += escaped(line) + "\n";
    }
    return keeps_form ? out + ".fi\n" : out;
}

std::string section_of(const Command& command) {
    const Flags flags = command.help();
    std::string text = fmt::format(".SS {}\n.B coeus {}\n{}\n.PP\n{}", command.name, command.name,
                                   escaped(flags.usage()), paragraph(flags.meaning()));
    for (const Flags::Flag& flag : flags.all()) {
        text += fmt::format(".TP\n.B \\-\\-{}\n", escaped(flag.name));
        if (!flag.is_switch)
            text.insert(text.size() - 1, fmt::format(" \\fI{}\\fR", escaped(flag.value_name)));
        text += escaped(flag.meaning) + "\n";
        if (!flag.default_value.empty()) text += fmt::format("(default {})\n", escaped(flag.default_value));
    }
    return text;
}

constexpr const char* description =
    R"(.SH DESCRIPTION
Coeus pre\-trains large language models on HPC clusters.
A deck, a TOML file, describes a run.
.B coeus train
checks it, plans the memory of every rank, trains, and saves checkpoints.
The same command resumes from the newest checkpoint, on any number of ranks.
.PP
.B coeus help options
prints every option of a deck with its meaning and default.
)";

constexpr const char* after_commands =
    R"(.SH EXIT STATUS
.TP
.B 0
complete
.TP
.B 2
deck, command line or data is wrong
.TP
.B 3
the system failed: MPI, HDF5, a file
.TP
.B 4
loss, gradient or weights are not finite, or loss spikes persist
.TP
.B 75
stopped by a signal or at the end of the job's time, and saved if there was time: the same command resumes
)";

}  // namespace

std::string man_page() {
    std::string text = fmt::format(
        ".\\\" made by `coeus help --man`\n.TH COEUS 1 \"\" \"Coeus {}\" \"User Commands\"\n"
        ".SH NAME\ncoeus \\- pre\\-trains large language models on HPC clusters\n.SH SYNOPSIS\n",
        version());
    for (const Command& command : commands())
        text += fmt::format(".B coeus {}\n{}\n.br\n", command.name, escaped(command.help().usage()));
    text += ".B coeus help\n[COMMAND | options]\n.br\n.B coeus \\-\\-version\n";
    text += description;
    text += ".SH COMMANDS\n";
    for (const Command& command : commands()) text += section_of(command);
    return text + after_commands;
}

}  // namespace coeus::apps
