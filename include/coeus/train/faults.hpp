// SPDX-License-Identifier: Apache-2.0
// Faults: injects failures that happen on clusters, so that tests see how Coeus handles them. Active only if
// the environment variable COEUS_FAULT is set:
//   COEUS_FAULT="KIND rank=1 step=3 [seconds=2] [operation=NAME after=10] [tensor=NAME element=17 bit=30]"
// The fault begins on that rank with that step (0: at the start, as soon as the ranks exist):
//   hang_in_collective  enters a collective (of that name) and sleeps in it
//   skip_collective     leaves out one collective
//   slow                computes `seconds` longer in each step
//   slow_data           reads samples `seconds` longer
//   slow_disk           writes `seconds` longer
//   slow_copy           copies a checkpoint `seconds` longer
//   full_disk           cannot write
//   exit crash abort    ends the process in that way
//   kill                ends it by SIGKILL
//   error               throws a SystemError
//   stop                stops the process (SIGSTOP)
//   signal              raises SIGUSR1 once, after `after` operations (FlightRecorder) of that name, in which
//                       _ stands for a blank. Without a name the operations of the main thread count, whose
//                       number is the same in each run
//   bit_flip            flips, once, a bit of one element of a weight that the rank owns
#pragma once

#include "coeus/base/flight_recorder.hpp"
#include "coeus/device/exec.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace coeus {

class Parameters;

class Faults final : public OperationFault {
public:
    /// Null if there is no fault for this rank. ConfigError if the text is not valid.
    static std::unique_ptr<Faults> from_environment(int rank);
    explicit Faults(const std::string& text);
    ~Faults() override;
    Faults(const Faults&) = delete;
    Faults& operator=(const Faults&) = delete;

    /// Called at the beginning of each step.
    void at_step(int64_t step, const Parameters& parameters, Exec& exec);

    bool leaves_out(const char* operation, OperationKind kind) override;
    void entered(const char* operation, OperationKind kind) override;

private:
    bool is(const char* kind) const { return kind_ == kind; }
    void flip(const Parameters& parameters, Exec& exec) const;

    std::string kind_, tensor_, operation_;
    int64_t rank_ = 0, step_ = 1, element_ = 0, bit_ = 0, after_ = 0;
    std::atomic<int64_t> entered_ = 0;
    double seconds_ = 1e6;
    std::atomic<bool> begun_ = false, done_ = false;
};

}  // namespace coeus
