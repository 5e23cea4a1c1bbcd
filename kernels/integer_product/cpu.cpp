#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>

#include "steelyard/kernels/cpu/onednn/kernels.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/integer_product/reference.h"
#include "steelyard/kernels/integer_product/terms.h"

namespace steelyard::kernels {

// Emitted by their families.
extern template void run(const Matmul<float>&);
extern template void run(const Conv2d<float>&);

namespace {

constexpr std::int64_t kGrain = 16384;

// True where every sum of `outputs` rows of w is exact in float32 whatever the order of addition:
// max|q_x - z| * sum_k|w_ok| < 2^24 for each row.
template <typename Code>
bool is_exact_in_float(std::int64_t outputs, std::int64_t terms, std::int32_t x_zero_point,
                       const std::int8_t* w) {
  using Limits = std::numeric_limits<Code>;
  const std::int64_t largest =
      std::max<std::int64_t>(Limits::max() - x_zero_point, x_zero_point - Limits::min());
  for (std::int64_t o = 0; o < outputs; ++o) {
    std::int64_t sum = 0;
    for (std::int64_t k = 0; k < terms; ++k) sum += std::abs(w[o * terms + k]);
    if (largest * sum >= std::int64_t{1} << 24) return false;
  }
  return true;
}

// The integers values[i] - offset as floats.
template <typename From>
std::unique_ptr<float[]> to_float(std::int64_t n, const From* values, std::int32_t offset) {
  auto out = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(n));
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    STEELYARD_VECTORIZE
    for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<float>(values[i] - offset);
  });
  return out;
}

void to_integer(std::int64_t n, const float* values, std::int32_t* out) {
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    STEELYARD_VECTORIZE
    for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<std::int32_t>(values[i]);
  });
}

// The product on float operands that hold integers; exact where is_exact_in_float().
template <typename Code>
void by_floats(const IntegerConv2d<Code>& k) {
  const Conv2dShape& s = k.shape;
  const auto x = to_float(s.input_size(), k.x, *k.zero_point);
  const auto w = to_float(s.weight_size(), k.w, 0);
  const auto y = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(s.output_size()));
  if (is_matrix_product(s)) {
    run(Matmul<float>{
        .shape = {.m = s.batch, .n = s.out_channels, .k = s.in_channels, .transpose_b = true},
        .a = x.get(),
        .b = w.get(),
        .c = y.get(),
        .products = k.backend});
  } else {
    run(Conv2d<float>{.shape = s,
                      .x = x.get(),
                      .w = w.get(),
                      .bias = nullptr,
                      .y = y.get(),
                      .products = k.backend});
  }
  to_integer(s.output_size(), y.get(), k.acc);
}

template <typename Code>
void multiply(const IntegerConv2d<Code>& k) {
  const Conv2dShape& s = k.shape;
  const std::int64_t terms = s.in_channels_per_group() * s.kernel_h * s.kernel_w;
  const bool by_library = k.backend == Backend::kOneDnn;
  if (by_library && onednn::has_exact_int8()) {
    onednn::compute(k);
  } else if (s.is_depthwise()) {
    reference::compute_depthwise(k);
  } else if (by_library && is_exact_in_float<Code>(s.out_channels, terms, *k.zero_point, k.w)) {
    by_floats(k);
  } else {
    reference::compute(k);
  }
}

}  // namespace

template <typename Code>
void compute(const IntegerMatmul<Code>& k) {
  check_terms("integer_matmul", k.k, k.largest);
  if (k.m == 0 || k.n == 0) return;
  if (k.k == 0) {
    std::fill_n(k.acc, k.m * k.n, 0);
  } else {
    multiply(as_conv(k));
  }
}

template <typename Code>
void compute(const IntegerConv2d<Code>& k) {
  const Conv2dShape& s = k.shape;
  check_terms("integer_conv2d", s.in_channels_per_group() * s.kernel_h * s.kernel_w, k.largest);
  if (s.output_size() > 0) multiply(k);
}

template struct CpuKernels<IntegerProductKernels>;

}  // namespace steelyard::kernels
