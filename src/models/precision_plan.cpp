// SPDX-License-Identifier: Apache-2.0
#include "coeus/models/precision_plan.hpp"

#include "coeus/base/text.hpp"
#include "coeus/models/titan_names.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>

namespace coeus {

namespace {

using Names = std::vector<std::string>;

// The name of a layer, or of the module of experts, also in torchtitan's newest version.
Names names_of(const std::string& parameter) {
    Names names = {parameter, newest_titan_name(parameter)};
    for (std::string& name : names) name.erase(name.rfind('.'));
    return names;
}

bool has(const Names& names, const std::string& part) {
    return std::ranges::any_of(names,
                               [&](const std::string& name) { return name.find(part) != std::string::npos; });
}

// The first part that one of the names has; null if there is none.
const std::string* part_in(const Names& names, const Names& parts) {
    const auto found = std::ranges::find_if(parts, [&](const std::string& part) { return has(names, part); });
    return found == parts.end() ? nullptr : &*found;
}

bool fits(Recipe recipe, int64_t outputs, int64_t inputs) {
    return outputs % multiple_of(recipe) == 0 && inputs % multiple_of(recipe) == 0;
}

// torchao's sizes, measured on an H100: layers of which 8 bits are not faster.
bool is_small(Recipe recipe, int64_t outputs, int64_t inputs) {
    if (recipe == Recipe::tensorwise) return inputs <= 4096 && outputs <= 1024;
    return recipe == Recipe::rowwise &&
           (outputs <= 2048 || inputs <= 1024 || (outputs <= 4096 && inputs <= 2048));
}

Stays why_linear_stays(const Precision& precision, const Names& names, int64_t outputs, int64_t inputs) {
    if (precision.linear == Recipe::none) return Stays::unasked;
    if (part_in(names, precision.filter_fqns)) return Stays::filtered;
    if (!precision.fqns.empty() && !part_in(names, precision.fqns)) return Stays::unlisted;
    if (!fits(precision.linear, outputs, inputs)) return Stays::side;
    const bool leaves_out_small = std::ranges::count(precision.filter_fqns, auto_filter) > 0;
    return leaves_out_small && is_small(precision.linear, outputs, inputs) ? Stays::too_small : Stays::no;
}

Stays why_experts_stay(const Precision& precision, const Names& names, int64_t outputs, int64_t inputs) {
    if (precision.experts == Recipe::none) return Stays::unasked;
    if (!part_in(names, precision.expert_fqns)) return Stays::unlisted;
    return fits(precision.experts, outputs, inputs) ? Stays::no : Stays::side;
}

Stays why_stays(const Precision& precision, const LayerMatrix& matrix) {
    if (matrix.recipe != Recipe::none) return Stays::no;
    if (matrix.always_stays) return Stays::always;
    const Stays why = (matrix.of_experts ? why_experts_stay : why_linear_stays)(
        precision, names_of(matrix.parameter), matrix.outputs, matrix.inputs);
    return why == Stays::no ? Stays::always : why;
}

// A name with the number of a layer between two parts: "layers.", 3, ".attention.wq"; -1: no number.
struct Numbered {
    std::string before, after;
    int64_t number = -1;
};

Numbered numbered(const std::string& name) {
    for (size_t at = name.find('.'); at != std::string::npos; at = name.find('.', at + 1)) {
        size_t end = at + 1;
        while (end < name.size() && isdigit(uint8_t(name[end]))) ++end;
        if (end > at + 1 && end < name.size() && name[end] == '.')
            return {name.substr(0, at + 1), name.substr(end), std::stoll(name.substr(at + 1, end - at - 1))};
    }
    return {name, ""};
}

// The parts of names: "layers.0", "layers.0.attention.wq", "attention.wq", "wq" and others.
Names parts_of(const std::vector<Names>& layers) {
    std::set<std::string> all;
    for (const Names& names : layers)
        for (const std::string& name : names)
            for (size_t from = 0; from < name.size(); ++from) {
                if ((from > 0 && name[from - 1] != '.') || isdigit(uint8_t(name[from]))) continue;
                for (size_t to = from; to <= name.size(); ++to)
                    if (to == name.size() || name[to] == '.') all.insert(name.substr(from, to - from));
            }
    return {all.begin(), all.end()};
}

// The part that is nearest to a wrong one. Among those equally near, one with as many dots.
std::string nearest_part(const std::string& wrong, Names parts) {
    std::ranges::stable_sort(parts, {}, [&](const std::string& part) {
        return std::abs(std::ranges::count(part, '.') - std::ranges::count(wrong, '.'));
    });
    return nearest_name(wrong, parts);
}

}  // namespace

Recipe recipe_of_linear(const Precision& precision, const std::string& parameter, int64_t outputs,
                        int64_t inputs) {
    const Stays why = why_linear_stays(precision, names_of(parameter), outputs, inputs);
    return why == Stays::no ? precision.linear : Recipe::none;
}

Recipe recipe_of_experts(const Precision& precision, const std::string& parameter, int64_t outputs,
                         int64_t inputs) {
    const Stays why = why_experts_stay(precision, names_of(parameter), outputs, inputs);
    return why == Stays::no ? precision.experts : Recipe::none;
}

std::vector<MatrixGroup> matrix_groups(const Precision& precision, const std::vector<LayerMatrix>& matrices) {
    struct Members {
        Numbered name;
        std::vector<int64_t> numbers;
    };
    std::vector<MatrixGroup> groups;
    std::vector<Members> members;
    for (const LayerMatrix& matrix : matrices) {
        const std::string name = matrix.of_experts ? matrix.parameter : names_of(matrix.parameter).front();
        MatrixGroup group = {.name = "",
                             .outputs = matrix.outputs,
                             .inputs = matrix.inputs,
                             .of_experts = matrix.of_experts,
                             .recipe = matrix.recipe,
                             .stays = why_stays(precision, matrix)};
        if (group.stays == Stays::filtered)
            group.filter = *part_in(names_of(matrix.parameter), precision.filter_fqns);
        const Numbered parts = numbered(name);
        size_t i = 0;
        while (i < groups.size() &&
               (members[i].name.before != parts.before || members[i].name.after != parts.after ||
                groups[i].outputs != group.outputs || groups[i].inputs != group.inputs ||
                groups[i].recipe != group.recipe || groups[i].stays != group.stays ||
                groups[i].filter != group.filter))
            ++i;
        if (i == groups.size()) {
            groups.push_back(std::move(group));
            members.push_back({parts, {}});
        }
        ++groups[i].count;
        members[i].numbers.push_back(parts.number);
    }
    for (size_t i = 0; i < groups.size(); ++i) {
        const Numbered& name = members[i].name;
        groups[i].name =
            name.number < 0 ? name.before : name.before + ranges_text(members[i].numbers) + name.after;
    }
    return groups;
}

std::vector<UnusedPart> unused_parts(const Precision& precision, const std::vector<LayerMatrix>& matrices) {
    using enum UnusedPart::List;
    std::vector<LayerMatrix> linear, experts;
    for (const LayerMatrix& matrix : matrices) (matrix.of_experts ? experts : linear).push_back(matrix);
    std::vector<UnusedPart> unused;
    const auto look = [&](UnusedPart::List list, const Names& parts, const std::vector<LayerMatrix>& all) {
        std::vector<Names> names;
        for (const LayerMatrix& matrix : all) names.push_back(names_of(matrix.parameter));
        const Names known = parts.empty() ? Names() : parts_of(names);
        for (const std::string& part : parts) {
            const auto is_hit = [&](const Names& its) { return has(its, part); };
            if ((list == filter_fqns && part == auto_filter) || std::ranges::any_of(names, is_hit)) continue;
            unused.push_back({list, part, nearest_part(part, known)});
        }
    };
    if (precision.linear != Recipe::none) {
        look(filter_fqns, precision.filter_fqns, linear);
        look(fqns, precision.fqns, linear);
    }
    if (precision.experts != Recipe::none) look(expert_fqns, precision.expert_fqns, experts);
    return unused;
}

}  // namespace coeus
