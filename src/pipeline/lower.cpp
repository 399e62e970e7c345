// SPDX-License-Identifier: Apache-2.0
#include "coeus/pipeline/lower.hpp"

#include "coeus/base/error.hpp"
#include "play.hpp"

#include <algorithm>
#include <tuple>

namespace coeus {

namespace {

// One message: its two ends, and when it takes place.
struct Message {
    int64_t time;
    Action send, receive;
};

// The messages in the order in which they are sent. Two rows that share several messages of the same time
// need them in the same order, so the order is total: by time, then by channel.
std::vector<Message> messages_of(const Timetable& table, const pipeline::Played& played, int first_trained) {
    std::vector<Message> messages;
    const auto add = [&](int64_t time, ActionKind send, ActionKind receive, int from, int to,
                         int microbatch) {
        const int sender = table.placement.rank_of(from), receiver = table.placement.rank_of(to);
        if (sender == receiver) return;
        messages.push_back({time, {send, from, microbatch, receiver}, {receive, to, microbatch, sender}});
    };
    for (const auto& row : played.rows) {
        for (size_t i = 0; i < row.size(); ++i) {
            const auto& [action, cell, second, start, end] = row[i];
            // both messages of a pair are sent at its end
            const bool first_of_pair = i + 1 < row.size() && row[i + 1].cell == cell;
            const int64_t time = first_of_pair ? row[i + 1].end : end;
            using enum ActionKind;
            if (action.kind == forward && action.stage + 1 < table.stages())
                add(time, send_forward, receive_forward, action.stage, action.stage + 1, action.microbatch);
            if (action.gives_input_gradient() && action.stage > first_trained)
                add(time, send_backward, receive_backward, action.stage, action.stage - 1, action.microbatch);
        }
    }
    std::ranges::sort(messages, {}, [](const Message& m) { return std::tuple(m.time, m.send.channel()); });
    return messages;
}

}  // namespace

LoweredTimetable lower(const Timetable& table, const CostModel& cost, int first_trained) {
    require(std::min({cost.forward, cost.backward, cost.backward_input, cost.backward_weight}) > 0,
            "every computation must take time");
    check(table);
    const pipeline::Played played = pipeline::play(table, cost, pipeline::Pairs::together);

    LoweredTimetable lowered = {{table.name, table.placement, table.microbatches, {}}, first_trained};
    lowered.rows.resize(table.rows.size());
    std::vector<size_t> next(table.rows.size());  // by rank: index in played.rows
    const auto copy_cells_before = [&](int rank, int64_t time) {
        const auto& timed = played.rows[size_t(rank)];
        size_t& i = next[size_t(rank)];
        while (i < timed.size() && timed[i].start < time) {
            const Cell& cell = table.rows[size_t(rank)][size_t(timed[i].cell)];
            lowered.rows[size_t(rank)].push_back(cell);
            i += size_t(cell.size());
        }
    };
    for (const Message& message : messages_of(table, played, first_trained)) {
        const int sender = message.receive.peer, receiver = message.send.peer;
        copy_cells_before(sender, message.time);
        copy_cells_before(receiver, message.time);
        lowered.rows[size_t(sender)].emplace_back(message.send);
        lowered.rows[size_t(receiver)].emplace_back(message.receive);
    }
    for (int rank = 0; rank < table.ranks(); ++rank) copy_cells_before(rank, INT64_MAX);
    return lowered;
}

}  // namespace coeus
