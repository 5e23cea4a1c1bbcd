#include <vector>

#include "steelyard/export/interpreter.h"
#include "steelyard/export/reference_support.h"

namespace steelyard::deploy {
namespace {

using kernels::Affine;

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
  map.groups = node.op == Op::kConv2d ? node.conv.groups : 1;
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
void for_each_sum(const Operands& op, const Read& x, const Take& take) {
  const auto map = linear_map<Element, Sum>(op.node);
  if (op.node.op == Op::kLinear) {
    const std::int64_t rows = op.output().size() / map.outputs;
#pragma omp parallel for
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<Element> row(static_cast<std::size_t>(map.terms));
      for (std::int64_t k = 0; k < map.terms; ++k) {
        row[static_cast<std::size_t>(k)] = x(r * map.terms + k);
      }
      for (std::int64_t o = 0; o < map.outputs; ++o) {
        take(r * map.outputs + o, o, map.sum(o, row.data()));
      }
    }
    return;
  }
  const Windows windows = windows_of(op);
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

void integer_linear_map(const Operands& op) {
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
        op, read, [&](std::int64_t i, std::int64_t o, std::int32_t sum) {
          out.data<float>()[i] = kernels::dequantize_sum(
              with_bias(sum, o), x.scale * weights.scales[static_cast<std::size_t>(o)]);
        });
    return;
  }
  const Affine<float> grid = output_grid(op);
  for_each_sum<std::int16_t, std::int32_t>(
      op, read, [&](std::int64_t i, std::int64_t o, std::int32_t sum) {
        const float multiplier = kernels::requantize_multiplier(
            x.scale * weights.scales[static_cast<std::size_t>(o)], grid.scale);
        const float code =
            kernels::requantized_code(with_bias(sum, o), multiplier, grid.zero_point);
        set_code(out, i, kernels::to_integer_code(code, grid));
      });
}

void float_linear_map(const Operands& op) {
  const Tensor x = dequantized(op.input_value(0), op.input(0));
  const Tensor& bias = op.node.weights->bias;
  for_each_sum<double, double>(
      op, [&](std::int64_t i) { return static_cast<double>(x.data<float>()[i]); },
      [&](std::int64_t i, std::int64_t o, double sum) {
        op.output().data<float>()[i] =
            static_cast<float>(bias.defined() ? sum + bias.data<float>()[o] : sum);
      });
}

}  // namespace

void run_linear_map(const Operands& op) {
  if (op.node.weights->integer()) {
    integer_linear_map(op);
  } else {
    float_linear_map(op);
  }
}

}  // namespace steelyard::deploy
