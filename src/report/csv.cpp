// SPDX-License-Identifier: Apache-2.0
// CSV as in RFC 4180, but with the line ends of this system.
#include "coeus/report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace coeus {

namespace {

std::string quoted(const std::string& text) {
    if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
    std::string q = "\"";
    for (const char c : text) q += c == '"' ? std::string("\"\"") : std::string(1, c);
    return q + "\"";
}

// The fields of all runs, in the order of the first run that has them.
std::vector<std::string> fields_of(const std::vector<RunData>& runs) {
    std::vector<std::string> fields;
    for (const RunData& run : runs)
        for (const std::string& field : run.fields)
            if (std::find(fields.begin(), fields.end(), field) == fields.end()) fields.push_back(field);
    return fields;
}

}  // namespace

std::string report_csv(const std::vector<RunData>& runs) {
    const std::vector<std::string> fields = fields_of(runs);
    std::string text = "run,step";
    for (const std::string& field : fields) text += "," + quoted(field);
    text += '\n';
    for (const RunData& run : runs) {
        std::set<int64_t> steps;
        for (const auto& [field, values] : run.series)
            for (const auto& [step, value] : values) steps.insert(step);
        for (const int64_t step : steps) {
            text += fmt::format("{},{}", quoted(run.name), step);
            for (const std::string& field : fields) {
                const MetricSeries& values = run.of(field);
                const auto found = values.find(step);
                text += found == values.end() ? "," : fmt::format(",{}", found->second);
            }
            text += '\n';
        }
    }
    return text;
}

}  // namespace coeus
