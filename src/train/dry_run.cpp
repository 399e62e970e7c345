// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/dry_run.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "coeus/train/preflight.hpp"

#include <filesystem>
#include <string>
#include <system_error>

namespace coeus {

namespace {

// Writes the effective deck where job.save_config_file asks for it.
void save_deck(const Config& config) {
    const std::string& name = config.job.save_config_file;
    if (name.empty()) return;
    const auto file = std::filesystem::path(config.job.dump_folder) / name;
    std::error_code failed;
    if (exists_patiently(file))
        throw ConfigError(
            "job.save_config_file = \"{}\": {} already exists, and a dry run does not replace files; "
            "choose another name",
            name, file.string());
    std::filesystem::create_directories(file.parent_path(), failed);
    if (failed)
        throw ConfigError(
            "job.save_config_file: cannot create the folder {}: {}; choose a folder that you may write "
            "to",
            file.parent_path().string(), failed.message());
    write_whole_file(file, deck_text(config));
    log::info("Wrote the effective deck: {}", file.string());
}

}  // namespace

int dry_run(const CommandLine& command_line, int world_size) {
    using enum Finding::Severity;
    const Config& config = command_line.config;
    const int ranks = command_line.ranks > 0 ? command_line.ranks : world_size;
    if (config.job.print_config)
        log::info("The effective deck:\n{}", deck_text(config, command_line.origins));
    const Findings found = preflight(command_line, ranks);
    for (const Finding& finding : found)
        log::write(finding.is_warning() ? log::Level::warn : log::Level::info, finding.line());
    const int64_t reasons = found.count(refusal) + found.count(refusal_here);
    save_deck(config);
    if (reasons == 0)
        log::info("Dry run: deck and mesh are valid; {}nothing was run",
                  found.count(unknown) == 0 ? "" : "it is not known whether a rank fits into its GPU; ");
    else
        log::warn(
            "Dry run: deck and mesh are valid, but a run would be refused ({} reason{} above); nothing was "
            "run",
            reasons, reasons == 1 ? "" : "s");
    return found.exit_code(command_line.strict);
}

}  // namespace coeus
