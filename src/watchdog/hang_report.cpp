// SPDX-License-Identifier: Apache-2.0
// A rank in a collective waits for the ranks of its communicator that have entered fewer collectives. A rank
// in a message waits for its peer. A rank that others wait for, and that waits for no other, holds the others
// up.
#include "hang_report.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

namespace coeus {

namespace {

using Condition = RankState::Condition;
using Entry = RankState::Entry;
using Line = RankState::Line;

// A rank of a communicator, with the communicator's line in the rank's state.
struct Member {
    int rank;
    const Line* line;
};

class Analysis {
public:
    Analysis(const HangOccasion& occasion, const std::vector<RankState>& states)
        : occasion_(occasion), states_(states), blockers_(states.size()) {
        for (const RankState& state : states)
            for (const Line& line : state.lines) members_[line.id].push_back({state.rank, &line});
        for (const RankState& state : states) blockers_[size_t(state.rank)] = blockers(state);
    }

    HangReport report() const {
        HangReport report = finding();
        report.text = fmt::format("{}\n{}\nLikely cause: {}{}", occasion_.text, table(report.ranks),
                                  report.text, stacks(report.ranks));
        return report;
    }

private:
    const RankState& state(int rank) const { return states_[size_t(rank)]; }

    bool is_gone(const RankState& of) const {
        return of.condition == Condition::died || of.condition == Condition::silent;
    }

    std::vector<int> ranks_with(const auto& property) const {
        std::vector<int> ranks;
        for (const RankState& of : states_)
            if (property(of)) ranks.push_back(of.rank);
        return ranks;
    }

    // The stack of the thread that is in a collective: within MPI, or held up before it; null if there is
    // none.
    static const RankState::Stack* stack_in_collective(const RankState& of) {
        const Entry* at = of.at();
        return at && at->kind == OperationKind::collective ? of.stack_of(at->thread) : nullptr;
    }
    static bool is_inside(const RankState& of) {
        const RankState::Stack* stack = stack_in_collective(of);
        return stack && stack->in_mpi;
    }
    static bool is_outside(const RankState& of) {
        const RankState::Stack* stack = stack_in_collective(of);
        return stack && !stack->in_mpi;
    }

    // The host has given its GPU this operation, and the GPU has not reached it.
    static bool waits_in_queue(const RankState& of, const Entry& operation) {
        return std::ranges::any_of(of.entries, [&](const Entry& entry) {
            return entry.id == operation.id && entry.sequence == operation.sequence && entry.under_way &&
                   !entry.reached;
        });
    }

    // Ranks for which this one waits.
    std::vector<int> blockers(const RankState& of) const {
        const Entry* at = of.at();
        if (is_gone(of) || of.condition == Condition::stopped || !at || !at->is_communication() ||
            !at->reached)
            return {};
        const auto found = members_.find(at->id);
        if (found == members_.end()) return {};
        const std::vector<Member>& members = found->second;
        std::set<int> all;
        for (const auto& [rank, line] : members) {
            if (rank == of.rank) continue;
            const bool is_late = at->kind == OperationKind::message ? line->rank == at->peer
                                                                    : line->collectives < at->sequence;
            // a rank that entered it, and then died or was stopped, holds it up as well
            if (is_late ||
                (at->kind != OperationKind::message && state(rank).condition != Condition::running))
                all.insert(rank);
        }
        // the communicators of ranks that have not answered are not known
        if (!members.empty() && int(members.size()) < members.front().line->size)
            for (const RankState& other : states_)
                if (other.lines.empty() && other.condition != Condition::running) all.insert(other.rank);
        if (all.empty() && at->kind == OperationKind::queued)
            for (const Member& member : members)
                if (waits_in_queue(state(member.rank), *at)) all.insert(member.rank);
        if (all.empty() && is_inside(of))
            for (const Member& member : members)
                if (is_outside(state(member.rank))) all.insert(member.rank);
        return {all.begin(), all.end()};
    }

    // Ranks for which others wait, directly or indirectly, and that wait for no other.
    std::vector<int> roots() const {
        std::set<int> all;
        for (const std::vector<int>& of : blockers_)
            for (const int rank : of)
                if (blockers_[size_t(rank)].empty()) all.insert(rank);
        return {all.begin(), all.end()};
    }

    bool is_in(const RankState& of, OperationKind kind) const {
        return of.condition == Condition::running && of.at() && of.at()->kind == kind;
    }

    std::string names(const std::vector<int>& ranks) const {
        if (ranks.size() == 1) return state(ranks[0]).who();
        std::set<std::string> hosts;
        for (const int rank : ranks) hosts.insert(state(rank).host);
        return fmt::format("ranks {} (host{} {})", ranks_text(ranks), hosts.size() > 1 ? "s" : "",
                           join(std::vector<std::string>(hosts.begin(), hosts.end()), ", "));
    }

    HangReport finding() const {
        if (auto gone = ranks_with([](const RankState& s) { return s.condition == Condition::died; });
            !gone.empty())
            return {HangCause::died, gone,
                    names(gone) +
                        " died: killed from outside, or for lack of memory (see `dmesg` and the job's "
                        "accounting), or ended by a library (see the last lines of its log)"};
        if (auto crashed = ranks_with([](const RankState& s) { return !s.crash.empty(); }); !crashed.empty())
            return {HangCause::crashed, crashed,
                    fmt::format("{} crashed: {}", names(crashed), state(crashed[0]).crash)};
        if (auto stopped = ranks_with([](const RankState& s) { return s.condition == Condition::stopped; });
            !stopped.empty())
            return {HangCause::stopped, stopped,
                    names(stopped) + " stopped: by SIGSTOP, a debugger, or a scheduler that suspends jobs"};
        if (auto order = disagreement()) return *order;
        if (auto failed = ranks_with([](const RankState& s) { return !s.error.empty(); }); !failed.empty())
            return {HangCause::error, failed,
                    fmt::format("{} failed: {}", names(failed), state(failed[0]).error)};
        // in a large run even a healthy host may answer too late
        const std::vector<int> late = roots();
        const bool is_clear =
            std::ranges::any_of(late, [&](int rank) { return state(rank).condition == Condition::running; });
        if (auto silent = ranks_with([](const RankState& s) { return s.condition == Condition::silent; });
            !silent.empty() && !is_clear)
            return {HangCause::silent, silent,
                    names(silent) +
                        " did not answer: the process or its host is gone or stopped, or cannot access "
                        "the folder of this run"};
        return stuck();
    }

    HangReport stuck() const {
        std::vector<int> late = roots();
        std::erase_if(late, [&](int rank) { return state(rank).condition != Condition::running; });
        const bool circle =
            late.empty() && std::ranges::any_of(blockers_, [](const auto& of) { return !of.empty(); });
        const auto those_in = [&](OperationKind kind) {
            std::vector<int> ranks;
            for (const int rank : late)
                if (is_in(state(rank), kind)) ranks.push_back(rank);
            return ranks;
        };
        if (occasion_.kind == HangOccasion::Kind::overdue && late.empty()) late = {occasion_.rank};
        if (auto disk = overdue_file(); !disk.ranks.empty()) return disk;
        if (const auto disk = those_in(OperationKind::file); !disk.empty())
            return {HangCause::disk, disk,
                    fmt::format("{} {} held up by {}: a slow, full or unreachable disk", names(disk),
                                verb(disk), state(disk[0]).at()->text())};
        if (const auto behind = those_in(OperationKind::data); !behind.empty())
            return {HangCause::data, behind,
                    names(behind) + " " + verb(behind) +
                        " waiting for data: the next batch is not ready (slow storage, or too few cores for "
                        "the thread that reads)"};
        if (const auto driver = those_in(OperationKind::driver); !driver.empty())
            return {
                HangCause::gpu, driver,
                fmt::format("{} {} held up by {}: a GPU or driver that does not answer (`nvidia-smi`, Xid "
                            "in `dmesg`)",
                            names(driver), verb(driver), state(driver[0]).at()->text())};
        return circle ? circle_of_ranks() : held_up(late);
    }

    // The finding if no file, data or driver holds up the ranks that are late.
    HangReport held_up(const std::vector<int>& late) const {
        std::vector<int> working, queueing, outside;
        for (const int rank : late) {
            if (const Entry* at = state(rank).at(); at && !at->reached) queueing.push_back(rank);
            if (!state(rank).at()) working.push_back(rank);
            if (is_outside(state(rank))) outside.push_back(rank);
        }
        if (occasion_.kind == HangOccasion::Kind::by_hand && longest_wait() < 1)
            return {HangCause::none, {}, "none: no rank has waited for a second; the run continues"};
        if (!working.empty())
            return {HangCause::computing, working,
                    fmt::format("{} {} not reached the operation in which others wait: slower than the "
                                "others, or stuck in code of its own ({})",
                                names(working), working.size() > 1 ? "have" : "has",
                                quiet_text(state(working[0])))};
        if (!queueing.empty())
            return {
                HangCause::gpu, queueing,
                fmt::format("the GPU of {} has not reached {}: an earlier kernel does not end, or the GPU "
                            "has failed (`nvidia-smi`, Xid in `dmesg`)",
                            names(queueing), state(queueing[0]).at()->text()) +
                    shared_gpu_advice()};
        if (!outside.empty())
            return {HangCause::held_up, outside,
                    fmt::format("{} {} entered the operation in which the others wait, but {} held up there "
                                "outside of MPI",
                                names(outside), outside.size() > 1 ? "have" : "has", verb(outside))};
        if (occasion_.kind == HangOccasion::Kind::by_hand)
            return {HangCause::none, {}, "none was found; the run continues"};
        if (const Entry* at = state(occasion_.rank).at(); at && at->kind == OperationKind::graph)
            return {
                HangCause::graph, late,
                "all ranks have launched this step as CUDA graphs, which cannot be inspected: a GPU hangs, "
                "or the network or NCCL makes no progress. training.disable_cuda_graphs = true shows which" +
                    shared_gpu_advice()};
        return {
            HangCause::network, late,
            "all ranks have entered it: the network, MPI or NCCL makes no progress" + shared_gpu_advice()};
    }

    // What may help if this rank waits in NCCL, which connects it with another rank on its GPU; else "".
    std::string shared_gpu_advice() const {
        const RankState& of = state(occasion_.rank);
        const Entry* at = of.at();
        const bool is_on_gpu =
            at && (at->kind == OperationKind::queued || at->kind == OperationKind::graph) && !of.gpu.empty();
        if (!is_on_gpu || std::ranges::count_if(states_, [&](const RankState& other) {
                              return other.host == of.host && other.gpu == of.gpu;
                          }) == 1)
            return "";
        return ". Ranks share a GPU, which may lack room for the operations of all: set NCCL_MAX_CTAS = 2 "
               "or less, or start fewer ranks on it";
    }

    // Ranks wait for each other in a circle: those that are not where most are have left out an operation, or
    // call operations in another order.
    HangReport circle_of_ranks() const {
        std::map<std::string, std::vector<int>> places;
        for (const RankState& of : states_)
            if (!blockers_[size_t(of.rank)].empty()) places[of.at()->text()].push_back(of.rank);
        const auto most =
            std::ranges::max_element(places, {}, [](const auto& place) { return place.second.size(); });
        std::vector<int> odd;
        for (const auto& [what, ranks] : places)
            if (what != most->first || most->second.size() == 1)
                odd.insert(odd.end(), ranks.begin(), ranks.end());
        std::ranges::sort(odd);
        if (odd.empty()) odd = most->second;
        return {HangCause::order, odd,
                fmt::format("{} {} for the others, and they wait for {}: an operation was left out, or comes "
                            "in another order",
                            names(odd), odd.size() > 1 ? "wait" : "waits", odd.size() > 1 ? "them" : "it")};
    }

    static const char* verb(const std::vector<int>& ranks) { return ranks.size() > 1 ? "are" : "is"; }

    double longest_wait() const {
        double longest = 0;
        for (const RankState& of : states_)
            if (const Entry* at = of.at()) longest = std::max(longest, at->seconds);
        return longest;
    }

    // The finding if the slowest operation is one with a file, also of a thread that writes during training.
    HangReport overdue_file() const {
        if (occasion_.kind != HangOccasion::Kind::overdue) return {};
        const Entry* slowest = nullptr;
        for (const Entry& entry : state(occasion_.rank).entries)
            if (entry.under_way && (!slowest || entry.seconds > slowest->seconds)) slowest = &entry;
        if (!slowest || slowest->kind != OperationKind::file) return {};
        return {HangCause::disk,
                {occasion_.rank},
                fmt::format("{} is held up by {}: a slow, full or unreachable disk", names({occasion_.rank}),
                            slowest->text())};
    }

    // The first operation of a communicator that is not the same on all ranks, and the ranks that differ from
    // the majority.
    std::optional<HangReport> disagreement() const {
        std::map<std::tuple<uint64_t, int64_t>, std::map<std::string, std::vector<int>>> done;
        for (const RankState& of : states_)
            for (const Entry& entry : of.entries)
                if (entry.is_communication() && entry.kind != OperationKind::message && entry.id != 0)
                    done[{entry.id, entry.sequence}][entry.text()].push_back(of.rank);
        for (const auto& [number, ways] : done) {
            if (ways.size() < 2) continue;
            const auto most =
                std::ranges::max_element(ways, {}, [](const auto& way) { return way.second.size(); });
            std::vector<int> odd;
            std::vector<std::string> texts;
            for (const auto& [what, ranks] : ways) {
                texts.push_back(
                    fmt::format("rank{} {} {}", ranks.size() > 1 ? "s" : "", ranks_text(ranks), what));
                if (what != most->first || most->second.size() == 1)
                    odd.insert(odd.end(), ranks.begin(), ranks.end());
            }
            std::ranges::sort(odd);
            return HangReport{HangCause::order, odd,
                              fmt::format("{} {} in another operation than the others with the same number "
                                          "({}): an operation was left out, or came in another order",
                                          names(odd), verb(odd), join(texts, "; "))};
        }
        return std::nullopt;
    }

    std::string quiet_text(const RankState& of) const {
        const Entry* last = of.last();
        return last ? fmt::format("its last operation, {}, ended {:.1f} s ago", last->text(), last->seconds)
                    : "it has not begun any operation yet";
    }

    std::string at_text(const RankState& of) const {
        const char* prefix = of.condition == Condition::died      ? "died; was in "
                             : of.condition == Condition::stopped ? "stopped; was in "
                             : !of.crash.empty()                  ? "crashed; was in "
                             : !of.error.empty()                  ? "failed; was in "
                                                                  : "";
        if (of.condition == Condition::silent) return "did not answer";
        const Entry *at = of.at(), *last = of.last();
        if (at) return prefix + at->text();
        return fmt::format("{}no operation that waits{}", prefix, last ? ", since " + last->text() : "");
    }

    // Ranks in the same operation that wait for the same ranks share a row. Ranks that hold the others up are
    // in the first rows.
    std::string table(const std::vector<int>& first) const {
        struct Row {
            std::vector<int> ranks;
            double least = 0, most = 0;
        };
        std::map<std::tuple<bool, std::string, std::string>, Row> rows;
        for (const RankState& of : states_) {
            const Entry *at = of.at(), *last = of.last();
            const std::vector<int>& waits = blockers_[size_t(of.rank)];
            const double since = at ? at->seconds : last ? last->seconds : 0;
            const bool is_first = std::ranges::find(first, of.rank) != first.end();
            Row& row = rows[{!is_first, at_text(of),
                             waits.empty()
                                 ? "-"
                                 : fmt::format("rank{} {}", waits.size() > 1 ? "s" : "", ranks_text(waits))}];
            row.least = row.ranks.empty() ? since : std::min(row.least, since);
            row.most = std::max(row.most, since);
            row.ranks.push_back(of.rank);
        }
        std::vector<std::array<std::string, 4>> cells = {{"ranks", "operation", "for", "waiting for"}};
        for (const auto& [key, row] : rows) {
            const auto& [later, at, waits] = key;
            const RankState& one = state(row.ranks[0]);
            cells.push_back(
                {row.ranks.size() == 1
                     ? fmt::format("{} ({}{})", one.rank, one.host, one.gpu.empty() ? "" : ", " + one.gpu)
                     : ranks_text(row.ranks),
                 at,
                 row.most - row.least < 0.15 ? fmt::format("{:.1f} s", row.most)
                                             : fmt::format("{:.1f} - {:.1f} s", row.least, row.most),
                 waits});
        }
        std::array<size_t, 4> widths = {};
        for (const auto& row : cells)
            for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
        std::string text;
        for (const auto& row : cells)
            text += fmt::format("{}  {:<{}}  {:<{}}  {:>{}}  {}", text.empty() ? "" : "\n", row[0], widths[0],
                                row[1], widths[1], row[2], widths[2], row[3]);
        return text;
    }

    std::string stacks(const std::vector<int>& ranks) const {
        constexpr size_t most = 2;  // ranks
        std::string text;
        for (size_t i = 0; i < std::min(most, ranks.size()); ++i) {
            const RankState& of = state(ranks[i]);
            for (const RankState::Stack& stack : of.stacks) {
                text += fmt::format(
                    "\nRank {}, {}{}:", of.rank,
                    stack.thread == of.pid ? "its main thread" : fmt::format("its thread {}", stack.thread),
                    stack.on_disk ? ", waiting for a disk (state D)" : "");
                for (const std::string& call : stack.calls) text += "\n    " + call;
                if (stack.calls.empty()) text += "\n    does not answer";
            }
        }
        return text;
    }

    const HangOccasion& occasion_;
    const std::vector<RankState>& states_;
    std::map<uint64_t, std::vector<Member>> members_;
    std::vector<std::vector<int>> blockers_;
};

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
    std::vector<std::string> runs;
    for (size_t i = 0; i < ranks.size();) {
        size_t end = i + 1;
        while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
        runs.push_back(end - i == 1   ? std::to_string(ranks[i])
                       : end - i == 2 ? fmt::format("{}, {}", ranks[i], ranks[i + 1])
                                      : fmt::format("{} - {}", ranks[i], ranks[end - 1]));
        i = end;
    }
    return join(runs, ", ");
}

HangReport hang_report(const HangOccasion& occasion, const std::vector<RankState>& states) {
    return Analysis(occasion, states).report();
}

}  // namespace coeus
