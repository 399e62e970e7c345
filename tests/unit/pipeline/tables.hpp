// SPDX-License-Identifier: Apache-2.0
// Timetables for several tests of pipelines.
#pragma once

#include "coeus/pipeline/from_file.hpp"
#include "coeus/pipeline/schedule.hpp"
#include "support/catch.hpp"

namespace coeus::test {

inline const Schedule& schedule_of(const std::string& name) {
    const Schedule* schedule = find_schedule(name);
    REQUIRE(schedule != nullptr);
    return *schedule;
}

inline Timetable table_of(const std::string& name, int ranks, int microbatches, int virtual_stages) {
    return schedule_of(name).timetable({ranks, microbatches, virtual_stages});
}

/// A hand-written table, not checked.
inline Timetable table_from(const std::string& text, Messages messages = Messages::drop) {
    return parse_timetable(text, "table", messages);
}

/// Calls `use` with every shape that a step could have on up to 8 ranks.
template <class Use>
void for_each_shape(int most_microbatches, Use use) {
    for (int ranks = 1; ranks <= 8; ++ranks)
        for (int microbatches = 1; microbatches <= most_microbatches; ++microbatches)
            for (int virtual_stages = 1; virtual_stages <= 4; ++virtual_stages)
                use(PipelineShape{ranks, microbatches, virtual_stages});
}

}  // namespace coeus::test
