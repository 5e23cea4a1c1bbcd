// Parts that the operations share: error messages, argument checks and attribute text.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <string>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/op_messages.h"  // IWYU pragma: export
#include "steelyard/framework/tensor/on_device.h"

namespace steelyard::ops {

inline void require_defined(const char* op, const char* what, const Variable& v) {
  if (!v.defined()) fail(op, what, "an undefined variable");
}
inline void require_defined(const char* op, const char* what, const Tensor& t) {
  if (!t.defined()) fail(op, what, "an undefined tensor");
}

// `v` must have the dtype of `x`; an undefined `v` (an absent bias) passes.
inline void require_same_dtype(const char* op, const char* what, const Variable& x,
                               const Variable& v) {
  if (v.defined() && v.dtype() != x.dtype()) {
    if (!is_floating(x.dtype()))
      fail(op, "an input f32 or f64", std::string(dtype_name(x.dtype())));
    fail(op, std::string(what) + " of dtype " + std::string(dtype_name(x.dtype())),
         std::string(dtype_name(v.dtype())));
  }
}

// `v`, when defined, must be a vector of `size` elements.
inline void require_vector(const char* op, const char* what, std::int64_t size, const Variable& v) {
  if (v.defined() && v.shape() != Shape{size}) {
    fail(op, what + (" [" + std::to_string(size) + "]"), shape_string(v.shape()));
  }
}

// The shortest text that reads back as the same double.
inline std::string number_text(double value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace steelyard::ops
