#include "steelyard/layers/pooling.h"

#include "steelyard/layers/weighted/one_row.h"

namespace steelyard {
namespace {

std::string geometry_text(const Pool2dGeometry& g) {
  const auto pair = [](const std::array<std::int64_t, 2>& p) {
    return std::to_string(p[0]) + "x" + std::to_string(p[1]);
  };
  return "kernel " + pair(g.kernel) + ", stride " + pair(g.stride) + ", padding " + pair(g.padding);
}

std::string geometry_text(const Pool1dGeometry& g) {
  return "kernel " + std::to_string(g.kernel) + ", stride " + std::to_string(g.stride) +
         ", padding " + std::to_string(g.padding);
}

}  // namespace

Variable MaxPool2d::forward(const Variable& x, ForwardContext&) { return max_pool2d(x, options_); }

std::string MaxPool2d::description() const { return "MaxPool2d(" + geometry_text(options_) + ")"; }

Variable AvgPool2d::forward(const Variable& x, ForwardContext&) {
  return avg_pool2d(x, options_.geometry, options_.count_include_pad);
}

std::string AvgPool2d::description() const {
  return "AvgPool2d(" + geometry_text(options_.geometry) +
         (options_.count_include_pad ? ")" : ", padding not counted)");
}

Variable MaxPool1d::forward(const Variable& x, ForwardContext&) {
  return on_one_row("MaxPool1d", x,
                    [&](const Variable& row) { return max_pool2d(row, options_.on_row()); });
}

std::string MaxPool1d::description() const { return "MaxPool1d(" + geometry_text(options_) + ")"; }

Variable AvgPool1d::forward(const Variable& x, ForwardContext&) {
  return on_one_row("AvgPool1d", x,
                    [&](const Variable& row) { return avg_pool2d(row, options_.on_row()); });
}

std::string AvgPool1d::description() const { return "AvgPool1d(" + geometry_text(options_) + ")"; }

Variable GlobalAvgPool::forward(const Variable& x, ForwardContext&) {
  if (x.shape().size() != 3) return global_avg_pool(x);
  return global_avg_pool(reshape(x, {x.dim(0), 1, x.dim(1), x.dim(2)}));
}

}  // namespace steelyard
