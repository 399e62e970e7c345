// SPDX-License-Identifier: Apache-2.0
// An event has a number, the same on all ranks, and a flag: the run ends with it, or continues. A rank that
// notices something claims the next number, first among the ranks of its host, then in the meeting place. The
// rank that gets the number collects the states; all other ranks write their state and wait for the report.
#include "coeus/watchdog/watchdog.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error_text.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/comm/mpi.hpp"
#include "coeus/comm/together.hpp"
#include "hang_report.hpp"
#include "meeting.hpp"
#include "neighbours.hpp"
#include "signals.hpp"
#include "time_out.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

namespace coeus {

namespace {

// mpirun ends the other ranks one second after a death
constexpr double death_patience = 0.5;  // seconds
constexpr double stack_patience = 0.2, abort_patience = 2, log_patience = 1;
// more time for all stacks of a rank whose threads are ready to run: other processes may occupy their cores
constexpr double busy_patience = 1;
constexpr double one_report = 2;  // signals of a user that are closer together count as one
constexpr size_t most_calls = 24;

// Seconds to wait for the records of other hosts, which the reporting rank opens one by one.
double record_patience(int ranks) {
    return 4 + 0.002 * ranks;
}

// Seconds to wait for the report.
double report_patience(int ranks) {
    return record_patience(ranks) + 2.5;
}

// Seconds between the checks of a rank that waits for the report: all ranks together check 640 times a
// second.
double pause_between_looks(int ranks) {
    return std::max(0.05, ranks / 640.0);
}

// The number of an event and the flag "the run ends with it", in one number.
int64_t note_of(int64_t event, bool ends) {
    return 2 * event + int64_t(ends);
}

bool is_of_mpi(const CallStack::Call& call) {
    for (const char* library :
         {"libmpi", "libopen-pal", "libopen-rte", "libpmix", "libucp", "libuct", "libnccl"})
        if (call.object.starts_with(library)) return true;
    // our own function that sleeps between MPI's tests
    if (call.function == waiting_function) return true;
    return call.function.starts_with("MPI_") || call.function.starts_with("PMPI_");
}

// The first calls of a stack, those of the signal handler, are left out.
RankState::Stack stack_state(int64_t thread, const std::optional<CallStack>& stack) {
    constexpr size_t of_the_handler = 3;
    RankState::Stack state = {.thread = thread,
                              .on_disk = process_state(FlightRecorder::own().pid(), thread) == 'D'};
    if (!stack) return state;
    const std::vector<CallStack::Call> calls = stack->calls();
    for (size_t i = of_the_handler; i < std::min(calls.size(), of_the_handler + most_calls); ++i) {
        state.in_mpi |= is_of_mpi(calls[i]);
        state.calls.push_back(calls[i].text());
    }
    return state;
}

}  // namespace

struct Watchdog::Thread {
    Thread(const MpiRuntime& mpi, double allowed_seconds, const char* option_name)
        : neighbours(mpi),
          signals(last_patience()),
          time_out(allowed_seconds, option_name),
          thread([this] { run(); }) {}

    ~Thread() {
        FlightRecorder::own().notes().left = 1;
        ending = true;
        signals.wake();
        thread.join();
        if (meeting_ && neighbours.rank() == 0) meeting_->leave();
    }

    // Another thread reports an event of this rank. Only the first one counts.
    void notice(HangOccasion::Kind kind, const std::string& text) {
        {
            const std::lock_guard lock(mutex);
            if (!noticed) noticed = HangOccasion{kind, neighbours.rank(), text};
        }
        signals.wake();
    }

    void run() {
        signals.this_is_the_watchdog();
        // the first check comes before the first step, so that later ones allocate nothing
        while (!ending) {
            look();
            signals.wait(time_out.pause(), neighbours.descriptor());
        }
    }

    void look() {
        time_out.look(steady_seconds());
        if (const auto occasion = own_occasion()) raise(*occasion);
        if (neighbours.told() > note_of(handled, true))
            take_part({.number = neighbours.told() / 2, .ends = neighbours.told() % 2 == 1});
        // the ranks of a host take turns to look for events of other hosts
        else if (const Meeting* others = meeting();
                 others && looks++ % neighbours.all().size() == index_on_host()) {
            const MeetingPlace::Event newest = others->newest();
            // a rank that was alone with an event may find that other hosts share it
            if (newest.number > handled || (alone && newest.ends && newest.number == handled)) {
                neighbours.tell(note_of(newest.number, newest.ends));
                take_part(newest);
            }
        }
    }

    std::optional<HangOccasion> own_occasion() {
        using Kind = HangOccasion::Kind;
        const int rank = neighbours.rank();
        const auto crash = signals.crash();
        if (crash)
            return HangOccasion{Kind::crash, rank, fmt::format("Rank {} crashed: {}.", rank, crash->text)};
        {
            const std::lock_guard lock(mutex);
            if (noticed) {
                HangOccasion occasion = *noticed;
                if (occasion.kind == Kind::error)
                    occasion.text = fmt::format("Rank {} failed: {}", rank, occasion.text);
                return occasion;
            }
        }
        if (const auto* dead = neighbours.dead_neighbour()) {
            return HangOccasion{Kind::death, rank,
                                fmt::format("Rank {} (host {}, process {}) has died.", dead->rank,
                                            neighbours.host_of(dead->rank), dead->pid)};
        }
        if (const std::string overdue = overdue_text(); !overdue.empty())
            return HangOccasion{Kind::overdue, rank, overdue};
        // a signal that was sent to all ranks causes only one report
        if (signals.asked_by_hand() && steady_seconds() - last_report > one_report)
            return HangOccasion{Kind::by_hand, rank, "State of all ranks, asked for by SIGQUIT."};
        return std::nullopt;
    }

    // True if a rank of this host tries again to read a file. It ends its own run if that takes too long.
    bool is_file_waited_for() const {
        return std::ranges::any_of(neighbours.all(), [](const Neighbours::Neighbour& neighbour) {
            if (!neighbour.recorder || process_state(neighbour.pid) == 'T') return false;
            return std::ranges::any_of(neighbour.recorder->operations(), [](const Operation& operation) {
                return operation.under_way() && operation.kind == OperationKind::patient &&
                       std::string_view(operation.name.data()) == wait_for_file;
            });
        });
    }

    std::string overdue_text() {
        const double now = steady_seconds();
        for (const Operation& operation : FlightRecorder::own().operations()) {
            const std::optional<double> seconds = time_out.overdue(operation, now);
            if (!seconds) continue;
            if (is_file_waited_for()) {
                time_out.excuse(now);
                return "";
            }
            const RankState state = state_of(FlightRecorder::own(), now);
            for (const RankState::Entry& entry : state.entries)
                if (entry.under_way && entry.thread == operation.thread &&
                    entry.name == operation.name.data())
                    return fmt::format("Rank {}: {} has not ended after {:.1f} s ({} = {:.0f}{}).",
                                       neighbours.rank(), entry.text(), *seconds, time_out.option(),
                                       time_out.seconds(),
                                       operation.allowance >= 1
                                           ? fmt::format(", plus {:.0f} for its bytes", operation.allowance)
                                           : "");
        }
        return "";
    }

    // `busy`: additional seconds for threads that wait for a core.
    RankState own_state(double busy) {
        RankState state = state_of(FlightRecorder::own(), steady_seconds());
        state.rank = neighbours.rank();
        state.host = neighbours.host_of(state.rank);
        {
            const std::lock_guard lock(mutex);
            state.gpu = gpu;
            // an exception has ended the operations, so stacks would not help
            if (noticed && noticed->kind == HangOccasion::Kind::error) {
                state.error = noticed->text;
                return state;
            }
        }
        std::set<int64_t> threads;
        const Timer timer;
        const auto add_stack = [&](int64_t number) {
            constexpr size_t most = 3;
            if (threads.size() < most && threads.insert(number).second)
                state.stacks.push_back(stack_state(
                    number,
                    signals.stack_of(number, stack_patience, stack_patience + busy - timer.seconds())));
        };
        add_stack(state.pid);
        if (const auto crash = signals.crash()) {
            state.crash = crash->text;
            add_stack(crash->thread);
        }
        for (const RankState::Entry& entry : state.entries)
            if (entry.under_way) add_stack(entry.thread);
        return state;
    }

    void raise(const HangOccasion& occasion) {
        const Meeting* others = meeting();
        const int64_t event = handled + 1;
        if (!neighbours.claim(note_of(event, occasion.ends()))) return;
        const std::optional<bool> claimed = others ? others->claim(event) : true;
        if (claimed == false) return follow(*others, event);
        alone = !claimed;
        if (occasion.ends()) end_within(last_patience());
        handled = event;
        if (others) others->announce(event, occasion.ends());
        neighbours.tell(note_of(event, occasion.ends()));
        const std::vector<RankState> states = collect(event, occasion);
        std::string text = hang_report(occasion, states).text;
        if (others) text += fmt::format("\nThe last operations of each rank: {}", others->folder().string());
        say(text, occasion.ends());
        if (others) others->conclude(event, text);
        if (occasion.ends()) end();
        last_report = steady_seconds();
    }

    // Another host has claimed this event and announces it. If it was cut off before the announcement, the
    // event is skipped, and a rank that still has an occasion raises the next one.
    void follow(const Meeting& others, int64_t event) {
        MeetingPlace::Event newest;
        for (const Timer timer; newest.number < event && timer.seconds() < log_patience; sleep_seconds(0.05))
            newest = others.newest();
        if (newest.number < event) newest = {.number = event};
        neighbours.tell(note_of(newest.number, newest.ends));
        take_part(newest);
    }

    // The states of all ranks: from the recorder for dead and stopped ranks of this host, from their files
    // for all others.
    std::vector<RankState> collect(int64_t event, const HangOccasion& occasion) {
        const auto ranks = size_t(neighbours.world_size());
        std::vector<RankState> states(ranks);
        std::vector<bool> there(ranks, false);
        for (size_t rank = 0; rank < ranks; ++rank) {
            states[rank].rank = int(rank);
            states[rank].host = neighbours.host_of(int(rank));
            states[rank].condition = RankState::Condition::silent;
        }
        const auto take = [&](RankState state) {
            const auto rank = size_t(state.rank);
            states[rank] = std::move(state);
            there[rank] = true;
        };
        const bool is_short = occasion.kind == HangOccasion::Kind::death;
        const RankState own = own_state(is_short ? 0 : busy_patience);
        const Meeting* others = meeting();
        if (others) others->write(event, own);
        take(own);
        const double patience = is_short ? death_patience : record_patience(int(ranks));
        const Timer timer;
        while (true) {
            for (RankState& state : neighbours.that_cannot_answer())
                if (!there[size_t(state.rank)]) take(std::move(state));
            std::vector<int> missing;
            for (size_t rank = 0; rank < ranks; ++rank)
                if (!there[rank]) missing.push_back(int(rank));
            const double left = patience - timer.seconds();
            if (missing.empty() || left <= 0) break;
            if (others)
                for (RankState& state : others->read(event, missing, left)) take(std::move(state));
            sleep_seconds(0.05);
        }
        for (const Neighbours::Neighbour& neighbour : neighbours.all())
            if (!there[size_t(neighbour.rank)]) take(neighbours.state_of(neighbour));
        return states;
    }

    void take_part(MeetingPlace::Event event) {
        handled = event.number;
        if (event.ends) end_within(last_patience());
        const Meeting* others = meeting();
        if (others) {
            others->write(event.number, own_state(busy_patience));
            others->write_for(event.number, neighbours.that_cannot_answer());
        }
        last_report = steady_seconds();
        if (!event.ends) return;
        const Timer timer;
        const int ranks = neighbours.world_size();
        while (timer.seconds() < report_patience(ranks) && !(others && is_over(*others, event.number)))
            sleep_seconds(pause_between_looks(ranks));
        sleep_seconds(1);  // normally the rank that reports ends this process
        end();
    }

    static bool is_over(const Meeting& others, int64_t event) {
        const MeetingPlace::Event newest = others.newest();
        return newest.number == event && newest.over;
    }

    // The log file may be on a file system that does not answer.
    void say(const std::string& text, bool ends) {
        const auto log_text = [text, ends] {
            if (ends)
                log::error("{}", text);
            else
                log::warn("{}", text);
            log::flush();
        };
        if (errands.run(log_patience, log_text)) return;
        const std::string line = text + "\n";
        if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // there is no other place to write
    }

    // Longer than a report takes.
    double last_patience() const {
        return report_patience(neighbours.world_size()) + 4 * log_patience + abort_patience;
    }

    // Ends this process after `seconds`, even if the report or MPI hangs.
    static void end_within(double seconds) {
        std::thread([seconds] {
            sleep_seconds(seconds);
            std::_Exit(int(ExitCode::system));
        }).detach();
    }

    // MPI_Abort may hang too.
    [[noreturn]] void end() {
        errands.run(log_patience, log::flush);
        if (signals.crash()) {
            signals.end_crashed();
            sleep_seconds(last_patience());
        }
        end_within(abort_patience);
        end_mpi_after_error(int(ExitCode::system), false);
        std::_Exit(int(ExitCode::system));
    }

    size_t index_on_host() const {
        const auto& all = neighbours.all();
        return size_t(std::ranges::find(all, neighbours.rank(), &Neighbours::Neighbour::rank) - all.begin());
    }

    const Meeting* meeting() const {
        const std::lock_guard lock(mutex);
        return meeting_.get();
    }

    void meet(MeetingPlace place, int64_t last_event) {
        const std::lock_guard lock(mutex);
        handled = last_event;
        meeting_ = std::make_unique<Meeting>(errands, std::move(place));
    }

    Errands errands;
    Neighbours neighbours;
    Signals signals;
    mutable std::mutex mutex;  // protects the members that other threads set
    std::unique_ptr<Meeting> meeting_;
    std::string gpu;
    std::optional<HangOccasion> noticed;
    TimeOut time_out;
    std::atomic<bool> ending = false;
    std::atomic<int64_t> handled = 0;  // number of the last event
    bool alone = false;                // the meeting place did not answer in that event
    size_t looks = 0;
    double last_report = -1e9;
    std::thread thread;  // last member: it uses all others
};

Watchdog::Watchdog(const Config::Comm& options, const MpiRuntime& mpi)
    : options_(options),
      thread_(
          std::make_unique<Thread>(mpi, double(options.init_timeout_seconds), "comm.init_timeout_seconds")) {}

Watchdog::~Watchdog() = default;

const std::vector<std::string>& Watchdog::hosts() const {
    return thread_->neighbours.hosts();
}

void Watchdog::guard(const std::function<void()>& work) {
    const auto report = [&](const std::exception& error) {
        if (thread_->neighbours.world_size() == 1) return;
        thread_->notice(HangOccasion::Kind::error, text_of(error));
        sleep_seconds(2 * thread_->last_patience());  // the watchdog's thread ends the process
    };
    try {
        work();
    } catch (const CollectiveError&) {
        throw;
    } catch (const SystemError& error) {
        report(error);
        throw;
    } catch (const LogicError& error) {
        report(error);
        throw;
    } catch (const std::filesystem::filesystem_error& error) {
        report(error);
        throw;
    } catch (const std::bad_alloc& error) {
        report(error);
        throw;
    }
}

void Watchdog::meet_in(const std::filesystem::path& folder, const std::string& run) {
    const Communicator world = Communicator::world("meeting");
    MeetingPlace place(folder / options_.save_traces_folder, run, options_.save_traces_file_prefix);
    on_first_rank(world, [&] { place.prepare(); });
    // some ranks may have had events before, on their own
    thread_->meet(std::move(place), world.all_reduce(thread_->handled.load(), Reduce::max));
    world.barrier();
}

void Watchdog::set_gpu(const std::string& bus_id) {
    const std::lock_guard lock(thread_->mutex);
    thread_->gpu = bus_id;
}

QueueWatch& Watchdog::nccl() {
    if (nccl_) return *nccl_;
    nccl_.emplace(QueueWatch::Settings{
        .who = fmt::format("rank {} on host {}, GPU {}", thread_->neighbours.rank(),
                           thread_->neighbours.host_of(thread_->neighbours.rank()), thread_->gpu),
        .fail = [this](const std::string& message) {
            thread_->notice(HangOccasion::Kind::overdue, message);
        }});
    nccl_->allow(thread_->time_out.seconds(), thread_->time_out.option());
    nccl_->start();
    return *nccl_;
}

void Watchdog::begin_step(int64_t step) {
    FlightRecorder::own().notes().step = step;
    step_began_ = steady_seconds();
}

void Watchdog::end_step(double seconds) {
    // a step in which the job was suspended tells nothing about the time of other steps
    if (thread_->time_out.resumed() < step_began_) last_steps_[steps_ended_++ % last_steps_.size()] = seconds;
    if (std::exchange(first_step_done_, true)) return;
    constexpr const char* option = "comm.train_timeout_seconds";
    const auto allowed = double(options_.train_timeout_seconds);
    thread_->time_out.set(allowed, option);
    if (nccl_) nccl_->allow(allowed, option);
}

double Watchdog::slowest_step() const {
    return std::ranges::max(last_steps_);
}

Watchdog::Graphs::Graphs(Watchdog& watchdog, bool by_graphs) {
    if (!by_graphs || !watchdog.first_step_done_ || !watchdog.nccl_) return;
    const Neighbours& ranks = watchdog.thread_->neighbours;
    if (!watchdog.graphs_)
        watchdog.graphs_.emplace(*watchdog.nccl_, "world", nullptr, nullptr,
                                 FlightRecorder::Line("all ranks", 0, ranks.rank(), ranks.world_size()),
                                 OperationKind::graph);
    line_ = &*watchdog.graphs_;
    line_->begin("step by graphs", 0, nullptr, 2 * watchdog.slowest_step());
}

Watchdog::Graphs::~Graphs() {
    if (line_) line_->end(nullptr);
}

}  // namespace coeus
