// SPDX-License-Identifier: Apache-2.0
// Faults: what goes wrong on clusters, done on purpose, so that tests see how Coeus meets it. Only where the
// environment variable COEUS_FAULT is set:
//   COEUS_FAULT="KIND rank=1 step=3 [seconds=2] [operation=NAME after=10] [tensor=NAME element=17 bit=30]"
// From that step on (0: from the start on, as soon as there are ranks), on that rank:
//   hang_in_collective  enters one (of that name), and       skip_collective   leaves one out
//                       sleeps there
//   slow                computes so long                      slow_data         reads samples so long
//   slow_disk           writes so long                        slow_copy         copies a checkpoint so long
//   full_disk           cannot write
//   exit  crash  abort  error  stop                           ends, or stops, in that way
//   signal              gets a SIGUSR1 once, after so many operations (FlightRecorder) of that name, or of
//                       any of the main thread, whose number is the same in each run; a name has _ for its
//                       blanks
//   bit_flip            once, a bit of an element of a weight that the rank owns
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
    /// Null where there is none for this rank. ConfigError where the text cannot be understood.
    static std::unique_ptr<Faults> from_environment(int rank);
    explicit Faults(const std::string& text);
    ~Faults() override;
    Faults(const Faults&) = delete;
    Faults& operator=(const Faults&) = delete;

    /// The step begins.
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
