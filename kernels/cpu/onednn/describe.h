// Describes primitives to oneDNN 2 and to oneDNN 3, and what a convolution works on. Their
// interfaces differ: version 2 builds a primitive_desc from an operation's `desc`, version 3 from
// the same arguments directly, with the engine first and the forward hint before the attributes.
// Nothing else here knows the version.
#pragma once

#include <dnnl.hpp>

#include "steelyard/kernels/cpu/onednn/context.h"

namespace steelyard::kernels::onednn {

// The description of a Primitive with user-provided scratchpad memory. `arguments` are the
// operation's own, in oneDNN's order: memory::desc, memory::dims, algorithm, prop_kind.
template <typename Primitive, typename... Arguments>
typename Primitive::primitive_desc describe(const Arguments&... arguments) {
  if constexpr (requires { typename Primitive::desc; }) {
    return {typename Primitive::desc(arguments...), user_scratchpad(), cpu_engine()};
  } else {
    return {cpu_engine(), arguments..., user_scratchpad()};
  }
}

// Describes the backward pass of what `forward` describes.
template <typename Primitive, typename Forward, typename... Arguments>
typename Primitive::primitive_desc describe_backward(const Forward& forward,
                                                     const Arguments&... arguments) {
  if constexpr (requires { typename Primitive::desc; }) {
    return {typename Primitive::desc(arguments...), user_scratchpad(), cpu_engine(), forward};
  } else {
    return {cpu_engine(), arguments..., forward, user_scratchpad()};
  }
}

template <typename Desc>
dnnl::memory::dims dims_of(const Desc& desc) {
  if constexpr (requires { desc.get_dims(); }) {
    return desc.get_dims();
  } else {
    return desc.dims();
  }
}

// The tensors of a convolution in our dense layouts: NHWC, and OIHW for the weights.
inline dnnl::memory::desc input_desc(const Conv2dShape& s, dnnl::memory::data_type type) {
  return {{s.batch, s.in_channels, s.in_h, s.in_w}, type, dnnl::memory::format_tag::nhwc};
}
inline dnnl::memory::desc output_desc(const Conv2dShape& s, dnnl::memory::data_type type) {
  return {{s.batch, s.out_channels, s.out_h(), s.out_w()}, type, dnnl::memory::format_tag::nhwc};
}
inline dnnl::memory::desc weights_desc(const Conv2dShape& s, dnnl::memory::data_type type) {
  const std::int64_t inputs = s.in_channels_per_group(), outputs = s.out_channels_per_group();
  if (s.groups == 1) {
    return {{outputs, inputs, s.kernel_h, s.kernel_w}, type, dnnl::memory::format_tag::oihw};
  }
  return {
      {s.groups, outputs, inputs, s.kernel_h, s.kernel_w}, type, dnnl::memory::format_tag::goihw};
}

struct ConvGeometry {
  explicit ConvGeometry(const Conv2dShape& s)
      : strides{s.stride_h, s.stride_w},
        dilation{s.dilation_h - 1, s.dilation_w - 1},
        padding{s.pad_h, s.pad_w} {}

  dnnl::memory::dims strides, dilation, padding;
};

}  // namespace steelyard::kernels::onednn
