// Describes primitives to oneDNN 2 and to oneDNN 3, whose interfaces differ: version 2 builds a
// primitive_desc from an operation's `desc`, version 3 from the same arguments directly, with the
// engine first and the forward hint before the attributes. Nothing else here knows the version.
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

// The same for the backward pass of what `forward` describes.
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

}  // namespace steelyard::kernels::onednn
