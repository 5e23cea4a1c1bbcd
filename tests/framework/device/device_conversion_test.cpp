// Tensor::to(dtype) on a GPU against the CPU.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "steelyard/kernels/value_type.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace steelyard::testing {
namespace {

using kernels::BFloat16;
using kernels::Half;
using ConversionOnCuda = WithCudaDevice;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

template <typename V>
double decoded(std::uint32_t bits) {
  return static_cast<double>(kernels::widen(V{static_cast<std::uint16_t>(bits)}));
}

// Values around every binary16 and bfloat16 rounding border of some sizes, both signs, and those
// beyond the largest and below the smallest.
Tensor border_values() {
  std::vector<double> all{0.0,
                          -0.0,
                          1e300,
                          -1e300,
                          1e-300,
                          65504,
                          65519.99,
                          65520,
                          3.3895e38,
                          3.4e38,
                          std::numeric_limits<double>::infinity()};
  for (std::uint32_t bits = 1; bits < 0x7C00; bits += 37) {
    const double a = decoded<Half>(bits);
    const double b = decoded<Half>(bits + 1);
    const double middle = (a + b) / 2;
    for (const double v : {a, middle, std::nextafter(middle, 0.0), std::nextafter(middle, b)}) {
      if (std::isfinite(v)) all.insert(all.end(), {v, -v});
    }
  }
  for (std::uint32_t bits = 1; bits < 0x7F80; bits += 41) {
    const double a = decoded<BFloat16>(bits);
    const double b = decoded<BFloat16>(bits + 1);
    const double middle = (a + b) / 2;
    for (const double v : {a, middle, std::nextafter(middle, 0.0), std::nextafter(middle, b)}) {
      if (std::isfinite(v)) all.insert(all.end(), {v, -v});
    }
  }
  const auto n = static_cast<std::int64_t>(all.size());
  return Tensor::from(all, {n});
}

TEST_F(ConversionOnCuda, RoundsAsTheCpuDoes) {
  const Tensor wide = border_values();
  const std::vector<DType> floating{DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
  for (const DType from : floating) {
    const Tensor x = wide.to(from);
    for (const DType to : floating) {
      const Tensor y = x.to(kCudaDevice).to(to);
      EXPECT_EQ(y.device(), kCudaDevice);
      EXPECT_TRUE(same_bits(y.to(kCpuDevice), x.to(to))) << dtype_name(from) << dtype_name(to);
    }
  }
}

TEST_F(ConversionOnCuda, NanStaysNan) {
  const Tensor x = Tensor::full({3}, std::numeric_limits<double>::quiet_NaN(), DType::kF64);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Tensor back = x.to(kCudaDevice).to(dtype).to(DType::kF64).to(kCpuDevice);
    for (const double value : back.span<double>()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_F(ConversionOnCuda, IntegersAndRareTypes) {
  const Tensor x = Tensor::from<double>({-3.7, 0, 2.5, 100.9}, {4});
  for (const DType dtype : {DType::kI32, DType::kI64, DType::kI8}) {
    const Tensor y = x.to(kCudaDevice).to(dtype);
    EXPECT_EQ(y.device(), kCudaDevice);
    EXPECT_TRUE(same_bits(y.to(kCpuDevice), x.to(dtype))) << dtype_name(dtype);
    for (const DType back : {DType::kF32, DType::kF64, DType::kI32}) {
      EXPECT_TRUE(same_bits(y.to(back).to(kCpuDevice), x.to(dtype).to(back)));
    }
  }
  EXPECT_EQ(Tensor::zeros({0}, DType::kF32, kCudaDevice).to(DType::kF16).size(), 0);
  EXPECT_THROW(Tensor::zeros({2}, DType::kI32, kCudaDevice).to(DType::kF16), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros({2}, DType::kBF16, kCudaDevice).to(DType::kI32),
               std::invalid_argument);
}

}  // namespace
}  // namespace steelyard::testing
