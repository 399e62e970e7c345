// SPDX-License-Identifier: Apache-2.0
// What all ranks do together beside any communicator of Coeus, as the flight recorder knows it: make the
// first ones.
#pragma once

#include "coeus/base/flight_recorder.hpp"

namespace coeus {

/// While MPI runs.
const FlightRecorder::Line& world_line();

}  // namespace coeus
