#include "steelyard/layers/pooling.h"

namespace steelyard {
namespace {

std::string geometry_text(const Pool2dGeometry& g) {
  const auto pair = [](const std::array<std::int64_t, 2>& p) {
    return std::to_string(p[0]) + "x" + std::to_string(p[1]);
  };
  return "kernel " + pair(g.kernel) + ", stride " + pair(g.stride) + ", padding " + pair(g.padding);
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

Variable GlobalAvgPool::forward(const Variable& x, ForwardContext&) { return global_avg_pool(x); }

}  // namespace steelyard
