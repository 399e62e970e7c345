// SPDX-License-Identifier: Apache-2.0
// StepTraces: traces the steps that [profiling] selects, in torchtitan's cycle, and writes the traces to
// <folder>/iteration_<step>/rank<rank>_trace.json and rank<rank>_overlap.txt.
#pragma once

#include "coeus/base/telemetry_file.hpp"
#include "coeus/config/config.hpp"
#include "coeus/engine/engine.hpp"
#include "coeus/observe/tracer.hpp"

namespace coeus {

class StepTraces {
public:
    /// `folder`: for all traces. Mesh and engine are borrowed.
    StepTraces(const Config::Profiling& options, std::filesystem::path folder, Mesh& mesh, Engine& engine);

    /// Call these around each step. Steps are counted from 1.
    void begin(int64_t step);
    void end(int64_t step);

private:
    int64_t place_in_cycle(int64_t step) const { return (step - 1) % options_.profile_freq; }
    void write(int64_t step) const;

    Config::Profiling options_;
    std::filesystem::path folder_;
    Mesh& mesh_;
    Engine& engine_;
    Tracer tracer_;
    Losses losses_;
    Observation observation_;  // ends before the tracer
};

}  // namespace coeus
