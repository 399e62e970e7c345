// SPDX-License-Identifier: Apache-2.0
#include "neighbours.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/comm/communicator.hpp"
#include "signals.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

namespace coeus {

namespace {

struct Introduction {
    int64_t pid = 0, descriptor = -1;
    std::array<char, 48> host = {};
};

// -1 if the kernel is older than 5.3, which has no such descriptors.
int descriptor_of_process(int64_t pid) {
#ifdef SYS_pidfd_open
    return int(syscall(SYS_pidfd_open, pid_t(pid), 0));
#else
    return pid > 0 ? -1 : -1;
#endif
}

bool is_gone(char state) {
    return state == 'Z' || state == 'X' || state == '0';
}

}  // namespace

char process_state(int64_t pid, int64_t thread) {
    std::ifstream in(fmt::format("/proc/{}/task/{}/stat", pid, thread > 0 ? thread : pid));
    std::string text;
    std::getline(in, text);
    const size_t name_ends = text.rfind(')');  // the name may contain any character
    return name_ends == std::string::npos || name_ends + 2 >= text.size() ? '0' : text[name_ends + 2];
}

Neighbours::Neighbours(const MpiRuntime& mpi) : rank_(mpi.world_rank()) {
    const Communicator world = Communicator::world("watchdog");
    Introduction own = {.pid = getpid(), .descriptor = FlightRecorder::own().descriptor()};
    std::memcpy(own.host.data(), mpi.host().data(), std::min(mpi.host().size(), own.host.size() - 1));
    std::vector<Introduction> ranks(static_cast<size_t>(world.size()));
    constexpr auto bytes = int64_t(sizeof(Introduction));
    world.all_gather(Tensor(ranks.data(), Dtype::u8, {bytes * world.size()}),
                     Tensor(&own, Dtype::u8, {bytes}));
    for (const Introduction& one : ranks) hosts_.emplace_back(one.host.data());
    for (int rank = 0; rank < world.size(); ++rank) {
        const Introduction& one = ranks[size_t(rank)];
        if (hosts_[size_t(rank)] == hosts_[size_t(rank_)])
            all_.push_back({rank, one.pid, FlightRecorder::of(one.pid, int(one.descriptor))});
    }
    world.barrier();  // no process ends before the others have opened its recorder
    for (size_t i = 0; i < all_.size(); ++i)
        if (all_[i].rank == rank_) next_ = &all_[(i + 1) % all_.size()];
    if (next_->rank != rank_ && next_->recorder) descriptor_ = descriptor_of_process(next_->pid);
}

Neighbours::~Neighbours() {
    if (descriptor_ >= 0) close(descriptor_);
}

int Neighbours::descriptor() const {
    return descriptor_ >= 0 && next_->recorder->notes().left == 0 ? descriptor_ : -1;
}

const Neighbours::Neighbour* Neighbours::dead_neighbour() const {
    if (next_->rank == rank_ || !next_->recorder || next_->recorder->notes().left != 0) return nullptr;
    return is_gone(process_state(next_->pid)) ? next_ : nullptr;
}

RankState Neighbours::state_of(const Neighbour& neighbour) const {
    RankState state;
    if (neighbour.recorder) state = coeus::state_of(*neighbour.recorder, steady_seconds());
    state.rank = neighbour.rank;
    state.pid = neighbour.pid;
    state.host = host_of(neighbour.rank);
    // if the recorder cannot be read, another process may have this number now
    if (!neighbour.recorder) {
        state.condition = RankState::Condition::silent;
        return state;
    }
    const char letter = process_state(neighbour.pid);
    if (letter == 'T' || letter == 't') state.condition = RankState::Condition::stopped;
    if (is_gone(letter) && neighbour.recorder->notes().left == 0)
        state.condition = RankState::Condition::died;
    return state;
}

std::vector<RankState> Neighbours::that_cannot_answer() const {
    std::vector<RankState> states;
    for (const Neighbour& neighbour : all_)
        if (RankState state = state_of(neighbour);
            state.condition == RankState::Condition::died || state.condition == RankState::Condition::stopped)
            states.push_back(std::move(state));
    return states;
}

// The first rank of the host whose notes can be read stores the claim, whether it is alive or not.
FlightRecorder::Notes* Neighbours::notes_of_host() const {
    for (const Neighbour& neighbour : all_)
        if (neighbour.recorder) return &neighbour.recorder->notes();
    return nullptr;
}

bool Neighbours::claim(int64_t event) const {
    FlightRecorder::Notes* const notes = notes_of_host();
    if (!notes) return true;
    int64_t before = notes->event;
    return before < event && notes->event.compare_exchange_strong(before, event);
}

int64_t Neighbours::told() const {
    const int64_t own = FlightRecorder::own().notes().event;
    const FlightRecorder::Notes* const notes = notes_of_host();
    return notes ? std::max<int64_t>(own, notes->event) : own;
}

void Neighbours::tell(int64_t event) const {
    FlightRecorder::own().notes().event = event;
    for (const Neighbour& neighbour : all_) {
        if (neighbour.rank == rank_ || !neighbour.recorder) continue;
        neighbour.recorder->notes().event = event;
        Signals::wake_process(neighbour.pid);
    }
}

}  // namespace coeus
