// SPDX-License-Identifier: Apache-2.0
#include "coeus/observe/kernel_profile.hpp"

#include "coeus/base/error.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace coeus {

namespace {

constexpr size_t room_for_kernels = 64;  // reserved, so that references to entries stay valid

std::string rate(double amount, double seconds, double peak) {
    if (amount <= 0 || seconds <= 0) return fmt::format("{:>15}", "");
    const double each_second = amount / seconds;
    return peak > 0 ? fmt::format("{:>8.1f} ({:>3.0f}%)", each_second / 1e9, 100 * each_second / peak)
                    : fmt::format("{:>15.1f}", each_second / 1e9);
}

}  // namespace

KernelProfile::KernelProfile(Timestamps stamps) : stamps_(std::move(stamps)) {
    entries_.reserve(room_for_kernels);
}

KernelProfile::Entry& KernelProfile::entry_of(const char* kernel) {
    for (Entry& entry : entries_)
        if (entry.kernel == kernel || std::strcmp(entry.kernel, kernel) == 0) return entry;
    require(entries_.size() < room_for_kernels, "more kinds of kernels than a profile has room for");
    return entries_.emplace_back(Entry{kernel, 0, 0, 0, 0});
}

void KernelProfile::begin(const char* kernel, double flops, double bytes) {
    Entry& entry = entry_of(kernel);
    ++entry.calls;
    entry.flops += flops;
    entry.bytes += bytes;
    calls_.push_back({entry, stamps_.take(stamps_.computation()), {}});
}

void KernelProfile::end() {
    calls_.back().end = stamps_.take(stamps_.computation());
}

void KernelProfile::end_step(double seconds, double data_seconds) {
    ++steps_;
    seconds_ += seconds;
    data_seconds_ += data_seconds;
    for (const Call& call : calls_) call.entry.seconds += stamps_.between(call.begin, call.end);
    calls_.clear();
    stamps_.restart();
}

std::string KernelProfile::table(const MachineRates& machine) const {
    if (steps_ == 0 || seconds_ <= 0) return "";
    std::vector<Entry> sorted = entries_;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Entry& a, const Entry& b) { return a.seconds > b.seconds; });
    const double steps = double(steps_);
    std::string text = fmt::format(
        "{} {} of {:.1f} ms; percentages in brackets: share of this rank's peak, {} GF/s in GEMM and "
        "{:.1f} GB/s in a copy\n  {:<22} {:>6} {:>10} {:>12} {:>15} {:>15}",
        steps_, steps_ == 1 ? "step" : "steps", 1e3 * seconds_ / steps,
        machine.flops_per_second > 0 ? fmt::format("{:.0f}", machine.flops_per_second / 1e9) : "?",
        machine.bytes_per_second / 1e9, "kernel", "share", "calls/step", "ms/step", "GF/s", "GB/s");
    double inside = 0;
    const auto share = [&](const char* what, double seconds) {
        return fmt::format("\n  {:<22} {:>5.1f}%", what, 100 * seconds / seconds_);
    };
    for (const Entry& e : sorted) {
        inside += e.seconds;
        text += share(e.kernel, e.seconds) + fmt::format(" {:>10.1f} {:>12.2f} {} {}",
                                                         double(e.calls) / steps, 1e3 * e.seconds / steps,
                                                         rate(e.flops, e.seconds, machine.flops_per_second),
                                                         rate(e.bytes, e.seconds, machine.bytes_per_second));
    }
    const auto outside = [&](const char* what, double seconds) {
        text += share(what, seconds) + fmt::format(" {:>10} {:>12.2f}", "", 1e3 * seconds / steps);
    };
    outside("waiting for data", data_seconds_);
    outside("outside of kernels", seconds_ - inside - data_seconds_);
    return text;
}

}  // namespace coeus
