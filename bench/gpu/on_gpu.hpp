// SPDX-License-Identifier: Apache-2.0
// What the programs of this folder share: operands in the GPU's memory, and the time of calls by its clock.
#pragma once

#include "coeus/base/text.hpp"
#include "coeus/device/exec.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace coeus::bench {

/// Random bits.
class Draws {
public:
    explicit Draws(uint32_t seed) : bits_(seed * 2654435761u + 12345) {}
    uint32_t next() { return bits_ = bits_ * 1664525 + 1013904223; }
    /// Between -1 and 1.
    double number() { return double(next() >> 8) / double(1 << 23) - 1; }

private:
    uint32_t bits_;
};

/// Fills a dense tensor of the GPU with the elements of one of the host, one copy of them after the other.
inline void repeat(const Device& device, const Tensor& there, const Tensor& some) {
    const int64_t all = there.bytes();
    auto* const bytes = static_cast<std::byte*>(there.data);
    int64_t filled = std::min(all, some.bytes());
    device.copy(bytes, some.data, filled);
    for (int64_t more = 0; filled < all; filled += more) {
        more = std::min(filled, all - filled);
        device.copy(bytes + filled, bytes, more);
    }
}

/// How many elements are drawn; the others repeat them. A prime, so that rows differ.
inline constexpr int64_t drawn_elements = 262139;

/// A tensor of the GPU without values, for results.
inline OwnedTensor room(const Device& device, Dtype type, const Shape& shape) {
    return OwnedTensor(type, shape, "operand", device.memory());
}
/// A tensor of the GPU; `make` returns the next element as a double.
template <class Make>
OwnedTensor filled(const Device& device, Dtype type, const Shape& shape, const Make& make) {
    OwnedTensor there = room(device, type, shape);
    const OwnedTensor some(type, {std::min(drawn_elements, there.view.count())});
    for (int64_t i = 0; i < some.view.count(); ++i) set_element(some, i, make());
    repeat(device, there, some);
    return there;
}
/// Numbers between middle - width and middle + width: on many GPUs, products of zeros run faster than those
/// of other numbers. Tensors with other last extents have other numbers.
inline OwnedTensor numbers(const Device& device, Dtype type, const Shape& shape, double middle = 0,
                           double width = 1) {
    Draws draws{uint32_t(shape.cols())};
    return filled(device, type, shape, [&] { return middle + width * draws.number(); });
}
/// Whole numbers from 0 to below `end`, i32.
inline OwnedTensor indices(const Device& device, const Shape& shape, int64_t end) {
    Draws draws{uint32_t(end)};
    return filled(device, Dtype::i32, shape, [&] { return double(int64_t(draws.next() >> 4) % end); });
}

/// Seconds of a call.
struct Seconds {
    double median = 0, best = 0;
};
/// The time of a call by the GPU's clock: of seven intervals with `calls` calls each. The call before each
/// interval warms up, and while it runs the host submits the others.
template <class Call>
Seconds seconds_of(const Exec& exec, const Call& call, int calls = 5) {
    constexpr size_t intervals = 7;
    const auto begin = exec.device->make_timed_event(), end = exec.device->make_timed_event();
    std::vector<double> seconds;
    while (seconds.size() < intervals) {
        call();
        begin->record(*exec.queue);
        for (int i = 0; i < calls; ++i) call();
        end->record(*exec.queue);
        seconds.push_back(end->seconds_since(*begin) / calls);
    }
    std::sort(seconds.begin(), seconds.end());
    return {seconds[intervals / 2], seconds.front()};
}

/// The first of these names that is not known, as an error with the nearest one; empty: all are.
inline std::string unknown_name(const std::vector<std::string>& names, const std::vector<std::string>& known,
                                const char* what) {
    for (const std::string& name : names)
        if (std::ranges::find(known, name) == known.end()) {
            const std::string nearest = nearest_name(name, known);
            return fmt::format("there is no {} \"{}\"{}; there are {}", what, name,
                               nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
                               join(known, ", "));
        }
    return "";
}

}  // namespace coeus::bench
