// SPDX-License-Identifier: Apache-2.0
// Program: a rank's row of a lowered timetable together with the memory of every action: the frame of each
// micro-batch, and the slot of each flow that is received or to be sent. Everything is decided before the
// first step, so that the executor only follows it.
//
// A frame belongs to a (stage, micro-batch) from F to the end of B or W. A slot holds one flow: a received
// input until its F has copied it, or a gradient from its receive (or the last stage's backward) until it is
// sent. Within a rank a gradient's slot is handed from stage to stage. There is one slot more than are in use
// at once, so that a send need not be complete immediately.
#pragma once

#include "coeus/pipeline/lower.hpp"

namespace coeus {

struct ProgramStep {
    Action action;
    int stage = 0;           ///< index of action.stage among this rank's stages
    int frame = -1;          ///< of a computation; for a SEND_F: the frame with the flow
    int slot = -1;           ///< F: of its input. B, I: of its gradient. Else: of the message. -1: none
    int input_frame = -1;    ///< F: the frame with its input, if this rank has the stage before
    int message = -1;        ///< number of the message; -1 for a computation
    int after = -1;          ///< number of the message that must be complete before this step; -1: none
    int sent = -1;           ///< B, W: the message that must be complete before the frame is free; -1: none
    bool with_next = false;  ///< a message that begins together with that of the next step, at both ends
    /// The first one of a pair: it may overlap with the next step.
    bool pairs_with_next = false;
    /// The pair has two halves of a local batch: the first one begins. Else it has a forward and a backward,
    /// which begins.
    bool is_half = false;
    bool ends_frame = false;
    bool last_use = false;  ///< the stage's last F (for the head), or last B or W (for all else)
    bool is_last = false;   ///< the rank's last computation
    /// A computation: the index of the stage whose F is the rank's next one; -1: it is not an F. The first
    /// one of the program is next after the last, for another local batch.
    int forward_next = -1;
};

struct Program {
    std::vector<int> stages;  ///< of this rank, in ascending order
    int microbatches = 0;
    int frames = 0, slots = 0, messages = 0;
    /// By stage of this rank: whether some of its backwards are B, and whether some are I and W.
    std::vector<bool> runs_whole, runs_halves;
    /// By stage of this rank: whether some of its forwards are in a pair, and whether backwards are in one
    /// with another backward.
    std::vector<bool> runs_paired, runs_paired_backwards;
    std::vector<ProgramStep> steps;
};

/// A rank's program.
Program program_of(const LoweredTimetable& table, int rank);
/// The program of one micro-batch forward through all stages, for validation.
Program forward_program(const Placement& placement, int rank);

}  // namespace coeus
