// SPDX-License-Identifier: Apache-2.0
#include "meeting_place.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/patient_io.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

namespace coeus {

namespace fs = std::filesystem;

namespace {

// A larger number comes from a damaged line: a run has only a few events.
constexpr int64_t most_events = 1'000'000;

}  // namespace

MeetingPlace::MeetingPlace(const fs::path& folder, const std::string& run, std::string prefix)
    : folder_(folder / run), prefix_(std::move(prefix)) {}

void MeetingPlace::prepare() const {
    std::error_code failed;
    make_folders_patiently(folder_, failed);
    append(folder_ / "events", "");
}

void MeetingPlace::leave() const {
    if (newest().number > 0) return;
    std::error_code not_empty;
    fs::remove(folder_ / "events", not_empty);
    fs::remove(folder_, not_empty);
    fs::remove(folder_.parent_path(), not_empty);
}

// One write call, so that the lines of several processes do not mix.
void MeetingPlace::append(const fs::path& file, const std::string& text) const {
    const int descriptor =
        open_patiently(file.string(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, short_patience);
    const bool written =
        descriptor >= 0 && ::write(descriptor, text.data(), text.size()) == ssize_t(text.size());
    const int reason = errno;
    if (descriptor >= 0) close(descriptor);
    if (!written)
        throw SystemError(fmt::format("{} cannot be written: {}", file.string(), errno_text(reason)));
}

MeetingPlace::Event MeetingPlace::newest() const {
    std::ifstream in(folder_ / "events");
    Event newest;
    int64_t number = 0;
    for (std::string what; in >> number >> what;) {
        if (number > most_events) continue;
        if (number > newest.number) newest = {.number = number};
        if (number != newest.number) continue;
        if (what == "ends") newest.ends = true;
        if (what == "over") newest.over = true;
    }
    return newest;
}

bool MeetingPlace::claim(int64_t event) const {
    const fs::path file = folder_ / fmt::format("event_{}", event);
    const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) return errno != EEXIST;  // if nothing can be written, each host reports on its own
    close(descriptor);
    return true;
}

void MeetingPlace::announce(int64_t event, bool ends) const {
    append(folder_ / "events", fmt::format("{} {}\n", event, ends ? "ends" : "asks"));
}

void MeetingPlace::conclude(int64_t event, const std::string& report) const {
    append(report_file(), report + "\n\n");
    append(folder_ / "events", fmt::format("{} over\n", event));
}

void MeetingPlace::look_again() const {
    const fs::path file = folder_ / ".looking";
    const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor >= 0) close(descriptor);
    std::error_code ignored;
    fs::remove(file, ignored);
}

fs::path MeetingPlace::record_of(int rank) const {
    return folder_ / fmt::format("{}{}.json", prefix_, rank);
}

void MeetingPlace::write(int64_t event, const RankState& state) const {
    write_json(Json::object().set("event", event).set("state", json_of(state)), record_of(state.rank));
}

std::optional<RankState> MeetingPlace::read(int64_t event, int rank) const {
    std::error_code absent;
    if (!fs::exists(record_of(rank), absent)) return std::nullopt;
    try {
        const JsonDocument record = JsonDocument::read(record_of(rank));
        if (record.root().integer("event") != event) return std::nullopt;
        return rank_state_of(record.root()["state"]);
    } catch (const std::exception&) {
        return std::nullopt;  // written by another program or an older version
    }
}

}  // namespace coeus
