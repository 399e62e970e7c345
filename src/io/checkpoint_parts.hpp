// SPDX-License-Identifier: Apache-2.0
// Part files: a checkpoint of several files (checkpoint.files) has its arrays in a folder next to it,
//   step-00000100.h5 -> step-00000100.parts/0.h5, 1.h5, ...
// with external links at the arrays' paths, so that HDF5 shows one file. The name of the folder is an
// attribute of the file. A folder to which no file links belongs to an unfinished save or to a checkpoint
// that was removed.
#pragma once

#include "checkpoint_format.hpp"

#include <string>
#include <vector>

namespace coeus::checkpoint_format {

constexpr const char* part_format_name = "coeus checkpoint part";

/// The part for each array: arrays are taken by size, the largest first, and each goes to the part that has
/// the fewest bytes so far.
std::vector<int64_t> spread(const std::vector<int64_t>& array_bytes, int64_t parts);

/// Makes a new, empty folder for the parts of a file: "...step-00000100.parts", or if that exists
/// "...step-00000100.parts.1" and so on.
std::string make_parts_folder(const std::string& path);
/// "3.h5"
std::string part_name(int64_t number);

/// Writes the attributes of a file whose `parts` parts are in `folder`.
void write_parts_record(hdf5::File& file, const std::string& folder, int64_t parts);
/// Writes the attributes of part number `number` of the checkpoint of `train`.
void write_part_record(hdf5::File& part, int64_t number, const TrainRecord& train);

/// The files of a checkpoint's parts; empty: its arrays are in its own file. ConfigError if one is missing,
/// damaged, or belongs to another checkpoint. ReadError if the system cannot read one.
std::vector<std::string> find_parts(const hdf5::File& file, const TrainRecord& train);

/// Opens a checkpoint whose header was read. Its links may lead only to its `parts` parts.
hdf5::File open_with_parts(const std::string& path, size_t parts);
/// Allows the links of a file to lead to its `parts` parts.
void allow_links_to_parts(hdf5::File& file, size_t parts);

/// True if a file of any name next to this folder of parts links to it. Files in `gone`, which will be
/// removed, do not count. A file with the checkpoint's name that cannot be read counts, since it may link to
/// the folder. True too if the files cannot be listed.
bool is_linked(const std::string& parts_folder, const std::vector<std::string>& gone = {});

/// The folders of parts in a checkpoint folder to which no file links. Files in `gone`, which will be
/// removed, do not count. No save may be under way.
std::vector<std::string> unlinked_parts(const std::string& folder, const std::vector<std::string>& gone = {});

}  // namespace coeus::checkpoint_format
