// SPDX-License-Identifier: Apache-2.0
// An event is a number, the same on all ranks, and whether the run ends with it. Whoever notices something
// claims the next number: first among the ranks of its host, then in the meeting place. Who gets it collects;
// all others write what they are at and wait for the report.
#include "coeus/train/watchdog.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/log.hpp"
#include "coeus/comm/together.hpp"
#include "coeus/train/hang_report.hpp"
#include "meeting_place.hpp"
#include "neighbours.hpp"
#include "signals.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <utility>

namespace coeus {

namespace {

constexpr double record_patience = 2.5;  // seconds, for the records of other hosts
// mpirun ends the others one second after a death
constexpr double death_patience = 0.5;
constexpr double report_patience = record_patience + 2.5;  // until the report is there
constexpr double stack_patience = 0.2, abort_patience = 2;
constexpr double one_report = 2;  // so close together, signals of a user are one
constexpr size_t most_calls = 24;

// Notes of an event carry whether the run ends with it.
int64_t note_of(int64_t event, bool ends) {
    return 2 * event + int64_t(ends);
}

bool is_of_mpi(const CallStack::Call& call) {
    for (const char* library :
         {"libmpi", "libopen-pal", "libopen-rte", "libpmix", "libucp", "libuct", "libnccl"})
        if (call.object.starts_with(library)) return true;
    return call.function.starts_with("MPI_") || call.function.starts_with("PMPI_");
}

// A signal's handler and what calls it are the first.
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

void sleep(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

struct Watchdog::Thread {
    Thread(const MpiRuntime& mpi, double allowed_seconds, const char* option_name)
        : signals(report_patience + abort_patience),
          neighbours(mpi),
          allowed(allowed_seconds),
          option(option_name),
          thread([this] { run(); }) {}

    ~Thread() {
        FlightRecorder::own().notes().left = 1;
        ending = true;
        signals.wake();
        thread.join();
    }

    // What another thread has noticed of this rank: the first of it.
    void notice(HangOccasion::Kind kind, const std::string& text) {
        {
            const std::lock_guard lock(mutex);
            if (!noticed) noticed = HangOccasion{kind, neighbours.rank(), text};
        }
        signals.wake();
    }

    void run() {
        signals.this_is_the_watchdog();
        // once before the first step: what a look takes of memory is there from then on
        while (!ending) {
            look();
            last_look = steady_seconds();
            signals.wait(std::clamp(allowed.load() / 10, 0.01, 1.0), neighbours.descriptor());
        }
    }

    // A job that was suspended as a whole goes on: what it was at has not taken that time.
    void see_whether_stopped() {
        const double now = steady_seconds();
        if (last_look > 0 && now - last_look > 1 + allowed / 2) resumed = now;
        last_look = now;
    }

    void look() {
        see_whether_stopped();
        if (const auto occasion = own_occasion()) raise(*occasion);
        if (neighbours.told() > note_of(handled, true))
            take_part({.number = neighbours.told() / 2, .ends = neighbours.told() % 2 == 1});
        // one of a host asks the others at a time
        else if (const MeetingPlace* place = meeting_place();
                 place && looks++ % neighbours.all().size() == index_on_host()) {
            const MeetingPlace::Event newest = place->newest();
            if (newest.number > handled) {
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
        // a signal to all ranks asks for one report
        if (signals.asked_by_hand() && steady_seconds() - last_report > one_report)
            return HangOccasion{Kind::by_hand, rank, "What the ranks are at, asked for by SIGQUIT."};
        return std::nullopt;
    }

    std::string overdue_text() const {
        const double now = steady_seconds();
        for (const Operation& operation : FlightRecorder::own().operations()) {
            if (!operation.under_way() || operation.kind == OperationKind::patient ||
                operation.kind == OperationKind::queued)
                continue;
            const double seconds = now - std::max(operation.began, resumed);
            if (seconds <= allowed + operation.allowance) continue;
            const RankState state = state_of(FlightRecorder::own(), now);
            for (const RankState::Entry& entry : state.entries)
                if (entry.under_way && entry.thread == operation.thread &&
                    entry.name == operation.name.data())
                    return fmt::format("Rank {}: {} has not ended after {:.1f} s ({} = {:.0f}{}).",
                                       neighbours.rank(), entry.text(), seconds, option.load(),
                                       allowed.load(),
                                       operation.allowance >= 1
                                           ? fmt::format(", and {:.0f} for its bytes", operation.allowance)
                                           : "");
        }
        return "";
    }

    RankState own_state() {
        RankState state = state_of(FlightRecorder::own(), steady_seconds());
        state.rank = neighbours.rank();
        state.host = neighbours.host_of(state.rank);
        {
            const std::lock_guard lock(mutex);
            state.gpu = gpu;
            // its threads have left what they were at
            if (noticed && noticed->kind == HangOccasion::Kind::error) {
                state.error = noticed->text;
                return state;
            }
        }
        std::set<int64_t> threads;
        const auto add_stack = [&](int64_t number) {
            constexpr size_t most = 3;
            if (threads.size() < most && threads.insert(number).second)
                state.stacks.push_back(stack_state(number, signals.stack_of(number, stack_patience)));
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
        const MeetingPlace* place = meeting_place();
        const int64_t event = handled + 1;
        if (!neighbours.claim(note_of(event, occasion.ends()))) return;
        if (place && !place->claim(event)) {
            neighbours.tell(note_of(event, occasion.ends()));
            return take_part({.number = event, .ends = occasion.ends()});
        }
        handled = event;
        if (place) unless_full([&] { place->announce(event, occasion.ends()); });
        neighbours.tell(note_of(event, occasion.ends()));
        const std::vector<RankState> states = collect(event, occasion);
        std::string text = hang_report(occasion, states).text;
        if (place)
            text += fmt::format("\nWhat each rank did last: {}", place->record_of(0).parent_path().string());
        if (occasion.ends())
            log::error("{}", text);
        else
            log::warn("{}", text);
        log::flush();
        if (place) unless_full([&] { place->conclude(event, text); });
        if (occasion.ends()) end();
        last_report = steady_seconds();
    }

    // Of dead and stopped ranks of this host what their recorders say; of all others what they write.
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
        const RankState own = own_state();
        const MeetingPlace* place = meeting_place();
        if (place) unless_full([&] { place->write(event, own); });
        take(own);
        const double patience = occasion.kind == HangOccasion::Kind::death ? death_patience : record_patience;
        const Timer timer;
        while (true) {
            for (RankState& state : neighbours.that_cannot_answer())
                if (!there[size_t(state.rank)]) take(std::move(state));
            for (size_t rank = 0; place && rank < ranks; ++rank)
                if (!there[rank])
                    if (auto state = place->read(event, int(rank))) take(std::move(*state));
            if (std::ranges::find(there, false) == there.end() || timer.seconds() > patience) break;
            sleep(0.05);
            if (place) place->look_again();
        }
        for (const Neighbours::Neighbour& neighbour : neighbours.all())
            if (!there[size_t(neighbour.rank)]) take(neighbours.state_of(neighbour));
        return states;
    }

    void take_part(MeetingPlace::Event event) {
        handled = event.number;
        const MeetingPlace* place = meeting_place();
        if (place)
            unless_full([&] {
                place->write(event.number, own_state());
                for (const RankState& state : neighbours.that_cannot_answer())
                    if (!place->read(event.number, state.rank)) place->write(event.number, state);
            });
        last_report = steady_seconds();
        if (!event.ends) return;
        const Timer timer;
        while (timer.seconds() < report_patience && !(place && is_over(*place, event.number))) sleep(0.05);
        sleep(1);  // who reports ends the others
        end();
    }

    static bool is_over(const MeetingPlace& place, int64_t event) {
        const MeetingPlace::Event newest = place.newest();
        return newest.number == event && newest.over;
    }

    // A report goes without what a full disk does not take.
    static void unless_full(const std::function<void()>& write) {
        try {
            write();
        } catch (const std::exception& error) {
            log::warn("The watchdog's records are not complete: {}", error.what());
        }
    }

    // MPI_Abort may wait for what hangs.
    [[noreturn]] void end() const {
        log::flush();
        if (signals.crash()) {
            signals.end_crashed();
            sleep(report_patience);
        }
        std::thread([] {
            sleep(abort_patience);
            std::_Exit(int(ExitCode::system));
        }).detach();
        end_mpi_after_error(int(ExitCode::system), false);
        std::_Exit(int(ExitCode::system));
    }

    size_t index_on_host() const {
        const auto& all = neighbours.all();
        return size_t(std::ranges::find(all, neighbours.rank(), &Neighbours::Neighbour::rank) - all.begin());
    }

    const MeetingPlace* meeting_place() const {
        const std::lock_guard lock(mutex);
        return place_.get();
    }

    void set_meeting_place(MeetingPlace place, int64_t last_event) {
        const std::lock_guard lock(mutex);
        handled = last_event;
        place_ = std::make_unique<MeetingPlace>(std::move(place));
    }

    Signals signals;
    Neighbours neighbours;
    mutable std::mutex mutex;  // of what other threads set
    std::unique_ptr<MeetingPlace> place_;
    std::string gpu;
    std::optional<HangOccasion> noticed;
    std::atomic<double> allowed;
    std::atomic<const char*> option;
    std::atomic<bool> ending = false;
    std::atomic<int64_t> handled = 0;  // the last event
    size_t looks = 0;
    double last_report = -1e9;
    double last_look = 0, resumed = 0;
    std::thread thread;  // last: everything else exists before it runs
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
        thread_->notice(HangOccasion::Kind::error, error.what());
        sleep(2 * report_patience);  // the watchdog's thread ends the process
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

void Watchdog::meet_in(const std::filesystem::path& folder) {
    const Communicator world = Communicator::world("meeting");
    MeetingPlace place(folder / options_.save_traces_folder, options_.save_traces_file_prefix);
    int64_t last = 0;
    on_first_rank(world, [&] {
        place.prepare();
        last = place.newest().number;
    });
    world.broadcast(Tensor(&last, Dtype::i64, {1}), 0);
    thread_->set_meeting_place(std::move(place), last);
    world.barrier();
}

void Watchdog::set_gpu(const std::string& bus_id) {
    const std::lock_guard lock(thread_->mutex);
    thread_->gpu = bus_id;
}

Watch& Watchdog::nccl() {
    if (nccl_) return *nccl_;
    nccl_.emplace(Watch::Settings{
        .who = fmt::format("rank {} on host {}, GPU {}", thread_->neighbours.rank(),
                           thread_->neighbours.host_of(thread_->neighbours.rank()), thread_->gpu),
        .fail = [this](const std::string& message) {
            thread_->notice(HangOccasion::Kind::overdue, message);
        }});
    nccl_->allow(thread_->allowed, thread_->option.load());
    nccl_->start();
    return *nccl_;
}

void Watchdog::begin_step(int64_t step, bool by_graph) {
    FlightRecorder::own().notes().step = step;
    in_step_by_graph_ = by_graph && first_step_done_ && nccl_;
    if (!in_step_by_graph_) return;
    if (!steps_by_graph_) steps_by_graph_.emplace(*nccl_, "world", nullptr, nullptr);
    steps_by_graph_->begin("step", 0, nullptr, 2 * slowest_step_);
}

void Watchdog::end_step(double seconds) {
    if (in_step_by_graph_) steps_by_graph_->end(nullptr);
    slowest_step_ = std::max(slowest_step_, seconds);
    if (std::exchange(first_step_done_, true)) return;
    constexpr const char* option = "comm.train_timeout_seconds";
    thread_->option = option;
    thread_->allowed = double(options_.train_timeout_seconds);
    if (nccl_) nccl_->allow(thread_->allowed, option);
}

}  // namespace coeus
