// Charts as inline SVG: text and shapes with classes, coloured by the page's style sheet.
//
// Classes: "axis", "grid", "label", "title", "line c1".."line c4", "dot c1".., "bar", "range",
// "limit", "level", "part p1".."part p8".
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/qat/model/measure.h"

namespace steelyard {

struct ChartSeries {
  std::string name;
  int color = 1;                                       // 1 to 4
  std::vector<std::pair<double, double>> points = {};  // by rising x
  bool dots = false;                                   // a mark at every point
};

struct LineChart {
  std::string title;  // with the unit
  std::string x_label;
  std::vector<ChartSeries> series;
};

// Points that are not finite are left out; a legend where there are several series.
std::string line_chart(const LineChart& chart);

// A histogram on a logarithmic axis of counts, with what the quantizer can represent. Bins are
// joined where there are few values.
struct HistogramChart {
  std::string title;
  std::string x_label;
  qat::ValueHistogram histogram;
  std::optional<std::pair<double, double>> range = {};
  std::vector<double> levels = {};  // values of codes, to draw
};

std::string histogram_chart(const HistogramChart& chart);

// Horizontal bars, each of the same parts; the scale begins at 0. Values that are not finite, or
// below 0, count as 0.
struct BarChart {
  struct Row {
    std::string name;
    std::vector<double> values;  // of each part
  };
  std::string title;
  std::string x_label;
  std::vector<std::string> parts;  // at most 8
  std::vector<Row> rows;           // from the top
};

std::string bar_chart(const BarChart& chart);

// Round numbers in [lo, hi], about `count` of them; lo <= hi, both finite.
std::vector<double> axis_ticks(double lo, double hi, int count);

}  // namespace steelyard
