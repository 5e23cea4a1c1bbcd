#include "steelyard/export/ops/linear_map.h"

#include <vector>

#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/qat/quantized_value.h"

namespace steelyard::deploy {
namespace {

// A linear map as rows of patches times rows of weights. Element types: int16 holds q - z of both
// exactly; double holds f32.
template <typename Element, typename Sum>
struct LinearMap {
  std::int64_t groups = 1;
  std::int64_t outputs = 0;     // of all groups
  std::int64_t terms = 0;       // products in a sum
  std::vector<Element> weight;  // [outputs, terms], terms in the order of a patch

  Sum sum(std::int64_t output, const Element* patch) const {
    const Element* w = weight.data() + output * terms;
    Sum total = 0;
    for (std::int64_t k = 0; k < terms; ++k) total += static_cast<Sum>(patch[k]) * w[k];
    return total;
  }
};

// Weights [O, C/groups, KH, KW] or [O, I], reordered to [O, KH, KW, C/groups].
template <typename Element, typename Sum>
LinearMap<Element, Sum> linear_map(const Node& node) {
  const bool integer = node.weights->integer();
  const Tensor weight = integer ? node.weights->weight : real_weight(*node.weights);
  LinearMap<Element, Sum> map;
  map.groups = node.conv.groups;
  map.outputs = weight.dim(0);
  map.terms = weight.size() / weight.dim(0);
  const std::int64_t channels = weight.dim(1);
  const std::int64_t taps = map.terms / channels;
  map.weight.resize(static_cast<std::size_t>(weight.size()));
  for (std::int64_t o = 0; o < map.outputs; ++o) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t t = 0; t < taps; ++t) {
        const std::int64_t from = (o * channels + c) * taps + t;
        const std::int32_t zero_point =
            integer ? node.weights->zero_point(static_cast<std::size_t>(o)) : 0;
        const double w =
            integer ? weight.data<std::int8_t>()[from] - zero_point : weight.data<float>()[from];
        map.weight[static_cast<std::size_t>((o * taps + t) * channels + c)] =
            static_cast<Element>(w);
      }
    }
  }
  return map;
}

// Every sum of a linear map: take(flat index of the output, output channel, sum). `x(i)` is the
// input's element i.
template <typename Element, typename Sum, typename Read, typename Take>
void for_each_sum(const Operands& op, const Windows& windows, const Read& x, const Take& take) {
  const auto map = linear_map<Element, Sum>(op.node);
  const std::int64_t images = op.input(0).dim(0);
  const std::int64_t group_channels = windows.channels / map.groups;
  const std::int64_t group_outputs = map.outputs / map.groups;
#pragma omp parallel for
  for (std::int64_t row = 0; row < images * windows.out_h; ++row) {
    const std::int64_t image = row / windows.out_h * windows.in_h * windows.in_w;
    std::vector<Element> patch(static_cast<std::size_t>(map.terms));
    for (std::int64_t ow = 0; ow < windows.out_w; ++ow) {
      for (std::int64_t g = 0; g < map.groups; ++g) {
        std::fill(patch.begin(), patch.end(), Element{0});
        windows.for_each_tap(row % windows.out_h, ow, [&](std::int64_t tap, std::int64_t pixel) {
          for (std::int64_t c = 0; c < group_channels; ++c) {
            patch[static_cast<std::size_t>(tap * group_channels + c)] =
                x((image + pixel) * windows.channels + g * group_channels + c);
          }
        });
        for (std::int64_t o = g * group_outputs; o < (g + 1) * group_outputs; ++o) {
          take((row * windows.out_w + ow) * map.outputs + o, o, map.sum(o, patch.data()));
        }
      }
    }
  }
}

void integer_linear_map(const Operands& op, const Windows& windows) {
  const Weights& weights = *op.node.weights;
  const Quantization& x = *op.input_value(0).quantization;
  const Tensor& codes = op.input(0);
  const auto read = [&](std::int64_t i) {
    return static_cast<std::int16_t>(code_at(codes, i) - x.zero_point);
  };
  const std::int32_t* bias = weights.bias.defined() ? weights.bias.data<std::int32_t>() : nullptr;
  const auto with_bias = [&](std::int32_t sum, std::int64_t o) {
    return bias != nullptr ? sum + bias[o] : sum;
  };
  const Tensor& out = op.output();
  if (!op.output_value().quantization) {
    for_each_sum<std::int16_t, std::int32_t>(
        op, windows, read, [&](std::int64_t i, std::int64_t o, std::int32_t sum) {
          out.data<float>()[i] = kernels::dequantize_sum(
              with_bias(sum, o), x.scale * weights.scales[static_cast<std::size_t>(o)]);
        });
    return;
  }
  const kernels::Affine<float> grid = output_grid(op);
  for_each_sum<std::int16_t, std::int32_t>(
      op, windows, read, [&](std::int64_t i, std::int64_t o, std::int32_t sum) {
        const float multiplier = kernels::requantize_multiplier(
            x.scale * weights.scales[static_cast<std::size_t>(o)], grid.scale);
        const float code =
            kernels::requantized_code(with_bias(sum, o), multiplier, grid.zero_point);
        set_code(out, i, kernels::to_integer_code(code, grid));
      });
}

void float_linear_map(const Operands& op, const Windows& windows) {
  const Tensor x = dequantized(op.input_value(0), op.input(0));
  const Tensor& bias = op.node.weights->bias;
  for_each_sum<double, double>(
      op, windows, [&](std::int64_t i) { return static_cast<double>(x.data<float>()[i]); },
      [&](std::int64_t i, std::int64_t o, double sum) {
        op.output().data<float>()[i] =
            static_cast<float>(bias.defined() ? sum + bias.data<float>()[o] : sum);
      });
}

// acc = exact sums of (x - its zero point) * (w - its zero point): see qat::multiply_codes().
void accumulate_sums(const Operands& op, Accumulate accumulate, const Tensor& acc) {
  const Weights& weights = *op.node.weights;
  accumulate(op, weights.weight, acc);
  if (weights.zero_points.empty()) return;
  Shape shape = weights.weight.shape();
  shape[0] = op.node.conv.groups;
  Shape sums_shape = acc.shape();
  sums_shape.back() = shape[0];
  const Tensor sums = Tensor::empty(sums_shape, DType::kI32);
  accumulate(op, Tensor::full(shape, 1, DType::kI8), sums);
  const std::int64_t channels = acc.dim(-1);
  const std::vector<std::int32_t> zero_points(weights.zero_points.begin(),
                                              weights.zero_points.end());
  kernels::run(kernels::SubtractZeroPoints{.rows = acc.size() / channels,
                                           .columns = channels,
                                           .groups = shape[0],
                                           .zero_points = channels,
                                           .sums = sums.data<std::int32_t>(),
                                           .zero_point = zero_points.data(),
                                           .acc = acc.data<std::int32_t>()});
}

}  // namespace

void run_linear_map(const Operands& op, const Windows& windows) {
  if (op.node.weights->integer()) {
    integer_linear_map(op, windows);
  } else {
    float_linear_map(op, windows);
  }
}

bool run_linear_map(const Operands& op, Accumulate accumulate) {
  if (!op.node.weights->integer()) return false;
  const Weights& weights = *op.node.weights;
  const Tensor acc = Tensor::empty(op.output().shape(), DType::kI32);
  accumulate_sums(op, accumulate, acc);
  std::vector<float> product_scales;
  for (const float s : weights.scales) {
    product_scales.push_back(op.input_value(0).quantization->scale * s);
  }
  kernels::Requantize rule;
  rule.channels = weights.weight.dim(0);
  rule.rows = acc.size() / rule.channels;
  const std::int32_t* bias = weights.bias.defined() ? weights.bias.data<std::int32_t>() : nullptr;
  const auto& q = op.output_value().quantization;
  if (!q) {
    kernels::run(kernels::DequantizeAccumulators{.op = rule,
                                                 .acc = acc.data<std::int32_t>(),
                                                 .bias = bias,
                                                 .product_scale = product_scales.data(),
                                                 .out = op.output().data<float>()});
    return true;
  }
  rule.activation = op.node.activation;
  qat::visit_codes(q->dtype, [&](auto* tag) {
    using Code = qat::CodeOf<decltype(tag)>;
    kernels::run(kernels::RequantizeAccumulators<Code>{.op = rule,
                                                       .acc = acc.data<std::int32_t>(),
                                                       .bias = bias,
                                                       .product_scale = product_scales.data(),
                                                       .scale = &q->scale,
                                                       .zero_point = &q->zero_point,
                                                       .range = q->range,
                                                       .codes = op.output().data<Code>(),
                                                       .mask = nullptr});
  });
  return true;
}

}  // namespace steelyard::deploy
