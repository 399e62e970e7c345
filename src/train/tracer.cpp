// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/tracer.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/text.hpp"
#include "coeus/file/json.hpp"

#include <algorithm>
#include <fstream>
#include <map>

namespace coeus {

namespace {

// "src/layers/tokens.cpp:31" -> "layers/tokens.cpp:31"
std::string place_of(const std::source_location& where) {
    std::string file = where.file_name();
    if (const size_t at = file.rfind("src/"); at != std::string::npos) file = file.substr(at + 4);
    return fmt::format("{}:{}", file, where.line());
}

}  // namespace

Tracer::Tracer(int rank, size_t capacity, double (*now)()) : rank_(rank), now_(now) {
    events_.reserve(capacity);
    threads_.reserve(64);
    threads_.push_back(std::this_thread::get_id());
}

void Tracer::clear() {
    const std::lock_guard lock(mutex_);
    events_.clear();
    lost_ = 0;
}

int Tracer::thread_number() {
    const auto at = std::find(threads_.begin(), threads_.end(), std::this_thread::get_id());
    if (at != threads_.end()) return int(at - threads_.begin());
    threads_.push_back(std::this_thread::get_id());
    return int(threads_.size()) - 1;
}

int64_t Tracer::add(const Event& event) {
    const std::lock_guard lock(mutex_);
    if (events_.size() == events_.capacity()) return ++lost_, -1;
    events_.push_back(event);
    events_.back().thread = thread_number();
    return int64_t(events_.size()) - 1;
}

void Tracer::begin(const char* kernel, double flops, double bytes) {
    running_ = add({Kind::kernel, kernel, nullptr, int64_t(bytes), flops, now_(), -1, 0, {}});
    if (next_) next_->begin(kernel, flops, bytes);
}

void Tracer::begin_exchange(const char* name, double bytes) {
    running_ = add({Kind::wait, name, nullptr, int64_t(bytes), 0, now_(), -1, 0, {}});
    if (next_) next_->begin_exchange(name, bytes);
}

void Tracer::operands(std::span<const Tensor> tensors) {
    if (next_) next_->operands(tensors);
}

void Tracer::end() {
    if (next_) next_->end();
    end(running_);
}

int64_t Tracer::begin(const std::string& communicator, const char* operation, int64_t bytes,
                      const std::source_location& where) {
    return add({Kind::communication, operation, &communicator, bytes, 0, now_(), -1, 0, where});
}

void Tracer::end(int64_t event) {
    const double now = now_();
    const std::lock_guard lock(mutex_);
    if (event >= 0 && event < int64_t(events_.size())) events_[size_t(event)].end = now;
}

std::string Tracer::name_of_thread(int number) const {
    if (number == 0) return "compute";
    for (const Event& event : events_)
        if (event.thread == number && event.communicator) return *event.communicator;
    return fmt::format("thread {}", number);
}

void Tracer::write(const std::filesystem::path& file) const {
    const std::lock_guard lock(mutex_);
    std::ofstream out(file);
    out << "{\"traceEvents\":[\n";
    out << fmt::format(R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"rank {0}"}}}})", rank_);
    for (int thread = 0; thread < int(threads_.size()); ++thread)
        out << fmt::format(
            ",\n"
            R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
            rank_, thread, Json(name_of_thread(thread)).text());
    for (const Event& event : events_) {
        if (event.end < 0) continue;
        Json arguments = Json::object();
        arguments.set("bytes", event.bytes);
        if (event.flops > 0) arguments.set("flops", event.flops);
        if (event.communicator)
            arguments.set("axis", *event.communicator).set("call_site", place_of(event.where));
        constexpr const char* kinds[] = {"kernel", "wait", "communication"};
        out << fmt::format(
            ",\n"
            R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{}}})",
            event.name, kinds[size_t(event.kind)], rank_, event.thread, event.begin * 1e6,
            (event.end - event.begin) * 1e6, arguments.text());
    }
    out << fmt::format("\n],\"otherData\":{{\"events_without_room\":{}}}}}\n", lost_);
    out.close();
    if (!out) throw SystemError(fmt::format("{} cannot be written", file.string()));
}

std::string Tracer::overlap() const {
    const std::lock_guard lock(mutex_);
    struct Sum {
        int64_t calls = 0, bytes = 0;
        double seconds = 0, exposed = 0;
    };
    std::map<std::string, Sum> sums;
    std::vector<std::pair<double, double>> waits;  // of the computing thread, in order
    for (const Event& event : events_)
        if (event.kind == Kind::wait && event.end >= 0) waits.emplace_back(event.begin, event.end);
    for (const Event& event : events_) {
        if (!event.communicator || event.end < 0) continue;
        Sum& sum = sums[*event.communicator];
        ++sum.calls;
        sum.bytes += event.bytes;
        sum.seconds += event.end - event.begin;
        if (event.thread == 0) {
            sum.exposed += event.end - event.begin;
            continue;
        }
        auto wait = std::lower_bound(waits.begin(), waits.end(), event.begin,
                                     [](const auto& w, double begin) { return w.second < begin; });
        for (; wait != waits.end() && wait->first < event.end; ++wait)
            sum.exposed +=
                std::max(0.0, std::min(event.end, wait->second) - std::max(event.begin, wait->first));
    }
    std::string text = fmt::format("{:<40} {:>7} {:>11} {:>10} {:>10} {:>11} {:>8}", "communicator", "calls",
                                   "bytes", "ms", "hidden ms", "exposed ms", "GB/s");
    for (const auto& [name, sum] : sums)
        text +=
            fmt::format("\n{:<40} {:>7} {:>11} {:>10.2f} {:>10.2f} {:>11.2f} {:>8.2f}", name, sum.calls,
                        bytes_text(double(sum.bytes)), 1e3 * sum.seconds, 1e3 * (sum.seconds - sum.exposed),
                        1e3 * sum.exposed, sum.seconds > 0 ? double(sum.bytes) / sum.seconds / 1e9 : 0);
    if (sums.empty()) text += "\nnothing was communicated";
    return text;
}

}  // namespace coeus
