// SPDX-License-Identifier: Apache-2.0
// The streams, events and graphs of runtime.hpp.
#pragma once

#include "stand_ins/cuda/block.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

struct coeus_emulated_event {
    // Outlives the event if streams still wait for it.
    struct Mark {
        size_t done = 0;          // number of times it was reached
        size_t microseconds = 0;  // the clock when it was last reached
    };
    std::shared_ptr<Mark> mark = std::make_shared<Mark>();
    size_t recorded = 0;             // number of times
    size_t recording = 0, node = 0;  // if last recorded in a capture: the capture's number, and the node
    bool timed = false;
};

struct coeus_emulated_stream {
    struct Item {
        std::function<void()> work;
        // must have been reached `times` times
        std::shared_ptr<coeus_emulated_event::Mark> awaited = nullptr;
        size_t times = 0;
        std::function<bool()> ready = nullptr;  // if empty, always ready
        size_t microseconds = 0;                // its duration
    };
    std::deque<Item> items;
    // if set, given work becomes nodes of this graph, on this lane
    coeus_emulated_graph* recording = nullptr;
    size_t lane = 0;
    int priority = 0;                                   // the order of work does not depend on it
    uint64_t rank = coeus::emulation::random_number();  // if some streams starve, lower ranks come first
    bool waits_outside() const { return !items.empty() && items.front().ready; }
    bool can_go_on() const {
        if (items.empty() || (waits_outside() && !items.front().ready())) return false;
        return !items.front().awaited || items.front().awaited->done >= items.front().times;
    }
};

// A graph: work in the order in which it was given, on lanes that were streams during the capture.
struct coeus_emulated_graph {
    struct Node {
        size_t lane;
        std::function<void()> work = nullptr;
        std::function<void(coeus_emulated_stream*)> begin = nullptr;
        std::optional<size_t> awaited = std::nullopt;  // an earlier node
    };
    size_t number = 0;
    std::thread::id thread;
    std::vector<Node> nodes;
    std::vector<coeus_emulated_stream*> lanes;
    bool is_void = false;  // an operation that a capture forbids was called

    // Whether all work comes before the end of the first lane.
    bool is_joined() const {
        std::vector<size_t> behind(lanes.size(), 0);  // nodes of each lane that come before that end
        std::vector<std::pair<size_t, size_t>> to_do = {{0, nodes.size()}};
        while (!to_do.empty()) {
            const auto [lane, end] = to_do.back();
            to_do.pop_back();
            for (size_t n = behind[lane]; n < end; ++n)
                if (nodes[n].lane == lane && nodes[n].awaited)
                    to_do.emplace_back(nodes[*nodes[n].awaited].lane, *nodes[n].awaited + 1);
            behind[lane] = std::max(behind[lane], end);
        }
        for (size_t n = 0; n < nodes.size(); ++n)
            if ((nodes[n].work || nodes[n].begin) && n >= behind[nodes[n].lane]) return false;
        return true;
    }
};
