// Values of one type as another.
#pragma once

#include <type_traits>

#include "steelyard/kernels/run.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels {

// y = x: from and to float, double and std::int32_t, Half and BFloat16 from and to floating types.
// Rounds once, to the nearest; to std::int32_t it cuts the fraction off.
template <typename From, typename To>
struct Convert {
  std::int64_t n;
  const From* x;
  To* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    if constexpr (std::is_same_v<From, std::int32_t>) {
      y[i] = static_cast<To>(x[i]);
    } else if constexpr (std::is_arithmetic_v<To>) {
      y[i] = static_cast<To>(widen(x[i]));
    } else {
      y[i] = narrow_once<To>(static_cast<double>(widen(x[i])));
    }
  }
};

template <typename From, typename... To>
using ConvertedTo = KernelList<Convert<From, To>...>;
using ConvertKernels = JoinedKernels<ConvertedTo<float, double, std::int32_t, Half, BFloat16>,
                                     ConvertedTo<double, float, std::int32_t, Half, BFloat16>,
                                     ConvertedTo<std::int32_t, float, double>,
                                     ConvertedTo<Half, float, double, BFloat16>,
                                     ConvertedTo<BFloat16, float, double, Half>>;

}  // namespace steelyard::kernels
