// The weights of linear maps: their checks and their ONNX nodes.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>

#include "steelyard/runtime/ops/products/linear_map.h"

namespace steelyard::deploy {
namespace {

// `message` has a place for the first value that is not good.
template <typename Values, typename Good>
void expect_all(const Values& values, const Good& good, const Node& node,
                const std::string& message) {
  const auto bad = std::find_if_not(values.begin(), values.end(), good);
  if (bad != values.end()) expect(false, node, fmt::format(fmt::runtime(message), *bad));
}

void check_codes(const Node& node, const Weights& weights) {
  const std::int64_t outputs = weights.weight.dim(0);
  const auto count = static_cast<std::int64_t>(weights.scales.size());
  if (outputs == 0) {
    expect(count == outputs, node,
           fmt::format("expected {} weight scales, got {}", outputs, count));
  } else {
    const bool equal_groups =
        count > 0 && count % outputs == 0 && weights.weight.size() % count == 0;
    expect(equal_groups, node,
           fmt::format("{} weight scales do not divide its weight {}", count,
                       shape_string(weights.weight.shape())));
  }
  expect_all(
      weights.scales, [](float scale) { return std::isfinite(scale) && scale > 0; }, node,
      "expected finite weight scales above 0, got {}");
  expect(weights.bits >= 2 && weights.bits <= 8, node, "weights have 2 to 8 bits");
  const int limit = 1 << (weights.bits - 1);
  expect(weights.zero_points.empty() || weights.zero_points.size() == weights.scales.size(), node,
         fmt::format("expected a weight zero point for each of {} scales, got {}",
                     weights.scales.size(), weights.zero_points.size()));
  const auto fits = [limit](std::int8_t code) { return code >= -limit && code < limit; };
  const std::string too_large = fmt::format(" does not fit {} bits", weights.bits);
  expect_all(weights.zero_points, fits, node, "weight zero point {}" + too_large);
  if (weights.bits == 8) return;
  const auto codes = weights.weight.span<std::int8_t>();
  const kernels::CodeRange range = range_of(codes);
  if (range.qmin >= -limit && range.qmax < limit) return;
  expect_all(codes, fits, node, "weight code {}" + too_large);
}

// The sum of |code - zero point|.
std::int64_t distance_sum(std::span<const std::int8_t> codes, std::int32_t zero_point) {
  constexpr std::size_t kRun = 1 << 16;  // whose sum int32 holds
  std::int64_t sum = 0;
  for (std::size_t first = 0; first < codes.size(); first += kRun) {
    const std::size_t end = std::min(codes.size(), first + kRun);
    std::int32_t part = 0;
#pragma omp simd reduction(+ : part)
    for (std::size_t i = first; i < end; ++i) part += std::abs(codes[i] - zero_point);
    sum += part;
  }
  return sum;
}

// |bias| + sum of |w - z_w| * max|q - z| of every scale: if it fits int32, no order of summation
// leaves int32. With wide codes each byte has such a sum, without the bias.
void check_sums(const Node& node, const Quantization& input) {
  const Weights& weights = *node.weights;
  const bool bytes = input.wide() && !weights.has_groups();
  const std::int64_t largest =
      bytes ? 255
            : std::max(input.zero_point - input.range.qmin, input.range.qmax - input.zero_point);
  const auto scales = static_cast<std::int64_t>(weights.scales.size());
  const std::int64_t terms = weights.group_size();
  const bool has_bias = weights.bias.defined() && weights.one_scale_per_channel() && !bytes;
  const std::int32_t* const bias = has_bias ? weights.bias.data<std::int32_t>() : nullptr;
  // A bound from the bits alone, which most layers keep: then their weights need not be read.
  const std::int64_t bound = terms * ((1 << weights.bits) - 1) * largest;
  for (std::int64_t s = 0; s < scales; ++s) {
    std::int64_t sum = has_bias ? std::abs(std::int64_t{bias[s]}) : 0;
    if (sum + bound <= INT32_MAX) continue;
    const auto row = weights.weight.span<std::int8_t>().subspan(static_cast<std::size_t>(s * terms),
                                                                static_cast<std::size_t>(terms));
    sum += distance_sum(row, weights.zero_point(static_cast<std::size_t>(s))) * largest;
    if (sum > INT32_MAX) {
      throw WeightFault(about(node, fmt::format("the sums of channel {} can overflow int32",
                                                s / (scales / weights.weight.dim(0)))));
    }
  }
}

void check_finite(const Node& node, const Weights& weights) {
  for (const Tensor& tensor : {weights.weight, weights.bias}) {
    if (!tensor.defined() || tensor.dtype() != DType::kF32) continue;
    for (const float value : tensor.span<float>()) {
      if (!std::isfinite(value))
        throw WeightFault(about(node, fmt::format("a parameter is {}", value)));
    }
  }
}

void check_float(const Node& node, const Weights& weights) {
  expect(weights.has_codes() || (weights.weight.dtype() == DType::kF32 && weights.scales.empty()),
         node, "weights must be i8 with scales or f32 without");
}

}  // namespace

void check_weights(const Graph& graph, const Node& node) {
  const auto& input = graph.values[node.inputs[0]].quantization;
  expect(node.weights && node.weights->weight.defined() && node.weights->weight.rank() >= 2, node,
         "has no weights");
  const Weights& weights = *node.weights;
  expect(weights.weight.dim(0) == 0 || weights.weight.size() > 0, node,
         "its weight " + shape_string(weights.weight.shape()) + " has no elements");
  if (weights.bias.defined()) {
    expect(weights.bias.dtype() == (weights.one_scale_per_channel() ? DType::kI32 : DType::kF32) &&
               weights.bias.shape() == Shape{weights.weight.dim(0)},
           node, "its bias does not fit its weights");
  }
  check_finite(node, weights);
  if (weights.has_codes()) check_codes(node, weights);
  if (weights.integer()) {
    expect(weights.has_codes(), node, "integer products need weight codes");
    expect(input.has_value(), node, "integer weights need a quantized input");
    check_sums(node, *input);
    expect(!weights.has_groups() || !graph.values[node.output].quantization, node,
           "a product with a scale for each group gives a float output");
  } else {
    check_float(node, weights);
    expect(!graph.values[node.output].quantization, node,
           "a product in float gives a float output");
  }
}

}  // namespace steelyard::deploy
