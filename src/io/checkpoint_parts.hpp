// SPDX-License-Identifier: Apache-2.0
// Part files: a checkpoint of several files (checkpoint.files) keeps its arrays in a folder beside it,
//   step-00000100.h5 -> step-00000100.parts/0.h5, 1.h5, ...
// with external links at their paths, so that HDF5 shows one file. The folder's name is written in the file:
// a folder to which no file links is of a save that was not finished, or of a checkpoint that is gone.
#pragma once

#include "checkpoint_format.hpp"

#include <string>
#include <vector>

namespace coeus::checkpoint_format {

constexpr const char* part_format_name = "coeus checkpoint part";

/// The part of each array: the largest first, each into the part that has least. Nothing but sizes decides.
std::vector<int64_t> spread(const std::vector<int64_t>& array_bytes, int64_t parts);

/// A new, empty folder for the parts of a file, "...step-00000100.parts", or where a file links to that one
/// "...step-00000100.parts.1" and so on.
std::string make_parts_folder(const std::string& path);
/// "3.h5"
std::string part_name(int64_t number);

/// Marks a file as having parts in this folder, and a part as one of a checkpoint.
void write_parts_record(hdf5::File& file, const std::string& folder, int64_t parts);
void write_part_record(hdf5::File& part, int64_t number, const TrainRecord& train);

/// The files of a checkpoint's parts; none: its arrays are in itself. ConfigError where one is missing,
/// damaged or not this checkpoint's.
std::vector<std::string> find_parts(const hdf5::File& file, const TrainRecord& train);

/// A checkpoint whose header was read, for reading: its links lead to these parts alone.
hdf5::File open_with_parts(const std::string& path, size_t parts);
/// Lets the links of a file lead to so many parts.
void allow_links_to_parts(hdf5::File& file, size_t parts);

/// Whether a file beside this folder of parts links to it, whatever its name, but for those that will be
/// gone; one of the checkpoint's own name that cannot be read may do so.
bool is_linked(const std::string& parts_folder, const std::vector<std::string>& gone = {});

/// The folders of parts in a folder of checkpoints to which none of them links, but for those files that will
/// be gone. Nothing may be under way.
std::vector<std::string> unlinked_parts(const std::string& folder, const std::vector<std::string>& gone = {});

}  // namespace coeus::checkpoint_format
