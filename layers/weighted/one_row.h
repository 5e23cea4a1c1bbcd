// Sequences as images of one row.
#pragma once

#include <stdexcept>
#include <string>

#include "steelyard/framework/ops/moves/permute.h"

namespace steelyard {

// f([N, 1, L, C]) of a sequence x [N, L, C], as a sequence again; `under_shape(x, shape)` gives
// values another shape. Throws std::invalid_argument, naming the layer, on x of another rank.
template <typename F, typename UnderShape>
Variable on_one_row(const std::string& layer, const Variable& x, F f, UnderShape under_shape) {
  if (x.shape().size() != 3) {
    throw std::invalid_argument("[" + layer + "] expected input [N, L, C], got " +
                                shape_string(x.shape()));
  }
  const Variable y = f(under_shape(x, {x.dim(0), 1, x.dim(1), x.dim(2)}));
  return under_shape(y, {y.dim(0), y.dim(2), y.dim(3)});
}

template <typename F>
Variable on_one_row(const std::string& layer, const Variable& x, F f) {
  return on_one_row(layer, x, f,
                    [](const Variable& v, const Shape& shape) { return reshape(v, shape); });
}

}  // namespace steelyard
