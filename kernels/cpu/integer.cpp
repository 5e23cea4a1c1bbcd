#include "steelyard/kernels/integer.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "steelyard/kernels/cpu/integer_reference.h"
#include "steelyard/kernels/cpu/onednn/integer.h"
#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/integer_terms.h"
#include "steelyard/kernels/matmul.h"

namespace steelyard::kernels {
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

// The products on float operands that hold integers; exact where is_exact_in_float().
template <typename Code>
void float_matmul(std::int64_t m, std::int64_t n, std::int64_t k, const Code* x,
                  std::int32_t x_zero_point, const std::int8_t* w, std::int32_t* acc) {
  const auto x_float = to_float(m * k, x, x_zero_point);
  const auto w_float = to_float(n * k, w, 0);
  const auto y = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(m * n));
  matmul<float>(Backend::kOneDnn, {m, n, k, false, true}, x_float.get(), w_float.get(), y.get());
  to_integer(m * n, y.get(), acc);
}

template <typename Code>
void float_conv2d(const Conv2dShape& shape, const Code* x, std::int32_t x_zero_point,
                  const std::int8_t* w, std::int32_t* acc) {
  const std::int64_t size = shape.output_size();
  const auto x_float = to_float(shape.input_size(), x, x_zero_point);
  const auto w_float = to_float(shape.weight_size(), w, 0);
  const auto y = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(size));
  conv2d_forward<float>(Backend::kOneDnn, shape, x_float.get(), w_float.get(), nullptr, y.get());
  to_integer(size, y.get(), acc);
}

}  // namespace

template <typename Code>
void integer_matmul(Backend backend, std::int64_t m, std::int64_t n, std::int64_t k, const Code* x,
                    const std::int32_t* zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest) {
  check_terms("integer_matmul", k, largest);
  if (m == 0 || n == 0) return;
  if (k == 0) {
    std::fill(acc, acc + m * n, 0);
    return;
  }
  const std::int32_t x_zero_point = *zero_point;
  if (backend == Backend::kOneDnn && onednn::has_exact_int8()) {
    onednn::integer_matmul(m, n, k, x, x_zero_point, w, acc);
  } else if (backend == Backend::kOneDnn && is_exact_in_float<Code>(n, k, x_zero_point, w)) {
    float_matmul(m, n, k, x, x_zero_point, w, acc);
  } else {
    reference::integer_matmul(m, n, k, x, x_zero_point, w, acc);
  }
}

template <typename Code>
void integer_conv2d(Backend backend, const Conv2dShape& shape, const Code* x,
                    const std::int32_t* zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest) {
  const std::int64_t terms = shape.in_channels_per_group() * shape.kernel_h * shape.kernel_w;
  check_terms("integer_conv2d", terms, largest);
  if (shape.output_size() == 0) return;
  const std::int32_t x_zero_point = *zero_point;
  if (backend == Backend::kOneDnn && onednn::has_exact_int8()) {
    onednn::integer_conv2d(shape, x, x_zero_point, w, acc);
  } else if (shape.is_depthwise()) {
    reference::integer_depthwise_conv2d(shape, x, x_zero_point, w, acc);
  } else if (backend == Backend::kOneDnn &&
             is_exact_in_float<Code>(shape.out_channels, terms, x_zero_point, w)) {
    float_conv2d(shape, x, x_zero_point, w, acc);
  } else {
    reference::integer_conv2d(shape, x, x_zero_point, w, acc);
  }
}

template <typename Code>
void integer_matmul(std::int64_t m, std::int64_t n, std::int64_t k, const Code* x,
                    const std::int32_t* x_zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest) {
  integer_matmul(default_backend(), m, n, k, x, x_zero_point, w, acc, largest);
}

template <typename Code>
void integer_conv2d(const Conv2dShape& shape, const Code* x, const std::int32_t* x_zero_point,
                    const std::int8_t* w, std::int32_t* acc, std::int64_t largest) {
  integer_conv2d(default_backend(), shape, x, x_zero_point, w, acc, largest);
}

#define STEELYARD_INSTANTIATE(Code)                                                            \
  template void integer_matmul(Backend, std::int64_t, std::int64_t, std::int64_t, const Code*, \
                               const std::int32_t*, const std::int8_t*, std::int32_t*,         \
                               std::int64_t);                                                  \
  template void integer_conv2d(Backend, const Conv2dShape&, const Code*, const std::int32_t*,  \
                               const std::int8_t*, std::int32_t*, std::int64_t);               \
  template void integer_matmul(std::int64_t, std::int64_t, std::int64_t, const Code*,          \
                               const std::int32_t*, const std::int8_t*, std::int32_t*,         \
                               std::int64_t);                                                  \
  template void integer_conv2d(const Conv2dShape&, const Code*, const std::int32_t*,           \
                               const std::int8_t*, std::int32_t*, std::int64_t);
STEELYARD_INSTANTIATE(std::int8_t)
STEELYARD_INSTANTIATE(std::uint8_t)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
