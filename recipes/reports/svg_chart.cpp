#include "steelyard/recipes/reports/svg_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "steelyard/recipes/reports/html.h"

namespace steelyard {
namespace {

// The drawing area of a chart, and where values lie in it.
struct Frame {
  double width, height;
  double left, right, top, bottom;  // of the plot, in the drawing's units
  double x_lo = 0, x_hi = 1, y_lo = 0, y_hi = 1;

  double x(double value) const { return left + (value - x_lo) / (x_hi - x_lo) * (right - left); }
  double y(double value) const { return bottom - (value - y_lo) / (y_hi - y_lo) * (bottom - top); }
};

// Makes an empty interval wide enough to divide by.
void widen(double& lo, double& hi) {
  if (hi - lo > 1e-12 * std::max(std::abs(lo), std::abs(hi)) && hi > lo) return;
  const double half = lo == 0 ? 0.5 : std::abs(lo) * 0.05;
  lo -= half;
  hi += half;
}

std::string number(double value) { return fmt::format("{:.2f}", value); }

std::string text(double x, double y, const char* anchor, std::string_view words,
                 const char* css = "label") {
  return fmt::format(R"(<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", css, x,
                     y, anchor, html_escaped(words));
}

std::string line(const char* css, double x1, double y1, double x2, double y2) {
  return fmt::format(R"(<line class="{}" x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}"/>)", css,
                     x1, y1, x2, y2);
}

// `words` with what does not fit into `width` left out of the middle, where names differ least:
// "block.0.conv…weights". Bold letters of 12.5 units are 7.5 wide in the mean, those of most other
// scripts twice that.
std::string fitting(std::string_view words, double width) {
  std::vector<std::pair<std::string_view, double>> letters;
  double total = 0;
  for (std::size_t at = 0; at < words.size();) {
    std::size_t end = at + 1;
    while (end < words.size() && (static_cast<unsigned char>(words[end]) & 0xC0U) == 0x80U) ++end;
    letters.emplace_back(words.substr(at, end - at), end - at > 2 ? 15.0 : 7.5);
    total += letters.back().second;
    at = end;
  }
  if (total <= width) return std::string(words);
  const double half = (width - 7.5) / 2;
  std::string head, tail;
  double used = 0;
  for (auto letter = letters.begin(); (used += letter->second) <= half; ++letter) {
    head += letter->first;
  }
  used = 0;
  for (auto letter = letters.rbegin(); (used += letter->second) <= half; ++letter) {
    tail.insert(0, letter->first);
  }
  return head + "…" + tail;
}

std::string begin(const Frame& frame, const std::string& title) {
  return fmt::format(R"(<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">)", frame.width,
                     frame.height, html_escaped(title)) +
         text(frame.left, 14, "start", fitting(title, frame.width - frame.left), "title");
}

std::string x_axis(const Frame& frame, const std::string& label, int count) {
  std::string svg = line("axis", frame.left, frame.bottom, frame.right, frame.bottom);
  for (const double tick : axis_ticks(frame.x_lo, frame.x_hi, count)) {
    const double x = frame.x(tick);
    svg += line("axis", x, frame.bottom, x, frame.bottom + 4);
    svg += text(x, frame.bottom + 16, "middle", fmt::format("{:g}", tick));
  }
  return svg + text(frame.right, frame.bottom + 30, "end", label);
}

std::string y_axis(const Frame& frame) {
  std::string svg;
  for (const double tick : axis_ticks(frame.y_lo, frame.y_hi, 4)) {
    const double y = frame.y(tick);
    svg += line("grid", frame.left, y, frame.right, y);
    svg += text(frame.left - 6, y + 3.5, "end", fmt::format("{:g}", tick));
  }
  return svg;
}

bool is_finite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

std::string draw(const Frame& frame, const ChartSeries& series) {
  std::string path;
  std::string dots;
  for (const auto& point : series.points) {
    if (!is_finite(point)) continue;
    const std::string x = number(frame.x(point.first));
    const std::string y = number(frame.y(point.second));
    path += fmt::format("{}{} {}", path.empty() ? "M" : "L", x, y);
    if (series.dots) {
      dots +=
          fmt::format(R"(<circle class="dot c{}" cx="{}" cy="{}" r="2.5"/>)", series.color, x, y);
    }
  }
  if (path.empty()) return "";
  return fmt::format(R"(<path class="line c{}" d="{}"/>)", series.color, path) + dots;
}

// Pairs of bins become one until there are few for so many values.
qat::ValueHistogram joined(qat::ValueHistogram h) {
  double total = 0;
  for (const std::int64_t count : h.counts) total += static_cast<double>(count);
  while (static_cast<double>(h.counts.size()) > std::max(32.0, 4 * std::sqrt(total))) {
    std::vector<std::int64_t> pairs((h.counts.size() + 1) / 2, 0);
    for (std::size_t b = 0; b < h.counts.size(); ++b) pairs[b / 2] += h.counts[b];
    h.counts = std::move(pairs);
    h.bin_width *= 2;
  }
  return h;
}

std::string legend(const Frame& frame, const std::vector<ChartSeries>& series) {
  std::string svg;
  double x = frame.left;
  for (const ChartSeries& s : series) {
    svg += fmt::format(R"(<path class="line c{}" d="M{:.1f} 28L{:.1f} 28"/>)", s.color, x, x + 16);
    svg += text(x + 20, 31.5, "start", s.name);
    x += 34 + 5.8 * static_cast<double>(s.name.size());
  }
  return svg;
}

double length_of(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

double length_of(const BarChart::Row& row) {
  double length = 0;
  for (const double value : row.values) length += length_of(value);
  return std::min(length, std::numeric_limits<double>::max());
}

// Names of parts, in lines of at most the frame's width; returns how many lines.
int part_names(const Frame& frame, const std::vector<std::string>& parts, std::string& svg) {
  double x = frame.left;
  int lines = 1;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double width = 22 + 6.2 * static_cast<double>(parts[i].size());
    if (x > frame.left && x + width > frame.right) {
      x = frame.left;
      ++lines;
    }
    const double y = 8 + 16.0 * lines;
    svg += fmt::format(R"(<rect class="part p{}" x="{:.1f}" y="{:.1f}" width="9" height="9"/>)",
                       i + 1, x, y);
    svg += text(x + 13, y + 8.5, "start", parts[i]);
    x += width;
  }
  return lines;
}

}  // namespace

std::vector<double> axis_ticks(double lo, double hi, int count) {
  if (!(hi > lo)) return {lo};
  const double rough = (hi - lo) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double nice : {1.0, 2.0, 5.0}) {
    if (nice * power >= rough * (1 - 1e-9)) {
      step = nice * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (double i = std::ceil(lo / step - 1e-9); i * step <= hi + 1e-9 * step; ++i) {
    ticks.push_back(i == 0 ? 0.0 : i * step);
  }
  return ticks;
}

std::string line_chart(const LineChart& chart) {
  Frame frame{.width = 440, .height = 250, .left = 52, .right = 428, .top = 40, .bottom = 210};
  bool first = true;
  for (const ChartSeries& series : chart.series) {
    for (const auto& point : series.points) {
      if (!is_finite(point)) continue;
      if (first) {
        frame.x_lo = frame.x_hi = point.first;
        frame.y_lo = frame.y_hi = point.second;
        first = false;
      }
      frame.x_lo = std::min(frame.x_lo, point.first);
      frame.x_hi = std::max(frame.x_hi, point.first);
      frame.y_lo = std::min(frame.y_lo, point.second);
      frame.y_hi = std::max(frame.y_hi, point.second);
    }
  }
  if (frame.x_lo > 0 && frame.x_lo < 0.2 * frame.x_hi) frame.x_lo = 0;
  widen(frame.x_lo, frame.x_hi);
  widen(frame.y_lo, frame.y_hi);
  const double margin = (frame.y_hi - frame.y_lo) * 0.04;
  frame.y_lo = frame.y_lo >= 0 && frame.y_lo < margin ? 0 : frame.y_lo - margin;
  frame.y_hi += margin;
  std::string svg = begin(frame, chart.title) + y_axis(frame) + x_axis(frame, chart.x_label, 5);
  for (const ChartSeries& series : chart.series) svg += draw(frame, series);
  if (chart.series.size() > 1) svg += legend(frame, chart.series);
  return svg + "</svg>";
}

std::string histogram_chart(const HistogramChart& chart) {
  const qat::ValueHistogram h = joined(chart.histogram);
  Frame frame{.width = 330, .height = 170, .left = 34, .right = 322, .top = 24, .bottom = 132};
  const double end = h.first + static_cast<double>(h.counts.size()) * h.bin_width;
  frame.x_lo = h.first;
  frame.x_hi = end;
  if (chart.range) {
    frame.x_lo = std::min(frame.x_lo, chart.range->first);
    frame.x_hi = std::max(frame.x_hi, chart.range->second);
  }
  widen(frame.x_lo, frame.x_hi);
  const double margin = (frame.x_hi - frame.x_lo) * 0.02;
  frame.x_lo -= margin;
  frame.x_hi += margin;
  std::int64_t largest = 1;
  for (const std::int64_t count : h.counts) largest = std::max(largest, count);
  const auto height = [](std::int64_t count) {
    return count == 0 ? 0.0 : 0.3 + std::log10(static_cast<double>(count));
  };
  frame.y_hi = height(largest) * 1.03;

  std::string svg = begin(frame, chart.title);
  if (chart.range) {
    const double from = frame.x(chart.range->first);
    svg +=
        fmt::format(R"(<rect class="range" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>)",
                    from, frame.top, frame.x(chart.range->second) - from, frame.bottom - frame.top);
  }
  for (int power = 0; std::pow(10.0, power) <= static_cast<double>(largest); power += 2) {
    const double y = frame.y(0.3 + power);
    svg += line("grid", frame.left, y, frame.right, y);
    svg += text(frame.left - 4, y + 3.5, "end", power == 0 ? "1" : fmt::format("1e{}", power));
  }
  for (const double level : chart.levels) {
    svg += line("level", frame.x(level), frame.top, frame.x(level), frame.bottom);
  }
  std::string bars;
  for (std::size_t b = 0; b < h.counts.size(); ++b) {
    if (h.counts[b] == 0) continue;
    const double x = h.first + static_cast<double>(b) * h.bin_width;
    bars += fmt::format("M{:.2f} {:.2f}V{:.2f}H{:.2f}V{:.2f}Z", frame.x(x), frame.bottom,
                        frame.y(height(h.counts[b])), frame.x(x + h.bin_width), frame.bottom);
  }
  if (!bars.empty()) svg += fmt::format(R"(<path class="bar" d="{}"/>)", bars);
  if (chart.range) {
    for (const double at : {chart.range->first, chart.range->second}) {
      svg += line("limit", frame.x(at), frame.top - 3, frame.x(at), frame.bottom);
    }
  }
  return svg + x_axis(frame, chart.x_label, 5) + "</svg>";
}

std::string bar_chart(const BarChart& chart) {
  constexpr double kRowHeight = 17, kBarHeight = 11;
  Frame frame{.width = 900, .height = 0, .left = 230, .right = 880, .top = 0, .bottom = 0};
  std::string names;
  frame.top = 20 + 16.0 * part_names(frame, chart.parts, names);
  frame.bottom = frame.top + kRowHeight * static_cast<double>(chart.rows.size());
  frame.height = frame.bottom + 36;
  double longest = 0;
  for (const BarChart::Row& row : chart.rows) longest = std::max(longest, length_of(row));
  if (longest > 0) frame.x_hi = longest;
  std::string svg = begin(frame, chart.title) + names;
  double y = frame.top;
  for (const BarChart::Row& row : chart.rows) {
    svg += text(frame.left - 8, y + 11, "end", fitting(row.name, frame.left - 16));
    double from = 0;
    for (std::size_t part = 0; part < row.values.size(); ++part) {
      const double length = length_of(row.values[part]);
      if (length == 0) continue;
      svg += fmt::format(
          R"(<rect class="part p{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.0f}"/>)",
          part + 1, frame.x(from), y + 2, frame.x(from + length) - frame.x(from), kBarHeight);
      from += length;
    }
    y += kRowHeight;
  }
  return svg + x_axis(frame, chart.x_label, 8) + "</svg>";
}

}  // namespace steelyard
