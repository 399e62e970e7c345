// SPDX-License-Identifier: Apache-2.0
// The flight recorder's line for operations of all ranks that use no communicator of Coeus, such as making
// the first communicators.
#pragma once

#include "coeus/base/flight_recorder.hpp"

namespace coeus {

/// MPI must be running.
const FlightRecorder::Line& world_line();

}  // namespace coeus
