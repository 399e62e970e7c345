// SPDX-License-Identifier: Apache-2.0
// How HDF5 reads and writes files: as its own driver for POSIX files does, but with the patience of
// base/patient_io.hpp. So HDF5 never sees an error that passes, which could otherwise become "no such array".
#pragma once

#include <hdf5.h>

#include <string>

namespace coeus::hdf5 {

/// The driver, for H5Pset_driver().
hid_t patient_driver();

/// What the system said when the last call of this thread failed; both are empty if it did not fail in the
/// system.
struct DriverFailure {
    std::string read;   ///< "FILE cannot be read: Input/output error"
    std::string other;  ///< "file write failed: No space left on device"
};
/// Returns and forgets it.
DriverFailure take_driver_failure();

}  // namespace coeus::hdf5
