// Products of matrices of floats whose sums have one order, so that they are the same to the bit
// wherever they are computed.
#pragma once

#include <cstdint>

#include "steelyard/kernels/run.h"
#include "steelyard/kernels/watch.h"

namespace steelyard::kernels {

// y[b, r, c] = float(the sum of double(x[b, r, k]) * double(w[b, k, c]) over k in order, and then
// of bias[c]), added in double, in which a product of floats is exact. terms >= 1; on the CPU only.
struct OrderedProduct {
  std::int64_t batch = 1;
  std::int64_t rows, columns, terms;
  const float* x;                   // [batch, rows, terms]
  const float* w;                   // [batch, terms * columns]
  std::int64_t to_term, to_column;  // how far apart w's terms and its columns lie
  const float* bias = nullptr;      // [columns] or null
  float* y;                         // [batch, rows, columns]

  ProductWork work() const { return {.multiply_adds = batch * rows * columns * terms}; }
};

using OrderedProductKernels = KernelList<OrderedProduct>;

}  // namespace steelyard::kernels
