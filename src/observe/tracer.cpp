// SPDX-License-Identifier: Apache-2.0
#include "coeus/observe/tracer.hpp"

#include "coeus/base/telemetry_file.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/json.hpp"

#include <algorithm>
#include <string>

namespace coeus {

namespace {

constexpr int action_track = 0, compute_track = 1;

// "src/layers/linear.cpp:31" -> "layers/linear.cpp:31"
std::string place_of(const std::source_location& where) {
    std::string file = where.file_name();
    if (const size_t at = file.rfind("src/"); at != std::string::npos) file = file.substr(at + 4);
    return fmt::format("{}:{}", file, where.line());
}

}  // namespace

Tracer::Tracer(int rank, size_t capacity, Timestamps stamps) : rank_(rank), stamps_(std::move(stamps)) {
    events_.reserve(capacity);
    tracks_.reserve(64);
    tracks_ = {{}, {std::this_thread::get_id(), nullptr}};
}

void Tracer::clear() {
    const std::lock_guard lock(mutex_);
    events_.clear();
    lost_ = 0;
    stamps_.restart();
}

int Tracer::track_of(const Queue* queue) {
    if (queue && queue == stamps_.computation()) return compute_track;
    const Track track = {queue ? std::thread::id() : std::this_thread::get_id(), queue};
    const auto at = std::find(tracks_.begin(), tracks_.end(), track);
    if (at != tracks_.end()) return int(at - tracks_.begin());
    tracks_.push_back(track);
    return int(tracks_.size()) - 1;
}

int64_t Tracer::begin(Event event) {
    const std::lock_guard lock(mutex_);
    if (events_.size() == events_.capacity()) return ++lost_, -1;
    event.begin = stamps_.take(event.queue);
    event.track = event.kind == Kind::action ? action_track : track_of(event.queue);
    events_.push_back(event);
    return int64_t(events_.size()) - 1;
}

void Tracer::begin(const char* kernel, double flops, double bytes) {
    running_ = begin({.kind = Kind::kernel,
                      .name = kernel,
                      .bytes = int64_t(bytes),
                      .flops = flops,
                      .queue = stamps_.computation()});
}

void Tracer::begin_exchange(Exchange exchange, double bytes) {
    running_ = begin({.kind = Kind::wait,
                      .name = name_of(exchange),
                      .bytes = int64_t(bytes),
                      .queue = stamps_.computation()});
}

void Tracer::end() {
    end(running_);
}

int64_t Tracer::begin(const std::string& communicator, const char* operation, int64_t bytes,
                      const std::source_location& where, const Queue* queue) {
    return begin({.kind = Kind::communication,
                  .name = operation,
                  .communicator = &communicator,
                  .bytes = bytes,
                  .where = where,
                  .queue = queue});
}

void Tracer::begin_action(const Action& action) {
    action_ = begin({.kind = Kind::action, .action = action, .queue = stamps_.computation()});
}

void Tracer::end_action() {
    end(action_);
}

void Tracer::end(int64_t event) {
    const std::lock_guard lock(mutex_);
    if (event < 0 || event >= int64_t(events_.size())) return;
    Event& ended = events_[size_t(event)];
    ended.end = stamps_.take(ended.queue);
}

Tracer::Span Tracer::span(const Event& event) const {
    const double begin = stamps_.seconds(event.begin);
    return {begin, begin + stamps_.between(event.begin, *event.end)};
}

std::string Tracer::name_of_track(int number) const {
    if (number == action_track) return "pipeline actions";
    if (number == compute_track) return "compute";
    for (const Event& event : events_)
        if (event.track == number && event.communicator) return *event.communicator;
    return fmt::format("thread {}", number);
}

void Tracer::write(const std::filesystem::path& file) const {
    const std::lock_guard lock(mutex_);
    std::string text;
    text += "{\"traceEvents\":[\n";
    text +=
        fmt::format(R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"rank {0}"}}}})", rank_);
    for (int track = 0; track < int(tracks_.size()); ++track)
        text += fmt::format(
            ",\n"
            R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
            rank_, track, Json(name_of_track(track)).text());
    for (const Event& event : events_) {
        if (!event.end) continue;
        const auto [begin, end] = span(event);
        constexpr const char* kinds[] = {"kernel", "wait", "communication", "action"};
        const Action& action = event.action;
        const bool acts = event.kind == Kind::action;
        Json arguments = Json::object();
        if (acts)
            arguments.set("stage", action.stage).set("micro_batch", action.microbatch);
        else
            arguments.set("bytes", event.bytes);
        if (event.flops > 0) arguments.set("flops", event.flops);
        if (event.communicator)
            arguments.set("axis", *event.communicator).set("call_site", place_of(event.where));
        text += fmt::format(
            ",\n"
            R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{}}})",
            acts ? fmt::format("{} stage {} micro_batch {}", name_of(action.kind), action.stage,
                               action.microbatch)
                 : event.name,
            kinds[size_t(event.kind)], rank_, event.track, begin * 1e6, (end - begin) * 1e6,
            arguments.text());
    }
    text += fmt::format("\n],\"otherData\":{{\"events_without_room\":{}}}}}\n", lost_);
    write_whole_file(file, text);
}

std::map<std::string, Tracer::Communication> Tracer::communication() const {
    const std::lock_guard lock(mutex_);
    std::map<std::string, Communication> sums;
    std::vector<Span> waits;  // waits of the computation, in order
    for (const Event& event : events_)
        if (event.kind == Kind::wait && event.end) waits.push_back(span(event));
    for (const Event& event : events_) {
        if (!event.communicator || !event.end) continue;
        const auto [begin, end] = span(event);
        Communication& sum = sums[*event.communicator];
        ++sum.calls;
        sum.bytes += event.bytes;
        sum.seconds += end - begin;
        if (event.track == compute_track) {
            sum.exposed += end - begin;
            continue;
        }
        auto wait = std::lower_bound(waits.begin(), waits.end(), begin,
                                     [](const Span& w, double at) { return w.end < at; });
        for (; wait != waits.end() && wait->begin < end; ++wait)
            sum.exposed += std::max(0.0, std::min(end, wait->end) - std::max(begin, wait->begin));
    }
    return sums;
}

std::string Tracer::overlap() const {
    const std::map<std::string, Communication> sums = communication();
    std::string text = fmt::format("{:<40} {:>7} {:>11} {:>10} {:>10} {:>11} {:>8}", "communicator", "calls",
                                   "bytes", "ms", "hidden ms", "exposed ms", "GB/s");
    for (const auto& [name, sum] : sums)
        text +=
            fmt::format("\n{:<40} {:>7} {:>11} {:>10.2f} {:>10.2f} {:>11.2f} {:>8.2f}", name, sum.calls,
                        bytes_text(double(sum.bytes)), 1e3 * sum.seconds, 1e3 * (sum.seconds - sum.exposed),
                        1e3 * sum.exposed, sum.seconds > 0 ? double(sum.bytes) / sum.seconds / 1e9 : 0);
    if (sums.empty()) text += "\nno communication";
    return text;
}

}  // namespace coeus
