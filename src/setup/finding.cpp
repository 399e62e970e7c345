// SPDX-License-Identifier: Apache-2.0
#include "coeus/setup/finding.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>

namespace coeus {

std::string Finding::line() const {
    switch (severity) {
        case Severity::notice: return "Notice: " + text;
        case Severity::hint: return "Hint: " + text;
        default: return text;
    }
}

bool Finding::is_warning() const {
    return severity == Severity::warning || severity == Severity::refusal ||
           severity == Severity::refusal_here;
}

int64_t Findings::count(Severity severity) const {
    return std::ranges::count(all_, severity, &Finding::severity);
}

std::vector<std::string> Findings::texts(Severity severity) const {
    std::vector<std::string> texts;
    for (const Finding& finding : all_)
        if (finding.severity == severity) texts.push_back(finding.text);
    return texts;
}

int Findings::exit_code(bool strict) const {
    return count(Severity::refusal) > 0 || (strict && count(Severity::refusal_here) > 0) ? 2 : 0;
}

void Findings::require_not_refused() const {
    if (const std::vector<std::string> reasons = texts(Severity::refusal); !reasons.empty())
        throw ConfigError("{}", join(reasons, "\n"));
}

}  // namespace coeus
