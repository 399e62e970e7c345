// SPDX-License-Identifier: Apache-2.0
// Files and groups. All files have these properties:
//   format of HDF5 1.8 (checksums of metadata; readable by any library since 2008)
//   no times (the same calls give the same bytes)
//   arrays of 64 KiB or more begin at multiples of 4 KiB (memory maps, stripes of parallel file systems)
#include "coeus/hdf5/hdf5.hpp"

#include "coeus/base/flight_recorder.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/raw_file.hpp"
#include "hdf5_driver.hpp"
#include "hdf5_error.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace coeus::hdf5 {

namespace {

Handle file_access(const std::string& file, bool writable) {
    Handle list(COEUS_CHECK_HDF5(H5Pcreate(H5P_FILE_ACCESS), file), close_list);
    COEUS_CHECK_HDF5(H5Pset_driver(list.id(), patient_driver(), nullptr), file);
    COEUS_CHECK_HDF5(H5Pset_libver_bounds(list.id(), H5F_LIBVER_V18, H5F_LIBVER_V18), file);
    COEUS_CHECK_HDF5(H5Pset_alignment(list.id(), 64 << 10, 4096), file);
    // HDF5 opens the targets of links as weak; a reader may also open such a file directly, and must use the
    // same
    COEUS_CHECK_HDF5(H5Pset_fclose_degree(list.id(), writable ? H5F_CLOSE_STRONG : H5F_CLOSE_WEAK), file);
    // the targets of links stay open while this file is open
    COEUS_CHECK_HDF5(H5Pset_elink_file_cache_size(list.id(), 16), file);
    return list;
}

/// A creation property list of this class that stores no times.
Handle creation(hid_t list_class, const std::string& file) {
    Handle list(COEUS_CHECK_HDF5(H5Pcreate(list_class), file), close_list);
    COEUS_CHECK_HDF5(H5Pset_obj_track_times(list.id(), false), file);
    return list;
}

/// Makes the groups on the path to a new object. (HDF5 could do this itself, but would store times.)
void make_parents(hid_t group, const std::string& path, const std::string& file) {
    const Handle list = creation(H5P_GROUP_CREATE, file);
    for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
        const std::string parent = path.substr(0, end);
        if (H5Lexists(group, parent.c_str(), H5P_DEFAULT) > 0) continue;
        const hid_t made = H5Gcreate2(group, parent.c_str(), H5P_DEFAULT, list.id(), H5P_DEFAULT);
        COEUS_CHECK_HDF5(H5Gclose(COEUS_CHECK_HDF5(made, file)), file);
    }
}

herr_t look_at_link(const char*, const char*, const char* file, const char*, unsigned*, hid_t, void* links) {
    auto& known = *static_cast<Links*>(links);
    if (std::find(known.allowed.begin(), known.allowed.end(), file) != known.allowed.end()) return 0;
    known.refused = file;
    return -1;
}

/// An access property list of any class that follows links.
Handle link_access(hid_t list_class, const std::string& file, Links& links) {
    Handle list(COEUS_CHECK_HDF5(H5Pcreate(list_class), file), close_list);
    COEUS_CHECK_HDF5(H5Pset_elink_cb(list.id(), look_at_link, &links), file);
    return list;
}

constexpr int64_t most_levels = 32;  // a group may be a member of itself
constexpr int64_t most_groups = 4096;
constexpr int64_t most_datasets = 1 << 20;

std::string joined(const std::string& group, const std::string& path) {
    return group == "/" ? "/" + path : group + "/" + path;
}

// HDF5 looks for its signature at byte 0, 512, 1024, 2048 and so on.
bool has_signature(const std::string& path) {
    constexpr std::string_view signature = "\x89HDF\r\n\x1a\n";
    const RawFile file = RawFile::open(path);
    const int64_t last = file.size() - int64_t(signature.size());
    for (int64_t place = 0; place <= last; place = std::max<int64_t>(512, 2 * place)) {
        std::string there(signature.size(), '\0');
        file.read(there.data(), int64_t(there.size()), place);
        if (there == signature) return true;
    }
    return false;
}

}  // namespace

File File::open_existing(const std::string& path, bool writable) {
    be_quiet();
    require_file(path, writable);
    const Recorded recorded("open", 0, path);
    if (!has_signature(path)) {
        const bool is_deck = std::filesystem::path(path).extension() == ".toml";
        throw ConfigError("{} is {}not an HDF5 file{}", path, is_deck ? "a deck, " : "",
                          is_deck ? "; the files of its run are in its job.dump_folder" : "");
    }
    const Handle list = file_access(path, writable);
    Handle file(H5Fopen(path.c_str(), writable ? H5F_ACC_RDWR : H5F_ACC_RDONLY, list.id()), close_file);
    if (file.id() < 0) {
        const std::string why = reason(path);
        // "truncated file: eof = 20, sblock->base_addr = 0, stored_eof = 50"
        if (const size_t stored = why.find("stored_eof = "); stored != std::string::npos)
            throw ConfigError("{} is truncated: {} of {} bytes are there; make or copy it again", path,
                              with_commas(size_patiently(path)),
                              with_commas(std::atoll(why.c_str() + stored + std::strlen("stored_eof = "))));
        throw ConfigError("{} is a damaged HDF5 file: {}", path, why);
    }
    return {std::move(file), path, "/", std::make_shared<Links>()};
}

File File::open(const std::string& path) {
    return open_existing(path, false);
}

File File::open_for_update(const std::string& path) {
    return open_existing(path, true);
}

File File::create(const std::string& path) {
    be_quiet();
    const Recorded recorded("create", 0, path);
    const Handle access_list = file_access(path, true);
    const Handle create_list = creation(H5P_FILE_CREATE, path);
    std::error_code absent;
    if (std::filesystem::is_symlink(path, absent)) std::filesystem::remove(path, absent);  // not followed
    const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, create_list.id(), access_list.id());
    if (id < 0) throw SystemError(fmt::format("{} cannot be created: {}", path, reason(path)));
    return {Handle(id, close_file), path, "/", std::make_shared<Links>()};
}

void File::close() {
    const Recorded recorded("close", 0, file_);
    COEUS_CHECK_HDF5(H5Fflush(handle_.id(), H5F_SCOPE_GLOBAL), file_);
    COEUS_CHECK_HDF5(H5Fclose(handle_.release()), file_);
}

void Group::require_own_links(const std::string& full) const {
    if (links_->refused.empty()) return;
    throw ConfigError("{}: {} is a link to the file {}, which is not a part of this file", file_, full,
                      std::exchange(links_->refused, ""));
}

void Group::fail(const std::string& full, const char* otherwise) const {
    const std::string why = reason(file_);
    require_own_links(full);
    throw ConfigError("{}: {} is {}damaged: {}", file_, full, otherwise, why);
}

bool Group::has(const std::string& path) const {
    const Handle access = link_access(H5P_LINK_ACCESS, file_, *links_);
    // H5Lexists fails if a group on the path is missing, so each part is looked up
    for (size_t end = path.find('/');; end = path.find('/', end + 1)) {
        const bool there = exists(H5Lexists(handle_.id(), path.substr(0, end).c_str(), access.id()));
        require_own_links(joined(name_, path));
        if (!there) return false;
        if (end == std::string::npos) return true;
    }
}

Group Group::group(const std::string& path) const {
    const std::string full = joined(name_, path);
    if (!has(path)) throw ConfigError("{} has no group {}", file_, full);
    const Handle access = link_access(H5P_GROUP_ACCESS, file_, *links_);
    const hid_t id = H5Gopen2(handle_.id(), path.c_str(), access.id());
    if (id < 0) fail(full, "not a group, or is ");
    return {Handle(id, close_group), file_, full, links_};
}

Dataset Group::dataset(const std::string& path) const {
    const std::string full = joined(name_, path);
    if (!has(path)) {
        const size_t slash = path.rfind('/');
        const std::string parent = slash == std::string::npos ? "" : path.substr(0, slash);
        std::vector<std::string> there;
        if (parent.empty())
            there = names();
        else if (has(parent))
            there = group(parent).names();
        const std::string near = nearest_name(path.substr(slash == std::string::npos ? 0 : slash + 1), there);
        throw ConfigError("{} has no dataset {}{}", file_, full,
                          near.empty() ? "" : "; the nearest name is '" + near + "'");
    }
    const Handle access = link_access(H5P_DATASET_ACCESS, file_, *links_);
    const hid_t id = H5Dopen2(handle_.id(), path.c_str(), access.id());
    if (id < 0) fail(full, "not a dataset, or is ");
    return {Handle(id, close_dataset), file_, full};
}

std::vector<std::string> Group::names() const {
    std::vector<std::string> all;
    const auto collect = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
        static_cast<std::vector<std::string>*>(out)->emplace_back(name);
        return 0;
    };
    if (H5Literate(handle_.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &all) < 0)
        throw ConfigError("{}: {} is damaged: {}", file_, name_, reason(file_));
    return all;
}

std::vector<std::string> Group::dataset_paths() const {
    Left left = {most_groups, most_datasets};
    return dataset_paths(left);
}

std::vector<std::string> Group::dataset_paths(Left& left) const {
    if (std::count(name_.begin(), name_.end(), '/') > most_levels)
        throw ConfigError("{}: groups are nested deeper than {} levels", file_, most_levels);
    const Handle access = link_access(H5P_LINK_ACCESS, file_, *links_);
    std::vector<std::string> all;
    for (const std::string& name : names()) {
        const Handle member(H5Oopen(handle_.id(), name.c_str(), access.id()), close_object);
        if (member.id() < 0) fail(joined(name_, name), "");
        const H5I_type_t type = H5Iget_type(member.id());
        if (type == H5I_DATASET) all.push_back(name);
        if (type == H5I_DATASET && --left.datasets < 0)
            throw ConfigError("{}: more than {} arrays", file_, most_datasets);
        if (type != H5I_GROUP) continue;
        if (--left.groups < 0)
            throw ConfigError("{}: more than {} groups (a group counts once for each link to it)", file_,
                              most_groups);
        for (const std::string& below : group(name).dataset_paths(left)) all.push_back(name + "/" + below);
    }
    return all;
}

Group Group::create_group(const std::string& path) {
    make_parents(handle_.id(), path, file_);
    const Handle list = creation(H5P_GROUP_CREATE, file_);
    Handle made(
        COEUS_CHECK_HDF5(H5Gcreate2(handle_.id(), path.c_str(), H5P_DEFAULT, list.id(), H5P_DEFAULT), file_),
        close_group);
    return {std::move(made), file_, joined(name_, path), links_};
}

Dataset Group::create_dataset(const std::string& path, Type type, const Shape& shape) {
    const Handle element = make_type(type, file_);
    hsize_t extents[4];
    for (int i = 0; i < shape.rank; ++i) extents[i] = hsize_t(shape[i]);
    const Handle space(
        COEUS_CHECK_HDF5(
            shape.rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(shape.rank, extents, nullptr), file_),
        close_space);
    make_parents(handle_.id(), path, file_);
    const Handle list = creation(H5P_DATASET_CREATE, file_);
    COEUS_CHECK_HDF5(H5Pset_layout(list.id(), H5D_CONTIGUOUS), file_);
    COEUS_CHECK_HDF5(H5Pset_alloc_time(list.id(), H5D_ALLOC_TIME_EARLY), file_);
    COEUS_CHECK_HDF5(H5Pset_fill_time(list.id(), H5D_FILL_TIME_NEVER), file_);
    Handle made(COEUS_CHECK_HDF5(H5Dcreate2(handle_.id(), path.c_str(), element.id(), space.id(), H5P_DEFAULT,
                                            list.id(), H5P_DEFAULT),
                                 file_),
                close_dataset);
    return {std::move(made), file_, joined(name_, path)};
}

void Group::create_external_link(const std::string& path, const std::string& file,
                                 const std::string& target) {
    make_parents(handle_.id(), path, file_);
    COEUS_CHECK_HDF5(H5Lcreate_external(file.c_str(), target.c_str(), handle_.id(), path.c_str(), H5P_DEFAULT,
                                        H5P_DEFAULT),
                     file_);
}

}  // namespace coeus::hdf5
