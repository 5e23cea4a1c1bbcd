#include "steelyard/runtime/ops/products/linear_map.h"

#include <algorithm>
#include <vector>

#include "steelyard/framework/tensor/visit_codes.h"
#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"
#include "steelyard/kernels/ordered_product/ordered_product.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"

namespace steelyard::deploy {
namespace {

constexpr kernels::CodeRange kWeightRange{-128, 127};

// A linear map as rows of patches times rows of weights. Element types: int16 holds q - z of both
// exactly, int32 that of wide codes; double holds f32.
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

// Where the scales are of groups of consecutive codes in the order of the weights, [C, KH, KW]: the
// group of each term of a patch, whose order is [KH, KW, C].
std::vector<std::size_t> groups_of_terms(const Weights& weights) {
  const std::int64_t channels = weights.weight.dim(1);
  const std::int64_t taps = weights.weight.size() / weights.weight.dim(0) / channels;
  std::vector<std::size_t> groups;
  for (std::int64_t t = 0; t < taps; ++t) {
    for (std::int64_t c = 0; c < channels; ++c) {
      groups.push_back(static_cast<std::size_t>((c * taps + t) / weights.group_size()));
    }
  }
  return groups;
}

// Weights [O, C/groups, KH, KW] or [O, I], reordered to [O, KH, KW, C/groups].
template <typename Element, typename Sum>
LinearMap<Element, Sum> linear_map(const Node& node) {
  const bool integer = node.weights->integer();
  const Tensor weight = integer ? node.weights->weight : real_weight(*node.weights);
  LinearMap<Element, Sum> map;
  map.groups = option_or<std::int64_t>(node.options, "groups", 1);
  map.outputs = weight.dim(0);
  map.terms = weight.size() / weight.dim(0);
  const std::int64_t channels = weight.dim(1);
  const std::int64_t taps = map.terms / channels;
  const std::int64_t group_size = node.weights->group_size();
  map.weight.resize(static_cast<std::size_t>(weight.size()));
  for (std::int64_t o = 0; o < map.outputs; ++o) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t t = 0; t < taps; ++t) {
        const std::int64_t from = (o * channels + c) * taps + t;
        const std::int32_t zero_point =
            integer ? node.weights->zero_point(static_cast<std::size_t>(from / group_size)) : 0;
        const double w =
            integer ? weight.data<std::int8_t>()[from] - zero_point : weight.data<float>()[from];
        map.weight[static_cast<std::size_t>((o * taps + t) * channels + c)] =
            static_cast<Element>(w);
      }
    }
  }
  return map;
}

// Every patch of a linear map and each of its output channels: take(flat index of the output,
// output channel, patch). `x(i)` is the input's element i.
template <typename Element, typename Sum, typename Read, typename Take>
void for_each_patch(const Operands& op, const LinearMap<Element, Sum>& map, const Windows& windows,
                    const Read& x, const Take& take) {
  const std::int64_t images = op.input(0).dim(0);
  const std::int64_t group_channels = windows.channels / map.groups;
  const std::int64_t group_outputs = map.outputs / map.groups;
  kernels::parallel_for(images * windows.out_h, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
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
            take((row * windows.out_w + ow) * map.outputs + o, o, patch.data());
          }
        }
      }
    }
  });
}

// Every sum of a linear map: take(flat index of the output, output channel, sum).
template <typename Element, typename Sum, typename Read, typename Take>
void for_each_sum(const Operands& op, const Windows& windows, const Read& x, const Take& take) {
  const auto map = linear_map<Element, Sum>(op.node);
  for_each_patch(op, map, windows, x, [&](std::int64_t i, std::int64_t o, const Element* patch) {
    take(i, o, map.sum(o, patch));
  });
}

// Exact sums of the groups, scaled and added in their order, then the bias.
template <typename Element>
void grouped_linear_map(const Operands& op, const Windows& windows) {
  const Weights& weights = *op.node.weights;
  const Quantization& x = *op.input_value(0).quantization;
  const auto map = linear_map<Element, std::int32_t>(op.node);
  const std::vector<std::size_t> group_of = groups_of_terms(weights);
  const std::size_t groups = weights.scales.size() / static_cast<std::size_t>(map.outputs);
  const float* bias = weights.bias.defined() ? weights.bias.data<float>() : nullptr;
  const auto read = [&](std::int64_t i) {
    return static_cast<Element>(code_at(op.input(0), i) - x.zero_point);
  };
  for_each_patch(op, map, windows, read, [&](std::int64_t i, std::int64_t o, const Element* patch) {
    const Element* w = map.weight.data() + o * map.terms;
    std::vector<std::int32_t> sums(groups, 0);
    for (std::size_t k = 0; k < group_of.size(); ++k) sums[group_of[k]] += patch[k] * w[k];
    float y = 0;
    for (std::size_t g = 0; g < groups; ++g) {
      const float scale = weights.scales[static_cast<std::size_t>(o) * groups + g];
      y += kernels::dequantize_sum(sums[g], x.scale * scale);
    }
    op.output().data<float>()[i] = bias != nullptr ? y + bias[o] : y;
  });
}

}  // namespace

std::vector<kernels::FixedMultiplier> fixed_factors(const Graph& graph, const Node& node) {
  const float in_scale = graph.values[node.inputs[0]].quantization->scale;
  const Quantization& q = *graph.values[node.output].quantization;
  std::vector<kernels::FixedMultiplier> factors;
  for (const float scale : node.weights->scales) {
    factors.push_back(kernels::fixed_mul(in_scale, scale, q.scale, q.rounding));
  }
  return factors;
}

namespace {

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
  if (op.output_value().quantization->fixed_point()) {
    const std::vector<kernels::FixedMultiplier> factors = fixed_factors(op.graph, op.node);
    for_each_sum<std::int16_t, std::int32_t>(
        op, windows, read, [&](std::int64_t i, std::int64_t o, std::int32_t sum) {
          const Quantization& q = *op.output_value().quantization;
          const std::int32_t code = kernels::fixed_code(
              with_bias(sum, o), factors[static_cast<std::size_t>(o)], q.zero_point, q.rounding);
          set_code(out, i, clamped_code(op, code));
        });
    return;
  }
  const kernels::CodeGrid<float> grid = output_grid(op);
  for_each_sum<std::int16_t, std::int32_t>(
      op, windows, read, [&](std::int64_t i, std::int64_t o, std::int32_t sum) {
        const float multiplier = kernels::requantize_multiplier(
            x.scale * weights.scales[static_cast<std::size_t>(o)], grid.scale);
        const float code =
            kernels::requantized_code(with_bias(sum, o), multiplier, grid.zero_point);
        set_code(out, i, kernels::to_integer_code(code, grid));
      });
}

// For wide codes: the sum, an exact integer, becomes a real value, which is then quantized.
void real_linear_map(const Operands& op, const Windows& windows) {
  const Weights& weights = *op.node.weights;
  const Quantization& x = *op.input_value(0).quantization;
  const Tensor& out = op.output();
  const auto& q = op.output_value().quantization;
  const kernels::CodeGrid<float> grid = q ? output_grid(op) : kernels::CodeGrid<float>{};
  for_each_sum<std::int32_t, std::int64_t>(
      op, windows, [&](std::int64_t i) { return code_at(op.input(0), i) - x.zero_point; },
      [&](std::int64_t i, std::int64_t o, std::int64_t sum) {
        const std::int64_t bias = weights.bias.defined() ? weights.bias.data<std::int32_t>()[o] : 0;
        const float scale = x.scale * weights.scales[static_cast<std::size_t>(o)];
        const float real = static_cast<float>(sum + bias) * scale;
        if (q) {
          set_code(out, i, kernels::quantize_value(real, grid));
        } else {
          out.data<float>()[i] = real;
        }
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

// Null for an operation that is not computed byte by byte.
std::shared_ptr<PreparedNode> prepared_table(const Graph& graph, const Node& node) {
  if (op_info(node.op).fast != map_bytes) return nullptr;
  auto prepared = std::make_shared<PreparedNode>();
  prepared->table = byte_table(graph, node);
  return prepared;
}

// The operands as training holds them.
ProductInput training_value(const Operands& op) {
  const Quantization& q = *op.input_value(0).quantization;
  return {.codes = op.input(0), .scale = q.scale, .zero_point = q.zero_point, .range = q.range};
}
PreparedNode training_codes(const Weights& weights) {
  const auto count = static_cast<std::int64_t>(weights.scales.size());
  PreparedNode codes;
  codes.codes = weights.weight;
  codes.scale = Tensor::from(weights.scales, {count});
  if (weights.zero_points.empty()) {
    if (!weights.has_groups()) return codes;
    // A graph does not say whether codes are of a narrow range: they show it.
    const kernels::CodeRange range = range_of(weights.weight.span<std::int8_t>());
    codes.range = {std::min(range.qmin, -1), std::max(range.qmax, 0)};
    return codes;
  }
  const std::int32_t most = (1 << (weights.bits - 1)) - 1;
  codes.range = {-most - 1, most};
  const std::vector<std::int32_t> zero_points(weights.zero_points.begin(),
                                              weights.zero_points.end());
  codes.zero_point = Tensor::from(zero_points, {count});
  return codes;
}

std::shared_ptr<const IntegerProduct> product_of(const Node& node) {
  if (node.op == Op::kLinear) return linear_product();
  if (node.op == Op::kConv2d) return conv2d_product(node.as<Conv2dGeometry>());
  return conv_transpose2d_product(node.as<ConvTranspose2dGeometry>());
}

// The output of its sums in fixed point.
void finish_fixed(const Operands& op, const kernels::Requantize& rule, const Tensor& acc,
                  const std::int32_t* bias, const Tensor& product_scale) {
  const Quantization& q = *op.output_value().quantization;
  std::vector<std::int32_t> multiplier, shift;
  for (const kernels::FixedMultiplier& factor : fixed_factors(op.graph, op.node)) {
    multiplier.push_back(factor.multiplier);
    shift.push_back(factor.shift);
  }
  kernels::run(kernels::FixedRequantize{.op = rule,
                                        .rounding = q.rounding,
                                        .acc = acc.data<std::int32_t>(),
                                        .bias = bias,
                                        .product_scale = product_scale.data<float>(),
                                        .multiplier = multiplier.data(),
                                        .shift = shift.data(),
                                        .scale = &q.scale,
                                        .zero_point = &q.zero_point,
                                        .range = q.range,
                                        .codes = op.output().data<std::int8_t>(),
                                        .mask = nullptr});
}

// The output of its real values.
void finish_reals(const Operands& op, const Tensor& real) {
  const auto& q = op.output_value().quantization;
  if (!q) return op.output().copy_from(real);
  visit_all_codes(q->dtype, [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::run(kernels::QuantizeReals<Code>{.n = kernels::mask_bytes(real.size()),
                                              .size = real.size(),
                                              .activation = op.node.activation,
                                              .range = q->range,
                                              .x = real.data<float>(),
                                              .scale = &q->scale,
                                              .zero_point = &q->zero_point,
                                              .codes = op.output().data<Code>(),
                                              .mask = nullptr});
  });
}

}  // namespace

void run_linear_map(const Operands& op, const Windows& windows) {
  const Weights& weights = *op.node.weights;
  if (!weights.integer()) return float_linear_map(op, windows);
  const Quantization& x = *op.input_value(0).quantization;
  if (weights.has_groups()) {
    x.wide() ? grouped_linear_map<std::int32_t>(op, windows)
             : grouped_linear_map<std::int16_t>(op, windows);
  } else if (rounds_reals(x, op.output_value().quantization)) {
    real_linear_map(op, windows);
  } else {
    integer_linear_map(op, windows);
  }
}

std::shared_ptr<PreparedNode> prepared_node(const Graph& graph, const Node& node) {
  const bool product =
      node.op == Op::kLinear || node.op == Op::kConv2d || node.op == Op::kConvTranspose2d;
  if (!product) return prepared_table(graph, node);
  const Weights& weights = *node.weights;
  require_weights(node);
  if (!weights.integer()) {
    if (node.op != Op::kLinear) return nullptr;
    auto floats = std::make_shared<PreparedNode>();
    floats->real = real_weight(weights);
    return floats;
  }
  auto codes = std::make_shared<PreparedNode>(training_codes(weights));
  codes->product = product_of(node);
  if (weights.has_groups()) return codes;
  const Quantization& input = *graph.values[node.inputs[0]].quantization;
  if (!input.wide() && weights.weight.size() > 0) {
    codes->packing = std::make_shared<Packing>();
    codes->packing->codes = codes->codes;
  }
  codes->bias = weights.bias;
  codes->product_scale = Tensor::empty({weights.weight.dim(0)});
  for (std::int64_t o = 0; o < codes->product_scale.size(); ++o) {
    codes->product_scale.data<float>()[o] =
        input.scale * weights.scales[static_cast<std::size_t>(o)];
  }
  return codes;
}

std::shared_ptr<const PreparedNode> lean_node(const Graph& graph, Node& node) {
  const std::shared_ptr<PreparedNode> prepared = prepared_node(graph, node);
  if (prepared == nullptr || prepared->packing == nullptr) return prepared;
  Tensor& weight = node.weights->weight;
  weight = prepared->codes = Tensor::without_elements(weight.shape(), weight.dtype());
  prepared->lean = true;
  return prepared;
}

bool run_float_rows(const Operands& op) {
  const Weights& weights = *op.node.weights;
  if (weights.integer()) return false;
  const Tensor x = dequantized(op.input_value(0), op.input(0));
  const Tensor w = op.prepared != nullptr ? op.prepared->real : real_weight(weights);
  kernels::run(kernels::OrderedProduct{.rows = x.size() / w.dim(1),
                                       .columns = w.dim(0),
                                       .terms = w.dim(1),
                                       .x = x.data<float>(),
                                       .w = w.data<float>(),
                                       .to_term = 1,
                                       .to_column = w.dim(1),
                                       .bias = data_or_null<float>(weights.bias),
                                       .y = op.output().data<float>()});
  return true;
}

bool run_linear_map(const Operands& op) {
  if (!op.node.weights->integer()) return false;
  const Weights& weights = *op.node.weights;
  const ProductInput x = training_value(op);
  std::shared_ptr<const PreparedNode> made;  // for a node that is not the interpreter's
  if (op.prepared == nullptr) made = prepared_node(op.graph, op.node);
  const PreparedNode& codes = op.prepared != nullptr ? *op.prepared : *made;
  const IntegerProduct& product = *codes.product;
  if (weights.has_groups()) {
    product.grouped(x, codes, weights.bias, op.output());
    return true;
  }
  const auto& q = op.output_value().quantization;
  if (x.wide()) {
    finish_reals(op, multiply_wide(product, x, codes, kWeightRange));
    return true;
  }
  kernels::Requantize rule;
  rule.channels = weights.weight.dim(0);
  rule.rows = op.output().size() / rule.channels;
  const auto* const bias = data_or_null<std::int32_t>(weights.bias);
  if (!q || q->wide()) {
    const Tensor acc = Tensor::empty(op.output().shape(), DType::kI32);
    multiply_codes(product, x, codes, kWeightRange, acc);
    const Tensor real = Tensor::empty(acc.shape());
    kernels::run(kernels::DequantizeAccumulators{.rows = rule.rows,
                                                 .channels = rule.channels,
                                                 .activation = rule.activation,
                                                 .acc = acc.data<std::int32_t>(),
                                                 .bias = bias,
                                                 .product_scale = codes.product_scale.data<float>(),
                                                 .out = real.data<float>()});
    finish_reals(op, real);
    return true;
  }
  rule.activation = op.node.activation;
  if (q->fixed_point()) {
    const Tensor acc = Tensor::empty(op.output().shape(), DType::kI32);
    multiply_codes(product, x, codes, kWeightRange, acc);
    finish_fixed(op, rule, acc, bias, codes.product_scale);
    return true;
  }
  multiply_to_codes(product, x, codes, kWeightRange,
                    {.op = rule,
                     .bias = bias,
                     .product_scale = codes.product_scale.data<float>(),
                     .scale = q->scale,
                     .zero_point = q->zero_point,
                     .range = q->range,
                     .codes = op.output()});
  return true;
}

}  // namespace steelyard::deploy
