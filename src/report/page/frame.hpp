// SPDX-License-Identifier: Apache-2.0
// The frame of a plot in SVG: its axes, lines and labels, in the colours of the page's style.
#pragma once

#include "axis.hpp"

#include <string>

namespace coeus::report {

/// The size of a plot and the margins around its inside, in pixels.
struct Box {
    double width, height;
    double left = 58, top = 12, right = 16, bottom = 44;
    double inner_width() const { return width - left - right; }
    double inner_height() const { return height - top - bottom; }
};

class Frame {
public:
    /// `style`: the class of the picture. `name`: what it shows, for readers who do not see it.
    Frame(const Box& box, const char* style, const std::string& name);

    /// A part that the script replaces is in a group of this class.
    void open_group(const char* style) { put(std::string("<g class=\"") + style + "\">"); }
    void close_group() { put("</g>\n"); }
    void put(const std::string& svg) { svg_ += svg; }
    void line(const char* style, double x1, double y1, double x2, double y2);
    /// A number beside the y axis.
    void y_label(double y, const std::string& text) { label(box_.left - 9, y + 4, "end", text); }
    void x_axis(const ChartAxis& axis, const std::string& title);
    std::string text() const { return svg_ + "</svg>"; }

private:
    void label(double x, double y, const char* anchor, const std::string& text);

    Box box_;
    std::string svg_;
};

}  // namespace coeus::report
