// SPDX-License-Identifier: Apache-2.0
#include "support/support.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "support/catch.hpp"
#include "support/paths.hpp"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <poll.h>
#include <sstream>

namespace coeus::test {

namespace fs = std::filesystem;

bool close(double a, double b, double tolerance) {
    return std::fabs(a - b) <= tolerance;
}

bool relatively_close(double a, double b, double tolerance) {
    const double size = std::fmax(std::fabs(a), std::fabs(b));
    return a == b || (std::isfinite(size) && std::fabs(a - b) <= tolerance * size);
}

double worse_of(double a, double b) {
    return a >= b || std::isnan(a) ? a : b;
}

double normalised_error(std::span<const double> a, std::span<const double> b) {
    require(a.size() == b.size(), "compared vectors differ in length");
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

int count_of(const std::string& text, const std::string& in) {
    int count = 0;
    for (size_t at = in.find(text); at != std::string::npos; at = in.find(text, at + 1)) ++count;
    return count;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

TemporaryFolder::TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "coeus-test-XXXXXX").string();
    require(mkdtemp(pattern.data()) != nullptr, "cannot make a temporary folder");
    path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

fs::path shared(const std::string& name) {
    const char* given = std::getenv("COEUS_SHARED");
    const fs::path root = given ? fs::path(given) : fs::path(paths::source()) / ".." / "shared";
    if (fs::exists(root / name)) return root / name;
    // the same reason for all files, if the whole folder is missing
    const fs::path missing = fs::exists(root) ? root / name : root;
    skip_unless_required("there are no reference files at " + missing.lexically_normal().string() +
                         " (COEUS_SHARED)");
    return {};
}

fs::path golden(const std::string& name) {
    return shared("golden/" + name);
}

std::vector<std::string> files_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
}

void write_file(const fs::path& path, const std::string& content) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
}

std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream content;
    content << in.rdbuf();
    return content.str();
}

Outcome run_shell(const std::string& command, const std::function<void(const std::string& line)>& seen) {
    Outcome outcome;
    const TemporaryFolder rank_exits;  // for commands of coeus_line()
    FILE* pipe =
        popen(fmt::format("export COEUS_RANK_EXITS={}; {{ {}; }} 2>&1", rank_exits.path().string(), command)
                  .c_str(),
              "r");
    require(pipe != nullptr, "cannot start a shell");
    char buffer[4096];
    size_t begin = 0;  // of the first line that was not passed to `seen`
    while (true) {
        // returns the bytes that are there, without waiting for a full buffer
        const ssize_t n = read(fileno(pipe), buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        outcome.output.append(buffer, size_t(n));
        for (size_t end = 0; seen && (end = outcome.output.find('\n', begin)) != std::string::npos;
             begin = end + 1)
            seen(outcome.output.substr(begin, end - begin));
    }
    const int status = pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
}

int64_t process_said_in(const std::string& line) {
    const std::string words = "started as process ";
    return line.starts_with(words) ? std::stoll(line.substr(words.size())) : 0;
}

bool wait_for_ends(const std::vector<int64_t>& processes, double seconds) {
    const Timer timer;
    for (const int64_t process : processes) {
        const int descriptor = int(syscall(SYS_pidfd_open, pid_t(process), 0));
        if (descriptor < 0) continue;  // it has ended
        pollfd end = {descriptor, POLLIN, 0};
        const double left = seconds - timer.seconds();
        const int ended = left > 0 ? poll(&end, 1, int(left * 1000) + 1) : 0;
        ::close(descriptor);
        if (ended <= 0) return false;
    }
    return true;
}

namespace {

std::string quoted(const std::string& text) {
    std::string q = "'";
    for (char c : text) q += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return q + "'";
}

}  // namespace

std::string coeus_line(const std::vector<std::string>& arguments, int ranks,
                       const std::map<std::string, std::string>& environment, const std::string& before) {
    std::string command =
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 "
        // keeps the measured peak of a busy machine out of the user's cache
        "XDG_CACHE_HOME=" +
        quoted(paths::cache()) + " ";
    std::map<std::string, std::string> all = environment;
    const bool has_libraries = ranks > 0 && fs::exists(paths::naps());  // a bundle has none
    std::string end;
    if (has_libraries) {
        std::string& preloaded = all["LD_PRELOAD"];
        preloaded = paths::naps() + ":" + paths::exits() + (preloaded.empty() ? "" : ":" + preloaded);
        static std::atomic<int> runs = 0;  // a command may have several
        const std::string exits = fmt::format("\"${{COEUS_RANK_EXITS:-/dev/null}}/{}\"", ++runs);
        command = "{ COEUS_RANK_EXITS=" + exits + " " + command;
        end = " || sh " + quoted(paths::source() + "/tests/support/ranks_ended.sh") + " $? " + exits + "; }";
    }
    for (const auto& [name, value] : all) command += name + "=" + quoted(value) + " ";
    command += before + " ";
    if (ranks > 0) command += fmt::format("{} -n {} ", paths::mpirun(), ranks);
    // another build of the program, with an emulated or a real GPU
    const char* other = std::getenv("COEUS_TEST_PROGRAM");
    command += quoted(other ? other : paths::program());
    for (const std::string& argument : arguments) command += " " + quoted(argument);
    return command + " < /dev/null" + end;
}

Outcome run_coeus(const std::vector<std::string>& arguments, int ranks,
                  const std::map<std::string, std::string>& environment, const fs::path& folder) {
    const std::string line = coeus_line(arguments, ranks, environment);
    return run_shell(folder.empty() ? line : "cd " + quoted(folder.string()) + " && " + line);
}

}  // namespace coeus::test
