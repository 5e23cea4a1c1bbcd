#include <optional>
#include <unordered_map>

#include "steelyard/kernels/cpu/onednn/context.h"
#include "steelyard/kernels/cpu/onednn/describe.h"
#include "steelyard/kernels/cpu/onednn_kernels.h"

namespace steelyard::kernels::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

enum Kind { kForward, kForwardBias, kBackwardInput, kBackwardWeight, kBackwardWeightBias };

// A convolution with the reorders that bring what it reads or writes from or into our dense float32
// layouts: NHWC, and OIHW for the weights. Absent ones need none.
struct ConvPrimitive {
  dnnl::primitive primitive;
  std::optional<dnnl::reorder> input_reorder, weights_reorder, output_reorder;
  memory::desc input, weights, output, scratchpad;
};

// What the tensors of a convolution look like: ours, in float32, ...
memory::desc given_input(const Conv2dShape& s) {
  return {{s.batch, s.in_channels, s.in_h, s.in_w}, Type::f32, Tag::nhwc};
}
memory::desc given_output(const Conv2dShape& s) {
  return {{s.batch, s.out_channels, s.out_h(), s.out_w()}, Type::f32, Tag::nhwc};
}
memory::desc given_weights(const Conv2dShape& s) {
  if (s.groups == 1) {
    return {{s.out_channels, s.in_channels, s.kernel_h, s.kernel_w}, Type::f32, Tag::oihw};
  }
  return {{s.groups, s.out_channels_per_group(), s.in_channels_per_group(), s.kernel_h, s.kernel_w},
          Type::f32,
          Tag::goihw};
}
memory::desc given_bias(const Conv2dShape& s) { return {{s.out_channels}, Type::f32, Tag::x}; }

// ... and as oneDNN is asked for them: operands of a type, weights in the layout of its choice.
memory::desc as_operand(const memory::desc& given, Type type) {
  return {dims_of(given), type, Tag::nhwc};
}
memory::desc any_weights(const Conv2dShape& s, Type type) {
  return {dims_of(given_weights(s)), type, Tag::any};
}

Type operand_type(MatmulPrecision precision) {
  return precision == MatmulPrecision::kBf16 ? Type::bf16 : Type::f32;
}

struct Geometry {
  memory::dims strides, dilation, padding;
};
Geometry geometry(const Conv2dShape& s) {
  return {{s.stride_h, s.stride_w}, {s.dilation_h - 1, s.dilation_w - 1}, {s.pad_h, s.pad_w}};
}

dnnl::convolution_forward::primitive_desc forward_desc(const Conv2dShape& s, Type type,
                                                       const memory::desc& y, bool has_bias) {
  const Geometry g = geometry(s);
  const memory::desc x = as_operand(given_input(s), type), w = any_weights(s, type);
  constexpr auto kProp = dnnl::prop_kind::forward_training;
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
  if (has_bias) {
    return describe<dnnl::convolution_forward>(kProp, kAlgorithm, x, w, given_bias(s), y, g.strides,
                                               g.dilation, g.padding, g.padding);
  }
  return describe<dnnl::convolution_forward>(kProp, kAlgorithm, x, w, y, g.strides, g.dilation,
                                             g.padding, g.padding);
}

ConvPrimitive make_forward(const Conv2dShape& s, Type type, bool has_bias) {
  const auto desc = forward_desc(s, type, given_output(s), has_bias);
  return {dnnl::convolution_forward(desc),
          reorder_between(given_input(s), desc.src_desc()),
          reorder_between(given_weights(s), desc.weights_desc()),
          {},
          desc.src_desc(),
          desc.weights_desc(),
          desc.dst_desc(),
          desc.scratchpad_desc()};
}

ConvPrimitive make_backward_input(const Conv2dShape& s, Type type) {
  const Geometry g = geometry(s);
  const memory::desc grad_y = as_operand(given_output(s), type);
  const auto desc = describe_backward<dnnl::convolution_backward_data>(
      forward_desc(s, type, grad_y, false), dnnl::algorithm::convolution_direct, given_input(s),
      any_weights(s, type), grad_y, g.strides, g.dilation, g.padding, g.padding);
  return {dnnl::convolution_backward_data(desc),
          {},
          reorder_between(given_weights(s), desc.weights_desc()),
          reorder_between(given_output(s), desc.diff_dst_desc()),
          desc.diff_src_desc(),
          desc.weights_desc(),
          desc.diff_dst_desc(),
          desc.scratchpad_desc()};
}

dnnl::convolution_backward_weights::primitive_desc backward_weights_desc(const Conv2dShape& s,
                                                                         Type type, bool has_bias) {
  const Geometry g = geometry(s);
  const memory::desc x = as_operand(given_input(s), type), w = any_weights(s, Type::f32);
  const memory::desc grad_y = as_operand(given_output(s), type);
  const auto forward = forward_desc(s, type, grad_y, has_bias);
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
  if (has_bias) {
    return describe_backward<dnnl::convolution_backward_weights>(forward, kAlgorithm, x, w,
                                                                 given_bias(s), grad_y, g.strides,
                                                                 g.dilation, g.padding, g.padding);
  }
  return describe_backward<dnnl::convolution_backward_weights>(
      forward, kAlgorithm, x, w, grad_y, g.strides, g.dilation, g.padding, g.padding);
}

ConvPrimitive make_backward_weight(const Conv2dShape& s, Type type, bool has_bias) {
  const auto desc = backward_weights_desc(s, type, has_bias);
  return {dnnl::convolution_backward_weights(desc),
          reorder_between(given_input(s), desc.src_desc()),
          reorder_between(desc.diff_weights_desc(), given_weights(s)),
          reorder_between(given_output(s), desc.diff_dst_desc()),
          desc.src_desc(),
          desc.diff_weights_desc(),
          desc.diff_dst_desc(),
          desc.scratchpad_desc()};
}

// One cache per process: creating a primitive compiles code, which takes longer than running it.
PrimitiveCache<ConvPrimitive>& cache() {
  static PrimitiveCache<ConvPrimitive> primitives;
  return primitives;
}

PrimitiveKey key_of(const Conv2dShape& s, Kind kind, MatmulPrecision precision) {
  return conv_key(s, 2 * kind + (precision == MatmulPrecision::kBf16 ? 1 : 0));
}

memory input_of(const ConvPrimitive& conv, const Conv2dShape& s, const float* x) {
  return reordered(conv.input_reorder, given_input(s), conv.input, x, Scratch::kSource);
}
memory weights_of(const ConvPrimitive& conv, const Conv2dShape& s, const float* w) {
  return reordered(conv.weights_reorder, given_weights(s), conv.weights, w, Scratch::kWeights);
}
memory output_of(const ConvPrimitive& conv, const Conv2dShape& s, const float* grad_y) {
  return reordered(conv.output_reorder, given_output(s), conv.output, grad_y,
                   Scratch::kDestination);
}

void execute(const ConvPrimitive& conv, std::unordered_map<int, memory>& arguments) {
  arguments.emplace(DNNL_ARG_SCRATCHPAD, scratch_memory(Scratch::kScratchpad, conv.scratchpad));
  conv.primitive.execute(cpu_stream(), arguments);
}

}  // namespace

void conv2d_forward(MatmulPrecision precision, const Conv2dShape& s, const float* x, const float* w,
                    const float* bias, float* y) {
  const bool has_bias = bias != nullptr;
  const auto conv = cache().get(key_of(s, has_bias ? kForwardBias : kForward, precision),
                                [&] { return make_forward(s, operand_type(precision), has_bias); });
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, input_of(*conv, s, x)},
                                            {DNNL_ARG_WEIGHTS, weights_of(*conv, s, w)},
                                            {DNNL_ARG_DST, wrap(conv->output, y)}};
  if (has_bias) arguments.emplace(DNNL_ARG_BIAS, wrap(given_bias(s), bias));
  execute(*conv, arguments);
}

void conv2d_backward_input(MatmulPrecision precision, const Conv2dShape& s, const float* grad_y,
                           const float* w, float* grad_x) {
  const auto conv = cache().get(key_of(s, kBackwardInput, precision),
                                [&] { return make_backward_input(s, operand_type(precision)); });
  std::unordered_map<int, memory> arguments{{DNNL_ARG_DIFF_DST, output_of(*conv, s, grad_y)},
                                            {DNNL_ARG_WEIGHTS, weights_of(*conv, s, w)},
                                            {DNNL_ARG_DIFF_SRC, wrap(conv->input, grad_x)}};
  execute(*conv, arguments);
}

void conv2d_backward_weight(MatmulPrecision precision, const Conv2dShape& s, const float* x,
                            const float* grad_y, float* grad_w, float* grad_bias) {
  const bool has_bias = grad_bias != nullptr;
  const auto conv =
      cache().get(key_of(s, has_bias ? kBackwardWeightBias : kBackwardWeight, precision),
                  [&] { return make_backward_weight(s, operand_type(precision), has_bias); });
  memory ours = wrap(given_weights(s), grad_w);
  memory weights = conv->weights_reorder ? scratch_memory(Scratch::kWeights, conv->weights) : ours;
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, input_of(*conv, s, x)},
                                            {DNNL_ARG_DIFF_DST, output_of(*conv, s, grad_y)},
                                            {DNNL_ARG_DIFF_WEIGHTS, weights}};
  if (has_bias) arguments.emplace(DNNL_ARG_DIFF_BIAS, wrap(given_bias(s), grad_bias));
  execute(*conv, arguments);
  if (conv->weights_reorder) conv->weights_reorder->execute(cpu_stream(), weights, ours);
}

}  // namespace steelyard::kernels::onednn
