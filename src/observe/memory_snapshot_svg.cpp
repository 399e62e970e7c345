// SPDX-License-Identifier: Apache-2.0
// The picture of a snapshot: calls to the right, up to the last one that finds a visible tensor, memory
// upwards, the arenas above each other. Each tensor is a rectangle at its place in the arena, as long as it
// is held. Sizes are in pixels.
#include "coeus/base/text.hpp"
#include "coeus/observe/memory_snapshot.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace coeus {

namespace {

constexpr double width = 1180, height = 520, left = 120, top = 70, between_arenas = 14;
constexpr size_t most_areas = 20000;  // more would be slow in a browser

struct CallKind {
    const char *name, *class_name, *color;
};
// Kinds are found by the beginning of a tensor's name. The colours are distinct also for the colour-blind.
constexpr std::array<CallKind, 8> call_kinds = {{{"gemm", "g", "#2f5da8"},
                                                 {"rms_norm", "n", "#2e8b57"},
                                                 {"layer_norm", "n", "#2e8b57"},
                                                 {"attention", "a", "#e29614"},
                                                 {"swiglu", "s", "#8e5bb5"},
                                                 {"geglu", "s", "#8e5bb5"},
                                                 {"scratch", "w", "#8c959f"},
                                                 {"", "o", "#17a2b8"}}};

const CallKind& kind_of(const std::string& name) {
    return *std::find_if(call_kinds.begin(), call_kinds.end(),
                         [&](const CallKind& kind) { return name.starts_with(kind.name); });
}

class SnapshotPicture {
public:
    explicit SnapshotPicture(const MemorySnapshot& snapshot) : snapshot_(snapshot) {
        int64_t peaks = 0;
        for (const auto& arena : snapshot.arenas()) peaks += arena.peak;
        const double gaps = between_arenas * double(snapshot.arenas().size());
        pixels_per_byte_ = (height - gaps) / double(std::max<int64_t>(1, peaks));
        for (const auto& held : snapshot.held())
            if (is_visible(held)) last_call_ = std::max(last_call_, end_of(held));
        pixels_per_call_ = width / double(std::max<int64_t>(1, last_call_));
        double floor = top + height;
        for (const auto& arena : snapshot.arenas()) {
            floors_.push_back(floor);
            floor -= double(arena.peak) * pixels_per_byte_ + between_arenas;
        }
    }

    std::string draw(int64_t step, int rank) {
        begin(step, rank);
        for (size_t i = 0; i < snapshot_.arenas().size(); ++i) arena(i);
        const size_t shown = std::min(snapshot_.held().size(), most_areas);
        for (size_t i = 0; i < shown; ++i) area(snapshot_.held()[i]);
        legend(snapshot_.held().size() - shown);
        return svg_ + "</svg>";
    }

private:
    bool is_visible(const MemorySnapshot::Held& held) const {
        return double(held.bytes) * pixels_per_byte_ >= 0.05 && end_of(held) > held.from;
    }
    // The number of calls until a tensor is released.
    int64_t end_of(const MemorySnapshot::Held& held) const {
        return held.to < 0 ? int64_t(snapshot_.calls().size()) : held.to;
    }
    template <class... Args>
    void put(fmt::format_string<Args...> format, Args&&... args) {
        fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
        svg_ += '\n';
    }

    void begin(int64_t step, int rank) {
        const double w = left + width + 20, h = top + height + 60;
        put(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img">)",
            w, h);
        put("<style>");
        put("text{{font:12px 'Helvetica Neue',Helvetica,Arial,sans-serif;fill:#24292f}}");
        put(".name{{font-size:17px;font-weight:bold}}.small{{font-size:11px;fill:#57606a}}");
        put(".h{{stroke:#fff;stroke-width:.3}}.h:hover{{stroke:#000;stroke-width:1.5}}.floor{{stroke:#d0d7de}"
            "}");
        for (const CallKind& kind : call_kinds) put(".{}{{fill:{}}}", kind.class_name, kind.color);
        put("</style>");
        put(R"(<rect width="{}" height="{}" fill="#fff"/>)", w, h);
        put(R"(<text class="name" x="{}" y="28">Memory of step {}, rank {}</text>)", left, step, rank);
        const auto later = int64_t(snapshot_.calls().size()) - last_call_;
        put(R"(<text x="{}" y="48">{} kernel calls from left to right; point at an area to see its name{}</text>)",
            left, last_call_,
            later > 0
                ? fmt::format(". The {} calls after them, of the update, need almost nothing of this memory",
                              later)
                : "");
    }

    void arena(size_t index) {
        const auto& arena = snapshot_.arenas()[index];
        const double floor = floors_[index];
        put(R"(<line class="floor" x1="{}" x2="{}" y1="{:.2f}" y2="{:.2f}"/>)", left, left + width, floor,
            floor);
        put(R"(<text x="{}" y="{:.2f}" text-anchor="end">{}</text>)", left - 6, floor - 13, arena.name);
        put(R"(<text class="small" x="{}" y="{:.2f}" text-anchor="end">{}</text>)", left - 6, floor,
            bytes_text(double(arena.peak)));
    }

    void area(const MemorySnapshot::Held& held) {
        const int64_t to = end_of(held);
        const double h = double(held.bytes) * pixels_per_byte_,
                     y = floors_[held.arena] - double(held.first) * pixels_per_byte_ - h;
        if (!is_visible(held)) return;
        put(R"(<rect class="h {}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"><title>{}: {}, calls {} to {}</title></rect>)",
            kind_of(held.name).class_name, left + double(held.from) * pixels_per_call_, y,
            double(to - held.from) * pixels_per_call_, h, held.name.empty() ? "unused" : held.name,
            bytes_text(double(held.bytes)), held.from, to);
    }

    void legend(size_t not_shown) {
        static constexpr std::array<std::pair<const char*, const char*>, 6> entries = {
            {{"g", "matrix products"},
             {"n", "norms"},
             {"a", "attention"},
             {"s", "SwiGLU"},
             {"w", "scratch of kernels"},
             {"o", "other"}}};
        double x = left;
        const double y = top + height + 22;
        for (const auto& [class_name, text] : entries) {
            put(R"(<rect class="{}" x="{}" y="{}" width="13" height="13"/>)", class_name, x, y);
            put(R"(<text x="{}" y="{}">{}</text>)", x + 18, y + 11, text);
            x += 36 + 6.5 * double(std::char_traits<char>::length(text));
        }
        if (const auto more = not_shown + size_t(snapshot_.left_out()); more > 0)
            put(R"(<text class="small" x="{}" y="{}">{} more tensors are not shown</text>)", left, y + 32,
                more);
    }

    const MemorySnapshot& snapshot_;
    double pixels_per_byte_ = 1, pixels_per_call_ = 1;
    int64_t last_call_ = 0;       // the picture ends here: later calls find no visible tensor
    std::vector<double> floors_;  // y of each arena's lower edge; the first arena is lowest
    std::string svg_;
};

}  // namespace

std::string MemorySnapshot::svg(int64_t step, int rank) const {
    return SnapshotPicture(*this).draw(step, rank);
}

}  // namespace coeus
