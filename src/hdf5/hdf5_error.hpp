// SPDX-License-Identifier: Apache-2.0
// Shared by the sources of the HDF5 wrapper: the check of a call, HDF5's error texts, closing functions,
// types.
#pragma once

#include "coeus/hdf5/hdf5.hpp"

#include <hdf5.h>

#include <source_location>

namespace coeus::hdf5 {

static_assert(sizeof(hid_t) == sizeof(int64_t));

/// Turns off HDF5's messages on stderr. Called before any other use of the library.
void be_quiet();

/// HDF5's reason for the last failed call: its innermost description, with the reason of the operating system
/// if there is one. Throws ReadError, with the file, if the operating system could not read the file.
std::string reason(const std::string& file);

/// The answer of a call that asks whether something exists: false if that cannot be told, unless the
/// operating system could not read the file (ReadError).
bool exists(htri_t answer);

/// Throws SystemError, with file and call, if an identifier or status is negative; otherwise returns it.
template <class Status>
Status check(Status status, const char* call, const std::string& file,
             std::source_location where = std::source_location::current()) {
    if (status < 0) [[unlikely]]
        throw SystemError(fmt::format("{}: {} failed: {}", file, call, reason(file)), where);
    return status;
}

// closing functions in the form that Handle needs
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

/// A new identifier of `type`, to be closed with close_type. Stored types and types in memory are the same,
/// since Coeus runs only on little-endian machines.
Handle make_type(Type type, const std::string& file);
/// The Type of a stored type.
Type recognise(hid_t stored);
/// True if HDF5 may convert between the types: both are integers, or both are floats.
bool same_class(Type a, Type b);

}  // namespace coeus::hdf5

#define COEUS_CHECK_HDF5(call, file) ::coeus::hdf5::check((call), #call, (file))
