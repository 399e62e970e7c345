// SPDX-License-Identifier: Apache-2.0
#include "coeus/base/log.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "coeus/base/text.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace coeus::log {

namespace {

// The mutex is recursive: the warning that the file cannot be written is itself a line of the file.
class FileSink final : public spdlog::sinks::sink {
public:
    explicit FileSink(const std::string& path) : file_(path) { file_.require_open(); }
    void log(const spdlog::details::log_msg& message) override {
        const std::lock_guard lock(mutex_);
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        file_.append({line.data(), line.size() - 1});  // append() adds the line's end itself
    }
    void flush() override {
        const std::lock_guard lock(mutex_);
        file_.say_losses();
    }
    void set_pattern(const std::string& pattern) override {
        set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern));
    }
    void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
        const std::lock_guard lock(mutex_);
        formatter_ = std::move(formatter);
    }

private:
    std::recursive_mutex mutex_;
    TelemetryFile file_;
    std::unique_ptr<spdlog::formatter> formatter_;
};

bool color_fits(int descriptor) {
    return std::getenv("NO_COLOR") == nullptr && is_terminal(descriptor);
}

// The log of the process: its sinks and options. (The process's other globals are FlightRecorder::own() and
// the signals that stop_signals.cpp notes.)
struct State {
    std::shared_ptr<spdlog::logger> terminal;
    std::shared_ptr<spdlog::logger> file;
    Options options;
    bool shown = true;
    int descriptor = STDOUT_FILENO;            // of the terminal's lines
    bool colored = color_fits(STDOUT_FILENO);  // what a command prints there
};

std::shared_ptr<spdlog::logger> terminal_logger(int descriptor, bool color) {
    const auto mode = color ? spdlog::color_mode::always : spdlog::color_mode::never;
    spdlog::sink_ptr sink;
    if (descriptor == STDOUT_FILENO)
        sink = std::make_shared<spdlog::sinks::stdout_color_sink_mt>(mode);
    else
        sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode);
    auto logger = std::make_shared<spdlog::logger>("coeus", sink);
    logger->set_pattern("[coeus] %Y-%m-%d %H:%M:%S,%e - %^%l%$ - %v");
    logger->flush_on(spdlog::level::trace);
    return logger;
}

State& state() {
    // never destroyed: other statics may still log when the process ends
    static State& s = *new State{.terminal = terminal_logger(STDOUT_FILENO, color_fits(STDOUT_FILENO)),
                                 .file = nullptr,
                                 .options = {}};
    return s;
}

spdlog::level::level_enum to_spdlog(Level level) {
    switch (level) {
        case Level::debug: return spdlog::level::debug;
        case Level::info: return spdlog::level::info;
        case Level::warn: return spdlog::level::warn;
        case Level::error: return spdlog::level::err;
    }
    return spdlog::level::info;
}

// "\033[36mloss\033[0m" -> "loss": files never contain terminal colours
std::string without_color(std::string_view text) {
    std::string plain;
    plain.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\033' && i + 1 < text.size() && text[i + 1] == '[') {
            while (i < text.size() && text[i] != 'm') ++i;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

}  // namespace

void init(const Options& options) {
    State& s = state();
    s.options = options;
    s.colored = options.color && color_fits(STDOUT_FILENO);
    s.terminal = terminal_logger(s.descriptor, options.color && color_fits(s.descriptor));
    s.shown = std::find(options.ranks.begin(), options.ranks.end(), options.rank) != options.ranks.end();
    s.file.reset();
    if (!options.file.empty()) {
        s.file = std::make_shared<spdlog::logger>("file", std::make_shared<FileSink>(options.file));
        s.file->set_level(spdlog::level::debug);
        s.file->set_pattern("%Y-%m-%d %H:%M:%S,%e %l %v");
    }
}

void use_stderr() {
    State& s = state();
    s.descriptor = STDERR_FILENO;
    s.terminal = terminal_logger(STDERR_FILENO, color_fits(STDERR_FILENO));
}

bool is_terminal(int descriptor) {
    if (isatty(descriptor) == 0) return false;
    if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return true;
    // mpirun gives its ranks a terminal even if its own output goes to a file, so look at the launcher's
    // output
    std::error_code unreadable;
    const auto target =
        std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", getppid(), descriptor), unreadable);
    return !unreadable && target.string().starts_with("/dev/");
}

bool on_terminal() {
    return state().shown && !state().options.quiet;
}
bool colored() {
    return state().colored;
}

void flush() {
    state().terminal->flush();
    if (state().file) state().file->flush();
}

namespace {

void send(Level level, std::string_view text, std::string_view colored) {
    State& s = state();
    const auto as = to_spdlog(level);
    if (s.file) s.file->log(as, text);
    const bool urgent = level == Level::warn || level == Level::error;
    if (!urgent && !on_terminal()) return;
    if (s.options.rank == 0 && s.options.ranks.size() <= 1)
        s.terminal->log(as, colored);
    else
        s.terminal->log(as, "rank {}: {}", s.options.rank, colored);
}

}  // namespace

void write(Level level, std::string_view message) {
    const std::string text = printable_lines(message);
    send(level, text, text);
}

void write_colored(Level level, std::string_view line) {
    send(level, without_color(line), line);
}

}  // namespace coeus::log
