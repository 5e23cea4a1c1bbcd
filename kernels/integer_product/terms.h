// What both devices ask of an integer product. Private to this family and integer_groups.
#pragma once

#include <stdexcept>
#include <string>

#include "steelyard/kernels/integer_product/integer_product.h"

namespace steelyard::kernels {

// Throws std::invalid_argument where partial sums of `terms` products of at most `largest` could
// leave int32.
inline void check_terms(const char* op, std::int64_t terms, std::int64_t largest) {
  const std::int64_t most = most_terms(largest);
  if (terms <= most) return;
  throw std::invalid_argument(std::string("[") + op + "] expected at most " + std::to_string(most) +
                              " products per sum (int32), got " + std::to_string(terms));
}

// A product of matrices as a 1x1 convolution of m images of one pixel.
template <typename Code>
IntegerConv2d<Code> as_conv(const IntegerMatmul<Code>& k) {
  return {.shape = {.batch = k.m, .in_h = 1, .in_w = 1, .in_channels = k.k, .out_channels = k.n},
          .x = k.x,
          .zero_point = k.zero_point,
          .w = k.w,
          .acc = k.acc,
          .largest = k.largest,
          .backend = k.backend,
          .kept = k.kept,
          .ordered = k.ordered};
}

}  // namespace steelyard::kernels
