// SPDX-License-Identifier: Apache-2.0
#include "coeus/observe/memory_snapshot.hpp"

#include "coeus/base/error.hpp"
#include "coeus/base/telemetry_file.hpp"
#include "coeus/file/json.hpp"

#include <algorithm>

namespace coeus {

namespace {

constexpr int64_t not_yet = -1;  // Held::to of a tensor that is still held

// "layers.0.attention.wq+wk+wv" of parameters "layers.0.attention.wq.weight", ...
std::string name_of(const Storage& storage) {
    std::string name;
    for (const Param& param : storage.params()) {
        std::string one = param.name.substr(0, param.name.rfind('.'));
        if (!name.empty()) one = "+" + one.substr(one.rfind('.') + 1);
        name += one;
    }
    return name;
}

// The name without its last part: "layers.0.attention"; a name of one part is returned as it is.
std::string part_of(const std::string& name) {
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? name : name.substr(0, dot);
}

// Describes an operand other than the first.
std::string role_of(const std::string& kernel, size_t output) {
    if (kernel == "rms_norm") return ", 1/rms";
    if (kernel == "layer_norm") return output == 1 ? ", mean" : ", 1/deviation";
    if (kernel == "attention") return ", log of sums";
    if (kernel == "log_sum_exp") return ", logits of labels";
    return fmt::format(", operand {}", output + 1);
}

}  // namespace

MemorySnapshot::MemorySnapshot(Engine& engine, size_t max_tensors)
    : engine_(engine), max_tensors_(max_tensors) {
    for (const auto& [name, arena] : engine.arenas()) arenas_.push_back({name, arena, arena->bytes(), 0});
    live_.resize(arenas_.size());
    observation_ = engine_.observe(*this);
    engine_.observe_arenas(this);
}

MemorySnapshot::~MemorySnapshot() {
    engine_.observe_arenas(nullptr);
}

size_t MemorySnapshot::index_of(const Arena& arena) const {
    for (size_t i = 0; i < arenas_.size(); ++i)
        if (arenas_[i].arena == &arena) return i;
    throw LogicError("an observed arena is not in Engine::arenas()");
}

void MemorySnapshot::allocated(const Arena& arena, int64_t first, const Tensor& tensor) {
    const size_t index = index_of(arena);
    arenas_[index].peak = std::max(arenas_[index].peak, first + tensor.bytes());
    if (held_.size() >= max_tensors_) {
        ++left_out_;
        return;
    }
    live_[index].push_back(held_.size());
    // within a kernel only its scratch is allocated, which is released when the kernel ends
    held_.push_back({.arena = index,
                     .first = first,
                     .bytes = tensor.bytes(),
                     .from = int64_t(calls_.size()) - (in_kernel_ ? 1 : 0),
                     .to = not_yet,
                     .name = in_kernel_ ? "scratch of " + calls_.back() : ""});
    addresses_.push_back(tensor.data);
}

void MemorySnapshot::rewound(const Arena& arena, int64_t mark) {
    std::vector<size_t>& live = live_[index_of(arena)];
    while (!live.empty() && held_[live.back()].first >= mark) {
        held_[live.back()].to = int64_t(calls_.size());
        live.pop_back();
    }
}

void MemorySnapshot::begin(const char* kernel, double /*flops*/, double /*bytes*/) {
    calls_.emplace_back(kernel);
    in_kernel_ = true;
}

void MemorySnapshot::operands(std::span<const Tensor> tensors) {
    const std::string kernel = calls_.back();
    std::string whose;
    for (const Tensor& tensor : tensors) {
        const Storage* storage = tensor ? engine_.storage_of(tensor) : nullptr;
        if (!storage) continue;
        whose = name_of(*storage);
        part_ = part_of(whose);
        break;
    }
    if (whose.empty()) whose = part_;
    calls_.back() = whose.empty() ? kernel : kernel + " of " + whose;
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (!tensors[i]) continue;
        for (const std::vector<size_t>& live : live_)
            for (const size_t at : live)
                if (held_[at].name.empty() && addresses_[at] == tensors[i].data)
                    held_[at].name = calls_.back() + (i == 0 ? "" : role_of(kernel, i));
    }
}

void MemorySnapshot::end() {
    in_kernel_ = false;
}

std::string MemorySnapshot::json(int64_t step, int rank) const {
    Json arenas = Json::array(), tensors = Json::array();
    for (const ArenaUse& arena : arenas_)
        arenas.push(Json::object().set("name", arena.name).set("bytes", arena.bytes).set("peak", arena.peak));
    tensors.reserve(held_.size());
    for (const Held& held : held_)
        tensors.push(Json::object()
                         .set("arena", held.arena)
                         .set("first", held.first)
                         .set("bytes", held.bytes)
                         .set("from", held.from)
                         .set("to", held.to == not_yet ? int64_t(calls_.size()) : held.to)
                         .set("name", held.name));
    Json fixed = Json::object();
    for (const MemoryPlan::Term& term : engine_.plan().largest_first())
        if (std::none_of(arenas_.begin(), arenas_.end(),
                         [&](const ArenaUse& a) { return a.name == term.name; }))
            fixed.set(term.name, term.bytes);
    return Json::object()
        .set("step", step)
        .set("rank", rank)
        .set("fixed_bytes", std::move(fixed))
        .set("arenas", std::move(arenas))
        .set("calls", calls_)
        .set("tensors", std::move(tensors))
        .set("left_out", left_out_)
        .text();
}

void MemorySnapshot::write(const std::filesystem::path& folder, int64_t step, int rank) const {
    const std::filesystem::path own = folder / fmt::format("step-{:08}", step);
    std::filesystem::create_directories(own);
    const auto put = [&](const char* extension, const std::string& text) {
        const std::filesystem::path file = own / fmt::format("rank_{}.{}", rank, extension);
        write_whole_file(file, text + '\n');
    };
    put("json", json(step, rank));
    put("svg", svg(step, rank));
}

}  // namespace coeus
