// Sizes that kernels divide many places by.
#pragma once

#include <bit>
#include <cstdint>

#include "steelyard/kernels/host_device.h"

namespace steelyard::kernels::cuda {

__extension__ using UInt128 = unsigned __int128;

// The upper half of a product.
STEELYARD_HOST_DEVICE inline std::uint64_t high_product(std::uint64_t a, std::uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<std::uint64_t>(static_cast<UInt128>(a) * b >> 64);
#endif
}

// A size that many values, none of them negative, are divided by: each by a product, a sum and a
// shift, which takes a GPU half as many instructions as a division (Granlund and Montgomery,
// "Division by Invariant Integers using Multiplication", 1994, figure 4.1).
class Divisor {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): it is a size, too.
  Divisor(std::int64_t by) : by_(by) {
    if (by < 1) return;  // of an empty array: nothing is divided
    const auto divisor = static_cast<std::uint64_t>(by);
    shift_ = std::bit_width(divisor - 1);
    const UInt128 rest = (UInt128{1} << shift_) - divisor;
    factor_ = static_cast<std::uint64_t>((rest << 64) / divisor + 1);
  }

  // NOLINTNEXTLINE(google-explicit-constructor)
  STEELYARD_HOST_DEVICE operator std::int64_t() const { return by_; }

  STEELYARD_HOST_DEVICE std::int64_t divide(std::int64_t value) const {
    const auto n = static_cast<std::uint64_t>(value);
    return static_cast<std::int64_t>((high_product(n, factor_) + n) >> shift_);
  }

 private:
  std::int64_t by_;
  std::uint64_t factor_ = 0;
  int shift_ = 0;
};

STEELYARD_HOST_DEVICE inline std::int64_t divide(std::int64_t value, const Divisor& by) {
  return by.divide(value);
}

// A Divisor for a size and values below 2^31: a third of the instructions.
class SmallDivisor {
 public:
  explicit SmallDivisor(std::int64_t by) : by_(static_cast<std::int32_t>(by)) {
    if (by < 1) return;
    const auto divisor = static_cast<std::uint64_t>(by);
    shift_ = std::bit_width(divisor - 1);
    const std::uint64_t rest = (std::uint64_t{1} << shift_) - divisor;
    factor_ = static_cast<std::uint32_t>((rest << 32) / divisor + 1);
  }

  // NOLINTNEXTLINE(google-explicit-constructor): it is a size, too.
  STEELYARD_HOST_DEVICE operator std::int32_t() const { return by_; }

  STEELYARD_HOST_DEVICE std::int32_t divide(std::int32_t value) const {
    const auto n = static_cast<std::uint32_t>(value);
#ifdef __CUDA_ARCH__
    const std::uint32_t high = __umulhi(n, factor_);
#else
    const auto high = static_cast<std::uint32_t>(std::uint64_t{n} * factor_ >> 32);
#endif
    return static_cast<std::int32_t>((high + n) >> shift_);
  }

 private:
  std::int32_t by_;
  std::uint32_t factor_ = 0;
  int shift_ = 0;
};

STEELYARD_HOST_DEVICE inline std::int32_t divide(std::int32_t value, const SmallDivisor& by) {
  return by.divide(value);
}

}  // namespace steelyard::kernels::cuda
