// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_parts.hpp"

#include "coeus/base/error_text.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/file/host_error.hpp"
#include "coeus/file/raw_file.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>

namespace coeus::checkpoint_format {

namespace fs = std::filesystem;

namespace {

constexpr const char* folder_attribute = "parts";
constexpr const char* count_attribute = "files";
constexpr const char* folder_ending = ".parts";
constexpr int64_t most_parts = 1 << 16;

/// The checkpoint to which a folder of parts belongs: "step-00000100" for "step-00000100.parts.1"; "" for
/// other folders.
std::string owner_of(const std::string& folder) {
    const size_t ending = folder.find(folder_ending);
    if (ending == std::string::npos) return "";
    const std::string owner = folder.substr(0, ending),
                      rest = folder.substr(ending + std::string(folder_ending).size());
    const bool numbered = rest.empty() || (rest.size() > 1 && rest[0] == '.' &&
                                           rest.find_first_not_of("0123456789", 1) == std::string::npos);
    return numbered && (owner.starts_with("step-") || owner.starts_with("model-")) ? owner : "";
}

/// The file itself, after links.
fs::path after_links(const std::string& file) {
    fs::path found = file;
    std::error_code failed;
    const int reached = patiently(file, [&] {
        if (fs::is_symlink(fs::symlink_status(file, failed))) found = fs::canonical(file, failed);
        errno = failed.value();
        return failed ? -1 : 0;
    });
    if (reached < 0) throw ReadError(fmt::format("{} cannot be read: {}", file, failed.message()));
    return found;
}

/// The folder of parts to which a file links; "" if it links to none; none if it is damaged or is not an HDF5
/// file. ReadError if the system cannot tell, or does not allow to read it: it may link to any.
std::optional<std::string> linked_folder(const fs::path& path) {
    std::error_code failed;
    const fs::file_type type = status_patiently(path, failed).type();
    if (may_pass(failed.value()))
        throw ReadError(fmt::format("{} cannot be read: {}", path.string(), failed.message()));
    if (type == fs::file_type::none) return std::nullopt;
    if (type != fs::file_type::regular) return "";
    try {
        require_sound_layout(path.string());
        const hdf5::File file = hdf5::File::open(path.string());
        return file.has_attribute(folder_attribute) ? file.string_attribute(folder_attribute) : "";
    } catch (const PermissionError& error) {
        throw ReadError(error.what());
    } catch (const ReadError&) {
        throw;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

/// Whether a file has a link to the folder of parts `name`, or may have one. A damaged file may, if it is the
/// `owner` of the parts by its name.
bool may_link(const fs::path& file, const std::string& name, bool owner) {
    try {
        const std::optional<std::string> linked = linked_folder(file);
        return linked ? *linked == name : owner;
    } catch (const ReadError& error) {
        log::warn("{}; it may need {}, which is kept", error.what(), name);
        return true;
    }
}

void check_part(const std::string& path, const std::string& part, int64_t number, const TrainRecord& train) {
    require_sound_layout(part);
    const hdf5::File file = hdf5::File::open(part);
    if (!file.has_attribute("format") || file.string_attribute("format") != part_format_name)
        throw ConfigError("{} is an HDF5 file, but not a part of a checkpoint", part);
    if (file.int_attribute("number") != number || file.int_attribute("step") != train.step ||
        file.string_attribute("model") != train.model)
        throw ConfigError("{} is part {} of another checkpoint, of step {}, not part {} of {}", part,
                          file.int_attribute("number"), file.int_attribute("step"), number, path);
}

}  // namespace

std::vector<int64_t> spread(const std::vector<int64_t>& array_bytes, int64_t parts) {
    std::vector<size_t> order(array_bytes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return array_bytes[a] > array_bytes[b]; });
    std::vector<int64_t> filled(size_t(parts), 0), part(array_bytes.size());
    for (const size_t i : order) {
        const auto least = std::min_element(filled.begin(), filled.end());
        part[i] = least - filled.begin();
        *least += array_bytes[i];
    }
    return part;
}

std::string make_parts_folder(const std::string& path) {
    const std::string first = fs::path(path).replace_extension(folder_ending).string();
    for (int number = 0;; ++number) {
        std::string folder = number == 0 ? first : fmt::format("{}.{}", first, number);
        std::error_code status;
        if (fs::create_directory(folder, status)) return folder;
        if (status && status != std::errc::file_exists)
            fail_at_path(fmt::format("{} cannot be created: {}", folder, status.message()), status.value());
    }
}

std::string part_name(int64_t number) {
    return fmt::format("{}.h5", number);
}

void write_parts_record(hdf5::File& file, const std::string& folder, int64_t parts) {
    file.set_attribute(folder_attribute, fs::path(folder).filename().string());
    file.set_attribute(count_attribute, parts);
}

void write_part_record(hdf5::File& part, int64_t number, const TrainRecord& train) {
    part.set_attribute("format", part_format_name);
    part.set_attribute("number", number);
    part.set_attribute("step", train.step);
    part.set_attribute("model", train.model);
}

std::vector<std::string> find_parts(const hdf5::File& file, const TrainRecord& train) {
    if (!file.has_attribute(folder_attribute)) return {};
    const std::string name = file.string_attribute(folder_attribute);
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
        throw ConfigError("{} is damaged: its parts would be in \"{}\", which is not a folder next to it",
                          file.file(), name);
    const int64_t count = file.int_attribute(count_attribute);
    if (count < 1 || count > most_parts)
        throw ConfigError("{} is damaged: it would have {} parts, but 1 to {} are possible", file.file(),
                          count, most_parts);
    // HDF5 looks for parts next to the file itself, not next to a link to it
    const fs::path folder = after_links(file.file()).parent_path() / name;
    std::vector<std::string> parts;
    for (int64_t number = 0; number < count; ++number) {
        parts.push_back((folder / part_name(number)).string());
        if (const std::string why = read_error(parts.back()); !why.empty())
            throw ReadError(fmt::format("{} cannot be read: {}", parts.back(), why));
        try {
            check_part(file.file(), parts.back(), number, train);
        } catch (const ConfigError& error) {
            throw ConfigError("{} is incomplete: {}", file.file(), error.what());
        }
    }
    return parts;
}

void allow_links_to_parts(hdf5::File& file, size_t parts) {
    std::vector<std::string> names;
    for (size_t number = 0; number < parts; ++number)
        names.push_back(
            (fs::path(file.string_attribute(folder_attribute)) / part_name(int64_t(number))).string());
    file.allow_links_to(std::move(names));
}

hdf5::File open_with_parts(const std::string& path, size_t parts) {
    hdf5::File file = hdf5::File::open(path);
    allow_links_to_parts(file, parts);
    return file;
}

bool is_linked(const std::string& parts_folder, const std::vector<std::string>& gone) {
    const fs::path folder = parts_folder;
    const std::string name = folder.filename().string(), owner = owner_of(name) + ".h5";
    const auto is_owner = [&](const fs::path& file) { return file.filename().string().starts_with(owner); };
    std::error_code unread;
    std::vector<fs::path> files = entries_of(folder.parent_path().string(), unread);
    // a file that is not listed may link to it
    if (unread) return true;

    std::stable_partition(files.begin(), files.end(), is_owner);  // usually the owner has the link
    return std::any_of(files.begin(), files.end(), [&](const fs::path& file) {
        if (file.extension() == ".part" || std::find(gone.begin(), gone.end(), file) != gone.end())
            return false;
        return may_link(file, name, is_owner(file));
    });
}

std::vector<std::string> unlinked_parts(const std::string& folder, const std::vector<std::string>& gone) {
    std::error_code ignored;
    std::vector<std::string> unlinked;
    for (const fs::path& entry : entries_of(folder, ignored))
        if (fs::is_directory(entry, ignored) && !owner_of(entry.filename().string()).empty() &&
            !is_linked(entry.string(), gone))
            unlinked.push_back(entry);
    return unlinked;
}

}  // namespace coeus::checkpoint_format
