// SPDX-License-Identifier: Apache-2.0
#include "samples.hpp"

#include "coeus/base/text.hpp"

#include <fmt/format.h>

#include <map>

namespace coeus::report {

namespace {

// The last step is shown; a click shows another one.
std::string samples_of(const RunData& run) {
    std::map<int64_t, std::string> rows_of_steps;
    for (const WrittenSample& sample : run.samples)
        rows_of_steps[sample.step] += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n",
                                                  markup_of(sample.prompt), markup_of(sample.text));
    std::string html;
    for (const auto& [step, rows] : rows_of_steps)
        html += fmt::format(
            "<details{}><summary>Step {}</summary><table class=\"samples\"><tbody>\n{}</tbody></table>"
            "</details>\n",
            step == rows_of_steps.rbegin()->first ? " open" : "", with_commas(step), rows);
    return html;
}

}  // namespace

std::string samples_html(const std::vector<RunData>& runs) {
    std::string html;
    for (const RunData& run : runs) {
        if (run.samples.empty()) continue;
        if (runs.size() > 1) html += "<h2 class=\"run\">" + markup_of(run.name) + "</h2>";
        html += samples_of(run);
    }
    return html.empty() ? ""
                        : "<section class=\"card\"><h2>Texts of validations</h2>" + html + "</section>\n";
}

}  // namespace coeus::report
