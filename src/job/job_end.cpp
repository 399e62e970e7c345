// SPDX-License-Identifier: Apache-2.0
#include "coeus/job/job_end.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"
#include "coeus/base/stop_signals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

namespace coeus {

namespace {

// The first line that a command prints, without its line end; "" if the command fails.
std::string first_line(const std::string& command) {
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "re"), pclose);
    std::array<char, 256> line = {};
    if (!pipe || !std::fgets(line.data(), int(line.size()), pipe.get())) return "";
    std::string text = line.data();
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text;
}

// Digits only: the text becomes part of a shell command. A number of seconds or of a job has fewer than 16.
bool is_number(const std::string& text) {
    return !text.empty() && text.size() < 16 && text.find_first_not_of("0123456789") == std::string::npos;
}

// The id of this job; "" outside of Slurm. In a job array it has the task's number, since squeue lists the
// ends of all tasks for the id of an array.
std::string own_job() {
    const auto number = [](const char* variable) {
        const char* text = std::getenv(variable);
        return text && is_number(text) ? std::string(text) : "";
    };
    const std::string array = number("SLURM_ARRAY_JOB_ID"), task = number("SLURM_ARRAY_TASK_ID");
    return array.empty() || task.empty() ? number("SLURM_JOB_ID") : array + "_" + task;
}

}  // namespace

std::optional<double> slurm_job_end() {
    const std::string job = own_job();
    if (job.empty()) return std::nullopt;
    const std::string end = first_line("SLURM_TIME_FORMAT=%s timeout 20 squeue --noheader --jobs=" + job +
                                       " --format=%e 2>/dev/null");
    if (is_number(end)) return std::stod(end);
    // a container may have no squeue: take the end that the job script found when it began
    const char* told = std::getenv("COEUS_JOB_END");
    return told && is_number(told) ? std::optional(std::stod(told)) : std::nullopt;
}

void tell_job_script(JobNote note) {
    const char* file = std::getenv("COEUS_DONE_FILE");
    if (!file) return;
    const std::string text = note == JobNote::complete ? "complete\n" : "lost_folder\n";
    constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW;
    const int descriptor = open_patiently(file, flags);
    // not at a position, since it may be a pipe
    const auto write_now = [&] { return ::write(descriptor, text.data(), text.size()); };
    const bool written = descriptor >= 0 && patiently(file, write_now) == ssize_t(text.size());
    const int reason = errno;
    if (descriptor >= 0) close(descriptor);
    if (!written) throw SystemError(fmt::format("COEUS_DONE_FILE = {}: {}", file, errno_text(reason)));
}

struct JobEnd::State {
    Options options;
    double margin;
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<double> told;  // the end by `ask`, by the clock options.now
    int64_t asked, answered = 0;
    bool ending = false, asking = false;

    std::optional<double> left() const {
        std::optional<double> end = told;
        if (options.wall_seconds) {
            const double own = options.start + *options.wall_seconds;
            end = end ? std::min(*end, own) : own;
        }
        return end ? std::optional(*end - options.now()) : std::nullopt;
    }

    void ask(std::unique_lock<std::mutex>& lock) {
        const int64_t question = asked;
        asking = true;
        lock.unlock();
        const std::optional<double> end = options.ask();
        lock.lock();
        asking = false;
        // without an answer the last one stays valid: the scheduler may be restarting
        if (end) told = options.now() + (*end - options.epoch());
        answered = question;
        changed.notify_all();
    }

    void loop() {
        std::unique_lock lock(mutex);
        while (!ending) {
            if (options.ask) ask(lock);
            if (ending) return;
            const double enough = left().value_or(options.ask_every + margin) - margin;
            if (enough <= 0) note_out_of_time(true);
            const double pause = enough > 0 ? std::min(enough, options.ask_every) : options.ask_every;
            changed.wait_for(lock, std::chrono::duration<double>(pause),
                             [&] { return ending || asked > answered; });
        }
    }
};

JobEnd::JobEnd(Options options, double margin)
    : state_(new State{.options = std::move(options), .margin = margin}) {
    state_->asked = state_->options.ask ? 1 : 0;
    if (state_->options.ask || state_->options.wall_seconds)
        thread_ = std::thread([state = state_] { state->loop(); });
}

JobEnd::~JobEnd() {
    {
        const std::lock_guard lock(state_->mutex);
        state_->ending = true;
        if (state_->asking) thread_.detach();
    }
    state_->changed.notify_all();
    if (thread_.joinable()) thread_.join();
    note_out_of_time(false);
}

std::optional<double> JobEnd::seconds_left() const {
    const std::lock_guard lock(state_->mutex);
    return state_->left();
}

void JobEnd::ask_again(double seconds) {
    State& state = *state_;
    if (!state.options.ask) return;
    std::unique_lock lock(state.mutex);
    const int64_t question = ++state.asked;
    state.changed.notify_all();
    state.changed.wait_for(lock, std::chrono::duration<double>(seconds),
                           [&] { return state.answered >= question; });
}

}  // namespace coeus
