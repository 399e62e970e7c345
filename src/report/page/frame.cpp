// SPDX-License-Identifier: Apache-2.0
#include "frame.hpp"

#include "coeus/base/text.hpp"

#include <fmt/format.h>

namespace coeus::report {

Frame::Frame(const Box& box, const char* style, const std::string& name)
    : box_(box),
      svg_(fmt::format("<svg class=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", style,
                       box.width, box.height, markup_of(name))) {}

void Frame::line(const char* style, double x1, double y1, double x2, double y2) {
    put(fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style,
                    x1, y1, x2, y2));
}

void Frame::label(double x, double y, const char* anchor, const std::string& text) {
    put(fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                    markup_of(text)));
}

void Frame::x_axis(const ChartAxis& axis, const std::string& title) {
    const double bottom = box_.height - box_.bottom;
    line("base", box_.left, bottom, box_.width - box_.right, bottom);
    for (const double tick : axis.ticks) {
        const double x = box_.left + box_.inner_width() * axis.position(tick);
        line("base", x, bottom, x, bottom + 4);
        label(x, bottom + 18, "middle", tick_text(axis, tick));
    }
    label(box_.left + box_.inner_width() / 2, box_.height - 6, "middle", title);
}

}  // namespace coeus::report
