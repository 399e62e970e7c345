// SPDX-License-Identifier: Apache-2.0
// Program: a rank's row of a lowered timetable with the memory of every action: which frame a micro-batch
// has, and which slot a received or to be sent flow is in. All is settled before the first step, so that the
// executor just goes through it.
//
// A frame belongs to a (stage, micro-batch) from F to the end of B or W. A slot holds one flow: a received
// input until its F has copied it, or a gradient from its receive (or the last stage's backward) until it is
// sent; it is handed from stage to stage within a rank. One slot more than are in use at once lets a send
// take its time.
#pragma once

#include "coeus/pipeline/lower.hpp"

namespace coeus {

struct ProgramStep {
    Action action;
    int stage = 0;           ///< place of action.stage among this rank's stages
    int frame = -1;          ///< of a computation; of a SEND_F: where the flow lies
    int slot = -1;           ///< F: its input, B, I: its gradient; else the message. -1: none
    int input_frame = -1;    ///< F: the frame with its input, where this rank has the stage before
    int message = -1;        ///< number of a message
    int after = -1;          ///< number of the message that must be through before
    int sent = -1;           ///< B, W: the message that must be through before the frame is free
    bool with_next = false;  ///< a message that begins together with the next step's, at both ends
    bool ends_frame = false;
    bool last_use = false;  ///< the stage's last F (of the head), or last B or W (of all else)
};

struct Program {
    std::vector<int> stages;  ///< of this rank, ascending
    int microbatches = 0;
    int frames = 0, slots = 0, messages = 0;
    /// Per stage of this rank: some of its backwards are B; some are I and W.
    std::vector<bool> runs_whole, runs_halves;
    std::vector<ProgramStep> steps;
};

/// A rank's part of a timetable of computations.
Program program_of(const Timetable& table, int rank);
/// One micro-batch forward through all stages, for validation.
Program forward_program(const Placement& placement, int rank);

}  // namespace coeus
