// SPDX-License-Identifier: Apache-2.0
#include "coeus/deck/command_line.hpp"

#include "coeus/models/hub_model.hpp"
#include "coeus/models/registry.hpp"
#include "coeus/optim/param_groups.hpp"
#include "tensor_parallel.hpp"

#include <algorithm>

namespace coeus {

DeckRules deck_rules() {
    Words built = family_names();
    std::vector<DeckRules::OtherName> other_names;
    for (const OtherFamilyName& other : other_family_names()) {
        built.emplace_back(other.name);
        other_names.push_back({other.name, other.family, other.why});
    }
    std::ranges::sort(built);
    Words families = built;
    families.insert(families.end(), families_not_built().begin(), families_not_built().end());
    return {
        .choices = {{"model.name", families, built, other_names}},
        .family_of_folder = family_of_folder,
        .check_degrees = deck::check_tensor_parallel,
        .check_optimizer = [](const OptimizerOptions& options, const std::vector<ParamGroupOptions>& groups) {
            const ParamGroups checked(options, 0, groups);  // throws if they are not valid
        }};
}

CommandLine parse_command_line(const std::vector<std::string>& arguments, int ranks) {
    return parse_by_rules(arguments, deck_rules(), ranks);
}

CommandLine parse_command_line(const std::vector<std::string>& arguments, const Communicator& ranks) {
    return parse_by_rules(arguments, deck_rules(), ranks);
}

}  // namespace coeus
