#include <optional>
#include <unordered_map>

#include "steelyard/kernels/cpu/onednn/context.h"
#include "steelyard/kernels/cpu/onednn/describe.h"
#include "steelyard/kernels/cpu/onednn/kernels.h"

namespace steelyard::kernels::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

enum Kind { kForward, kForwardBias, kBackwardInput, kBackwardWeight };

// A convolution with the reorders that bring what it reads or writes from or into our dense float32
// layouts: NHWC, and OIHW for the weights. A reorder that is absent is not needed.
struct ConvPrimitive {
  dnnl::primitive primitive;
  std::optional<dnnl::reorder> input_reorder, weights_reorder, output_reorder;
  memory::desc input, weights, output, scratchpad;
};

// The description for oneDNN, which chooses the layout of the weights.
memory::desc any_weights(const Conv2dShape& s, Type type) {
  return {dims_of(weights_desc(s, type)), type, Tag::any};
}

Type operand_type(MatmulPrecision precision) {
  return precision == MatmulPrecision::kBf16 ? Type::bf16 : Type::f32;
}

// Without a bias the description is empty.
memory::desc bias_desc(const Conv2dShape& s, bool has_bias) {
  return has_bias ? memory::desc({s.out_channels}, Type::f32, Tag::x) : memory::desc();
}

dnnl::convolution_forward::primitive_desc forward_desc(const Conv2dShape& s, Type type,
                                                       Type output_type, bool has_bias) {
  const ConvGeometry g(s);
  return describe<dnnl::convolution_forward>(
      dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, input_desc(s, type),
      any_weights(s, type), bias_desc(s, has_bias), output_desc(s, output_type), g.strides,
      g.dilation, g.padding, g.padding);
}

ConvPrimitive make_forward(const Conv2dShape& s, Type type, bool has_bias) {
  const auto desc = forward_desc(s, type, Type::f32, has_bias);
  return {dnnl::convolution_forward(desc),
          reorder_between(input_desc(s, Type::f32), desc.src_desc()),
          reorder_between(weights_desc(s, Type::f32), desc.weights_desc()),
          {},
          desc.src_desc(),
          desc.weights_desc(),
          desc.dst_desc(),
          desc.scratchpad_desc()};
}

ConvPrimitive make_backward_input(const Conv2dShape& s, Type type) {
  const ConvGeometry g(s);
  const auto desc = describe_backward<dnnl::convolution_backward_data>(
      forward_desc(s, type, type, false), dnnl::algorithm::convolution_direct,
      input_desc(s, Type::f32), any_weights(s, type), output_desc(s, type), g.strides, g.dilation,
      g.padding, g.padding);
  return {dnnl::convolution_backward_data(desc),
          {},
          reorder_between(weights_desc(s, Type::f32), desc.weights_desc()),
          {},
          desc.diff_src_desc(),
          desc.weights_desc(),
          desc.diff_dst_desc(),
          desc.scratchpad_desc()};
}

ConvPrimitive make_backward_weight(const Conv2dShape& s, Type type) {
  const ConvGeometry g(s);
  const auto desc = describe_backward<dnnl::convolution_backward_weights>(
      forward_desc(s, type, type, false), dnnl::algorithm::convolution_direct, input_desc(s, type),
      any_weights(s, Type::f32), output_desc(s, type), g.strides, g.dilation, g.padding, g.padding);
  return {dnnl::convolution_backward_weights(desc),
          reorder_between(input_desc(s, Type::f32), desc.src_desc()),
          reorder_between(desc.diff_weights_desc(), weights_desc(s, Type::f32)),
          reorder_between(output_desc(s, Type::f32), desc.diff_dst_desc()),
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
  return reordered(conv.input_reorder, input_desc(s, Type::f32), conv.input, x, Scratch::kSource);
}
memory weights_of(const ConvPrimitive& conv, const Conv2dShape& s, const float* w) {
  return reordered(conv.weights_reorder, weights_desc(s, Type::f32), conv.weights, w,
                   Scratch::kWeights);
}
memory output_of(const ConvPrimitive& conv, const Conv2dShape& s, const float* grad_y) {
  return reordered(conv.output_reorder, output_desc(s, Type::f32), conv.output, grad_y,
                   Scratch::kDestination);
}

void execute(const ConvPrimitive& conv, std::unordered_map<int, memory>& arguments) {
  arguments.emplace(DNNL_ARG_SCRATCHPAD, scratch_memory(Scratch::kScratchpad, conv.scratchpad));
  conv.primitive.execute(cpu_stream(), arguments);
}

// The gradient is as precise as the products.
template <typename Gradient>
void backward_input(const Conv2dBackwardInput<float, Gradient>& k, MatmulPrecision precision) {
  const Conv2dShape& s = k.shape;
  const auto conv = cache().get(key_of(s, kBackwardInput, precision),
                                [&] { return make_backward_input(s, operand_type(precision)); });
  std::unordered_map<int, memory> arguments{{DNNL_ARG_DIFF_DST, wrap(conv->output, k.grad_y)},
                                            {DNNL_ARG_WEIGHTS, weights_of(*conv, s, k.w)},
                                            {DNNL_ARG_DIFF_SRC, wrap(conv->input, k.grad_x)}};
  execute(*conv, arguments);
}

}  // namespace

void compute(const Conv2d<float>& k) {
  const Conv2dShape& s = k.shape;
  const bool has_bias = k.bias != nullptr;
  const auto conv =
      cache().get(key_of(s, has_bias ? kForwardBias : kForward, k.products.precision),
                  [&] { return make_forward(s, operand_type(k.products.precision), has_bias); });
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, input_of(*conv, s, k.x)},
                                            {DNNL_ARG_WEIGHTS, weights_of(*conv, s, k.w)},
                                            {DNNL_ARG_DST, wrap(conv->output, k.y)}};
  if (has_bias) arguments.emplace(DNNL_ARG_BIAS, wrap(bias_desc(s, true), k.bias));
  execute(*conv, arguments);
}

void compute(const Conv2dBackwardInput<float>& k) { backward_input(k, MatmulPrecision::kFloat32); }
void compute(const Conv2dBackwardInput<float, BFloat16>& k) {
  backward_input(k, MatmulPrecision::kBf16);
}

void compute(const Conv2dBackwardWeight<float>& k) {
  const Conv2dShape& s = k.shape;
  const auto conv = cache().get(key_of(s, kBackwardWeight, k.products.precision), [&] {
    return make_backward_weight(s, operand_type(k.products.precision));
  });
  memory ours = wrap(weights_desc(s, Type::f32), k.grad_w);
  memory weights = conv->weights_reorder ? scratch_memory(Scratch::kWeights, conv->weights) : ours;
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, input_of(*conv, s, k.x)},
                                            {DNNL_ARG_DIFF_DST, output_of(*conv, s, k.grad_y)},
                                            {DNNL_ARG_DIFF_WEIGHTS, weights}};
  execute(*conv, arguments);
  if (conv->weights_reorder) conv->weights_reorder->execute(cpu_stream(), weights, ours);
}

}  // namespace steelyard::kernels::onednn
