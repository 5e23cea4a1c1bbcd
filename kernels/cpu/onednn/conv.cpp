#include <optional>
#include <unordered_map>

#include "kernels/cpu/onednn/context.h"
#include "kernels/cpu/onednn_kernels.h"

namespace steelyard::kernels::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Type = memory::data_type;

enum Kind { kForward, kForwardBias, kBackwardInput, kBackwardWeight, kBackwardWeightBias };

// A convolution, and the reorder between our OIHW weights and the layout it chose (absent when
// that is OIHW itself): applied to the weights before, or to their gradient after.
struct ConvPrimitive {
  dnnl::primitive primitive;
  std::optional<dnnl::reorder> reorder;
  memory::desc plain_weights;
  memory::desc weights;
  memory::desc scratchpad;
};

memory::desc input_desc(const Conv2dShape& s) {
  return {{s.batch, s.in_channels, s.in_h, s.in_w}, Type::f32, Tag::nhwc};
}
memory::desc output_desc(const Conv2dShape& s) {
  return {{s.batch, s.out_channels, s.out_h(), s.out_w()}, Type::f32, Tag::nhwc};
}
memory::desc bias_desc(const Conv2dShape& s) { return {{s.out_channels}, Type::f32, Tag::x}; }

memory::desc weights_desc(const Conv2dShape& s, bool plain) {
  if (s.groups == 1) {
    return {{s.out_channels, s.in_channels, s.kernel_h, s.kernel_w},
            Type::f32,
            plain ? Tag::oihw : Tag::any};
  }
  return {{s.groups, s.out_channels_per_group(), s.in_channels_per_group(), s.kernel_h, s.kernel_w},
          Type::f32,
          plain ? Tag::goihw : Tag::any};
}

struct Geometry {
  memory::dims strides, dilation, padding;
};
Geometry geometry(const Conv2dShape& s) {
  return {{s.stride_h, s.stride_w}, {s.dilation_h - 1, s.dilation_w - 1}, {s.pad_h, s.pad_w}};
}

dnnl::convolution_forward::primitive_desc forward_desc(const Conv2dShape& s, bool has_bias) {
  const Geometry g = geometry(s);
  const memory::desc x = input_desc(s), w = weights_desc(s, false), y = output_desc(s);
  constexpr auto kProp = dnnl::prop_kind::forward_training;
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
  if (has_bias) {
    const memory::desc bias = bias_desc(s);
    return {{kProp, kAlgorithm, x, w, bias, y, g.strides, g.dilation, g.padding, g.padding},
            user_scratchpad(),
            cpu_engine()};
  }
  return {{kProp, kAlgorithm, x, w, y, g.strides, g.dilation, g.padding, g.padding},
          user_scratchpad(),
          cpu_engine()};
}

ConvPrimitive make_forward(const Conv2dShape& s, bool has_bias) {
  const auto desc = forward_desc(s, has_bias);
  ConvPrimitive conv{dnnl::convolution_forward(desc),
                     {},
                     weights_desc(s, true),
                     desc.weights_desc(),
                     desc.scratchpad_desc()};
  if (conv.weights != conv.plain_weights) {
    conv.reorder.emplace(dnnl::reorder::primitive_desc(cpu_engine(), conv.plain_weights,
                                                       cpu_engine(), conv.weights));
  }
  return conv;
}

ConvPrimitive make_backward_input(const Conv2dShape& s) {
  const Geometry g = geometry(s);
  const dnnl::convolution_backward_data::primitive_desc desc(
      {dnnl::algorithm::convolution_direct, input_desc(s), weights_desc(s, false), output_desc(s),
       g.strides, g.dilation, g.padding, g.padding},
      user_scratchpad(), cpu_engine(), forward_desc(s, false));
  ConvPrimitive conv{dnnl::convolution_backward_data(desc),
                     {},
                     weights_desc(s, true),
                     desc.weights_desc(),
                     desc.scratchpad_desc()};
  if (conv.weights != conv.plain_weights) {
    conv.reorder.emplace(dnnl::reorder::primitive_desc(cpu_engine(), conv.plain_weights,
                                                       cpu_engine(), conv.weights));
  }
  return conv;
}

dnnl::convolution_backward_weights::primitive_desc backward_weights_desc(const Conv2dShape& s,
                                                                         bool has_bias) {
  const Geometry g = geometry(s);
  const memory::desc x = input_desc(s), w = weights_desc(s, false), y = output_desc(s);
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
  if (has_bias) {
    const memory::desc bias = bias_desc(s);
    return {{kAlgorithm, x, w, bias, y, g.strides, g.dilation, g.padding, g.padding},
            user_scratchpad(),
            cpu_engine(),
            forward_desc(s, true)};
  }
  return {{kAlgorithm, x, w, y, g.strides, g.dilation, g.padding, g.padding},
          user_scratchpad(),
          cpu_engine(),
          forward_desc(s, false)};
}

ConvPrimitive make_backward_weight(const Conv2dShape& s, bool has_bias) {
  const auto desc = backward_weights_desc(s, has_bias);
  ConvPrimitive conv{dnnl::convolution_backward_weights(desc),
                     {},
                     weights_desc(s, true),
                     desc.diff_weights_desc(),
                     desc.scratchpad_desc()};
  if (conv.weights != conv.plain_weights) {
    conv.reorder.emplace(dnnl::reorder::primitive_desc(cpu_engine(), conv.weights, cpu_engine(),
                                                       conv.plain_weights));
  }
  return conv;
}

// One cache per process: creating a primitive compiles code, which takes longer than running it.
PrimitiveCache<ConvPrimitive>& cache() {
  static PrimitiveCache<ConvPrimitive> primitives;
  return primitives;
}

memory reordered_weights(const ConvPrimitive& conv, const float* w) {
  const memory plain = wrap(conv.plain_weights, w);
  if (!conv.reorder) return plain;
  const memory weights = scratch_memory(Scratch::kWeights, conv.weights);
  conv.reorder->execute(cpu_stream(), {{DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, weights}});
  return weights;
}

void execute(const ConvPrimitive& conv, std::unordered_map<int, memory>& arguments) {
  arguments.emplace(DNNL_ARG_SCRATCHPAD, scratch_memory(Scratch::kScratchpad, conv.scratchpad));
  conv.primitive.execute(cpu_stream(), arguments);
}

}  // namespace

void conv2d_forward(const Conv2dShape& s, const float* x, const float* w, const float* bias,
                    float* y) {
  const bool has_bias = bias != nullptr;
  const auto conv = cache().get(conv_key(s, has_bias ? kForwardBias : kForward),
                                [&] { return make_forward(s, has_bias); });
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, wrap(input_desc(s), x)},
                                            {DNNL_ARG_WEIGHTS, reordered_weights(*conv, w)},
                                            {DNNL_ARG_DST, wrap(output_desc(s), y)}};
  if (has_bias) arguments.emplace(DNNL_ARG_BIAS, wrap(bias_desc(s), bias));
  execute(*conv, arguments);
}

void conv2d_backward_input(const Conv2dShape& s, const float* grad_y, const float* w,
                           float* grad_x) {
  const auto conv =
      cache().get(conv_key(s, kBackwardInput), [&] { return make_backward_input(s); });
  std::unordered_map<int, memory> arguments{{DNNL_ARG_DIFF_DST, wrap(output_desc(s), grad_y)},
                                            {DNNL_ARG_WEIGHTS, reordered_weights(*conv, w)},
                                            {DNNL_ARG_DIFF_SRC, wrap(input_desc(s), grad_x)}};
  execute(*conv, arguments);
}

void conv2d_backward_weight(const Conv2dShape& s, const float* x, const float* grad_y,
                            float* grad_w, float* grad_bias) {
  const bool has_bias = grad_bias != nullptr;
  const auto conv = cache().get(conv_key(s, has_bias ? kBackwardWeightBias : kBackwardWeight),
                                [&] { return make_backward_weight(s, has_bias); });
  const memory plain = wrap(conv->plain_weights, grad_w);
  const memory weights = conv->reorder ? scratch_memory(Scratch::kWeights, conv->weights) : plain;
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, wrap(input_desc(s), x)},
                                            {DNNL_ARG_DIFF_DST, wrap(output_desc(s), grad_y)},
                                            {DNNL_ARG_DIFF_WEIGHTS, weights}};
  if (has_bias) arguments.emplace(DNNL_ARG_DIFF_BIAS, wrap(bias_desc(s), grad_bias));
  execute(*conv, arguments);
  if (conv->reorder) {
    conv->reorder->execute(cpu_stream(), {{DNNL_ARG_FROM, weights}, {DNNL_ARG_TO, plain}});
  }
}

}  // namespace steelyard::kernels::onednn
