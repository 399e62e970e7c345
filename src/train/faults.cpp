// SPDX-License-Identifier: Apache-2.0
#include "coeus/train/faults.hpp"

#include "coeus/base/clock.hpp"
#include "coeus/base/error.hpp"
#include "coeus/base/log.hpp"
#include "coeus/base/text.hpp"
#include "coeus/state/parameters.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

namespace coeus {

namespace {

const std::vector<std::string> fault_kinds = {"hang_in_collective",
                                              "skip_collective",
                                              "slow",
                                              "slow_data",
                                              "slow_disk",
                                              "slow_copy",
                                              "full_disk",
                                              "exit",
                                              "crash",
                                              "abort",
                                              "kill",
                                              "error",
                                              "stop",
                                              "signal",
                                              "bit_flip"};

}  // namespace

std::unique_ptr<Faults> Faults::from_environment(int rank) {
    const char* text = std::getenv("COEUS_FAULT");
    if (!text || !*text) return nullptr;
    auto faults = std::make_unique<Faults>(text);
    if (faults->rank_ != rank) return nullptr;
    log::warn("COEUS_FAULT = \"{}\": this rank will fail on purpose", text);
    FlightRecorder::own().set_fault(faults.get());
    return faults;
}

Faults::Faults(const std::string& text) {
    std::istringstream in(text);
    in >> kind_;
    if (std::ranges::find(fault_kinds, kind_) == fault_kinds.end())
        throw ConfigError("COEUS_FAULT = \"{}\": unknown fault {}; choose one of {}", text, kind_,
                          join(fault_kinds, ", "));
    for (std::string word; in >> word;) {
        const size_t equals = word.find('=');
        const std::string name = word.substr(0, equals),
                          value = equals == std::string::npos ? "" : word.substr(equals + 1);
        std::istringstream number(value);
        if (name == "rank")
            number >> rank_;
        else if (name == "step")
            number >> step_;
        else if (name == "seconds")
            number >> seconds_;
        else if (name == "element")
            number >> element_;
        else if (name == "bit")
            number >> bit_;
        else if (name == "tensor")
            number >> tensor_;
        else if (name == "operation")
            number >> operation_;
        else if (name == "after")
            number >> after_;
        else
            number.setstate(std::ios::failbit);
        if (!number || !number.eof())
            throw ConfigError(
                "COEUS_FAULT = \"{}\": \"{}\" is not rank=, step=, seconds=, operation=, after=, "
                "tensor=, element= or bit= with a value",
                text, word);
    }
    begun_ = step_ == 0;
}

Faults::~Faults() {
    if (FlightRecorder::own().fault() == this) FlightRecorder::own().set_fault(nullptr);
}

void Faults::at_step(int64_t step, const Parameters& parameters, Exec& exec) {
    begun_ = step >= step_;
    if (is("slow") && begun_) sleep_seconds(seconds_);
    if (step != step_) return;
    if (is("exit")) _exit(1);
    if (is("crash")) std::raise(SIGSEGV);
    if (is("abort")) std::abort();
    if (is("kill")) std::raise(SIGKILL);
    if (is("stop")) std::raise(SIGSTOP);
    if (is("error")) throw SystemError("an error on purpose");
    if (is("bit_flip") && !done_.exchange(true)) flip(parameters, exec);
}

bool Faults::leaves_out(const char*, OperationKind kind) {
    return is("skip_collective") && kind == OperationKind::collective && begun_ && !done_.exchange(true);
}

void Faults::entered(const char* operation, OperationKind kind) {
    if (!begun_) return;
    const std::string_view name = operation;
    const bool is_meant = operation_.empty() || std::ranges::equal(name, operation_, {}, [](char letter) {
                              return letter == ' ' ? '_' : letter;
                          });
    // the order of other threads' operations is not the same in each run
    const bool counts = is_meant && (!operation_.empty() || gettid() == getpid());
    if (is("signal") && counts && entered_++ == after_) std::raise(SIGUSR1);
    if (is("hang_in_collective") && kind == OperationKind::collective && is_meant) sleep_seconds(seconds_);
    if (is("slow_data") && name == operation_name::read_samples) sleep_seconds(seconds_);
    if (is("slow_copy") && name == operation_name::copy_checkpoint) sleep_seconds(seconds_);
    if (kind != OperationKind::file || name != operation_name::write) return;
    if (is("slow_disk")) sleep_seconds(seconds_);
    if (is("full_disk")) throw SystemError("cannot be written: " + errno_text(ENOSPC));
}

// Flips a bit of the master weight, which the optimizer reads.
void Faults::flip(const Parameters& parameters, Exec& exec) const {
    bool found = false;
    if (bit_ < 0 || bit_ >= 8 * size_of(parameters.types().master))
        throw ConfigError("COEUS_FAULT: a weight has no bit {}", bit_);
    parameters.for_each_owned([&](const OwnedRows& rows) {
        if (rows.param.name != tensor_) return;
        const Tensor master = rows.master;
        const int64_t columns = rows.param.shape.cols(), row = element_ / columns - rows.first_row,
                      column = element_ % columns - rows.first_col, bytes = size_of(master.dtype);
        if (row < 0 || row >= master.rows() || column < 0 || column >= master.cols()) return;
        std::byte* const at = static_cast<std::byte*>(master.slice_rows(row, 1).data) + column * bytes;
        std::array<std::byte, 8> element = {};
        const auto copy = [&](void* to, const void* from) {
            exec.queue->copy(to, from, bytes);
            exec.queue->finish();
        };
        copy(element.data(), at);
        element[size_t(bit_ / 8)] ^= std::byte(1 << bit_ % 8);
        copy(at, element.data());
        found = true;
    });
    if (!found) throw ConfigError("COEUS_FAULT: this rank has no element {} of \"{}\"", element_, tensor_);
    log::warn("COEUS_FAULT: flipped bit {} of element {} of {}", bit_, element_, tensor_);
}

}  // namespace coeus
