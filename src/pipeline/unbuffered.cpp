// SPDX-License-Identifier: Apache-2.0
// The proof that a lowered timetable runs without any buffering of sends.
#include "coeus/base/error.hpp"
#include "coeus/pipeline/lower.hpp"
#include "play.hpp"

#include <deque>

namespace coeus {

namespace {

class Proof {
public:
    Proof(const Timetable& table, Queues queues, int first_trained)
        : table_(table),
          queues_(queues),
          first_trained_(first_trained),
          at_(table.rows.size()),
          channels_(size_t(2 * table.stages())) {
        for (auto* flags : {&done_, &requested_, &arrived_})
            flags->resize(size_t(2 * table.stages()) * size_t(table.microbatches));
    }

    void run() {
        bool moved = true;
        while (moved) {
            moved = false;
            for (int rank = 0; rank < table_.ranks(); ++rank)
                while (advance(rank)) moved = true;
        }
        for (int rank = 0; rank < table_.ranks(); ++rank)
            if (const Cell* cell = next(rank))
                fail(rank, text_of(*cell) + " waits forever; the rows of the ranks wait for each other");
        for (const Channel& channel : channels_) {
            for (const auto* waiting : {&channel.sends, &channel.receives})
                if (!waiting->empty()) fail(-1, text_of(waiting->front()) + " has no other end");
        }
    }

private:
    struct Channel {
        std::deque<Action> sends, receives;  // issued, but not matched
    };

    [[noreturn]] void fail(int rank, const std::string& what) const {
        throw LogicError(
            fmt::format("{}, lowered: {}{}", table_.name,
                        rank < 0 ? "" : fmt::format("rank {}, cell {}: ", rank, at_[size_t(rank)]), what));
    }

    const Cell* next(int rank) const {
        const Row& row = table_.rows[size_t(rank)];
        const size_t at = at_[size_t(rank)];
        return at < row.size() ? &row[at] : nullptr;
    }

    // Index of the forward or backward of a stage and micro-batch.
    size_t index(bool forward, int stage, int microbatch) const {
        return size_t(2 * stage + forward) * size_t(table_.microbatches) + size_t(microbatch);
    }

    bool advance(int rank) {
        const Cell* cell = next(rank);
        if (!cell) return false;
        const bool message = !cell->empty() && !(*cell)[0].computes();
        if (!(message ? communicate(rank, (*cell)[0]) : compute(rank, *cell))) return false;
        ++at_[size_t(rank)];
        return true;
    }

    bool compute(int rank, const Cell& cell) {
        for (const Action& action : cell) {
            const auto need = pipeline::need_of(action, table_.stages());
            if (!need || (!need->forward && action.stage < first_trained_)) continue;
            if (table_.placement.rank_of(need->stage) == rank) {
                if (!done_[index(need->forward, need->stage, need->microbatch)])
                    fail(rank, fmt::format("{} comes before stage {} of its own rank", text_of(action),
                                           need->stage));
                continue;
            }
            const size_t input = index(need->forward, action.stage, action.microbatch);
            if (arrived_[input]) continue;
            if (!requested_[input]) fail(rank, text_of(action) + " comes before its receive");
            return false;
        }
        for (const Action& action : cell) {
            const bool forward = action.kind == ActionKind::forward;
            if (forward || action.gives_input_gradient())
                done_[index(forward, action.stage, action.microbatch)] = true;
        }
        return true;
    }

    // With one queue, returns true once both ends have reached the message; otherwise at once.
    bool communicate(int rank, const Action& action) {
        if (queues_ == Queues::per_channel) return issue(rank, action), true;
        // the other end must be at this message too
        const Cell* other = next(action.peer);
        if (action.peer == rank || !other || other->empty() || (*other)[0].computes()) return false;
        const Action there = (*other)[0];
        if (there.channel() != action.channel() || there.sends() == action.sends()) return false;
        issue(rank, action);
        issue(action.peer, there);
        ++at_[size_t(action.peer)];
        return true;
    }

    void issue(int rank, const Action& action) {
        const bool forward =
            action.kind == ActionKind::send_forward || action.kind == ActionKind::receive_forward;
        Channel& channel = channels_[size_t(action.channel())];
        if (action.sends()) {
            if (!done_[index(forward, action.stage, action.microbatch)])
                fail(rank, text_of(action) + " comes before what it sends");
            channel.sends.push_back(action);
        } else {
            requested_[index(forward, action.stage, action.microbatch)] = true;
            channel.receives.push_back(action);
        }
        while (!channel.sends.empty() && !channel.receives.empty()) {
            const Action send = channel.sends.front(), receive = channel.receives.front();
            if (send.microbatch != receive.microbatch)
                fail(rank, text_of(receive) + " would receive what " + text_of(send) + " sends");
            arrived_[index(forward, receive.stage, receive.microbatch)] = true;
            channel.sends.pop_front();
            channel.receives.pop_front();
        }
    }

    const Timetable& table_;
    Queues queues_;
    int first_trained_;
    std::vector<size_t> at_;
    std::vector<Channel> channels_;
    std::vector<bool> done_;       // by stage: outputs and input gradients that were computed
    std::vector<bool> requested_;  // inputs and output gradients whose receive was issued
    std::vector<bool> arrived_;    // those that have arrived
};

}  // namespace

void prove_unbuffered(const Timetable& lowered, Queues queues, int first_trained) {
    Proof(lowered, queues, first_trained).run();
}

}  // namespace coeus
