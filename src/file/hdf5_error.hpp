// SPDX-License-Identifier: Apache-2.0
// What the sources of the HDF5 wrapper share: the check of a call, HDF5's words, short-lived identifiers.
#pragma once

#include "coeus/file/hdf5.hpp"

#include <hdf5.h>

#include <source_location>

namespace coeus::hdf5 {

static_assert(sizeof(hid_t) == sizeof(int64_t));

/// Turns off HDF5's printing on stderr; called before any other use of the library.
void be_quiet();

/// HDF5's reason for the last failed call: its innermost description, with the reason of the operating
/// system where it says one. ReadError, naming the file, where that is why HDF5 could not read it.
std::string reason(const std::string& file);

/// Throws SystemError naming file and call where an identifier or status is negative; returns it otherwise.
template <class Status>
Status check(Status status, const char* call, const std::string& file,
             std::source_location where = std::source_location::current()) {
    if (status < 0) [[unlikely]]
        throw SystemError(fmt::format("{}: {} failed: {}", file, call, reason(file)), where);
    return status;
}

// closing functions in the form that Handle keeps
inline int close_file(int64_t id) {
    return H5Fclose(id);
}
inline int close_object(int64_t id) {
    return H5Oclose(id);
}
inline int close_group(int64_t id) {
    return H5Gclose(id);
}
inline int close_dataset(int64_t id) {
    return H5Dclose(id);
}
inline int close_attribute(int64_t id) {
    return H5Aclose(id);
}
inline int close_space(int64_t id) {
    return H5Sclose(id);
}
inline int close_type(int64_t id) {
    return H5Tclose(id);
}
inline int close_list(int64_t id) {
    return H5Pclose(id);
}

/// A new identifier of `type`, to be closed with close_type; stored and memory types are the same, since
/// Coeus runs on little endian machines only.
Handle make_type(Type type, const std::string& file);
/// The Type of a stored type.
Type recognise(hid_t stored);
/// Whether HDF5 may convert one to the other: both integers or both floats.
bool same_class(Type a, Type b);

}  // namespace coeus::hdf5

#define COEUS_CHECK_HDF5(call, file) ::coeus::hdf5::check((call), #call, (file))
