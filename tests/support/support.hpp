// SPDX-License-Identifier: Apache-2.0
// Shared by all tests: NaN-proof comparison, temporary folders, golden files, running the program. (For
// waiting see support/patience.hpp.)
#pragma once

#include "support/skip.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace coeus::test {

/// Set by support/mpi_main.cpp in programs that run under mpirun.
using Runner = int (*)(int argc, char** argv);
extern Runner runner;
/// If set, called after the report of a failure that leaves a case: an exception that no check expects, or a
/// failed REQUIRE or FAIL. It may end the program.
extern std::function<void()> case_left;

/// |a - b| <= tolerance; false for NaN on either side.
bool close(double a, double b, double tolerance);
/// |a - b| <= tolerance * max(|a|, |b|); false for NaN, and if only one is infinite. Equal values (also
/// zeros) are close.
bool relatively_close(double a, double b, double tolerance);
/// The larger of two errors; NaN if either is NaN, unlike std::max, std::fmax and `>`.
double worse_of(double a, double b);
/// ||a - b|| / ||b||; NaN if any element is NaN (so `error <= bound` fails), absolute where ||b|| is 0.
double normalised_error(std::span<const double> a, std::span<const double> b);

/// A new folder in the system's temporary folder, removed at the end.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

private:
    std::filesystem::path path_;
};

/// The folder $COEUS_SHARED/golden/NAME (default: ../shared next to the repository). If it is absent the case
/// is skipped, or fails under COEUS_REQUIRE_GOLDEN=1. Use: `const auto folder = golden("models/llama2_mha");
/// if (folder.empty()) return;`
std::filesystem::path golden(const std::string& name);
/// The same for other folders of shared, such as "decks".
std::filesystem::path shared(const std::string& name);

/// How often `text` occurs in `in`.
int count_of(const std::string& text, const std::string& in);
std::vector<std::string> lines_of(const std::string& text);

/// How much the resident set may grow if nothing should be allocated: the address sanitizer keeps freed
/// memory for a while.
#ifdef __SANITIZE_ADDRESS__
inline constexpr int64_t growth_allowance = 32 << 20;
#else
inline constexpr int64_t growth_allowance = 1 << 20;
#endif

/// How much more than planned other versions of the libraries, or their kernels for other processors, may
/// take.
inline constexpr int64_t library_allowance = 16 << 20;

/// The resident bytes of the process after MPI_Init, in programs that run under mpirun; otherwise 0.
extern int64_t resident_at_start;

/// The names of the files in a folder, sorted.
std::vector<std::string> files_in(const std::filesystem::path& folder);
void write_file(const std::filesystem::path& path, const std::string& content);
std::string read_file(const std::filesystem::path& path);

/// The output and exit code of a program.
struct Outcome {
    int exit_code = -1;
    std::string output;  ///< stdout and stderr together
};
/// A shell command that runs the built coeus as run_coeus() does. `before`: words before the launcher, such
/// as "timeout 60".
std::string coeus_line(const std::vector<std::string>& arguments, int ranks = 0,
                       const std::map<std::string, std::string>& environment = {},
                       const std::string& before = "");
/// Runs the built coeus; `ranks` > 0 starts it under mpirun with that many ranks. `environment` adds
/// variables; `folder` is the working directory.
Outcome run_coeus(const std::vector<std::string>& arguments, int ranks = 0,
                  const std::map<std::string, std::string>& environment = {},
                  const std::filesystem::path& folder = {});
/// Runs a shell command. `seen` gets each line of its output as soon as it is printed, so that a test can act
/// at a certain point of a run.
Outcome run_shell(const std::string& command, const std::function<void(const std::string& line)>& seen = {});

/// Shell words to put before a program: its first line of output becomes "started as process 17".
inline const std::string saying_who = R"(sh -c 'echo "started as process $$"; exec "$@"' sh)";
/// The number in such a line; 0 for any other line.
int64_t process_said_in(const std::string& line);
/// Waits at most `seconds` for the end of processes that are not children of this one; returns whether all
/// have ended.
bool wait_for_ends(const std::vector<int64_t>& processes, double seconds);

}  // namespace coeus::test
