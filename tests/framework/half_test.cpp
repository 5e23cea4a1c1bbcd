#include "steelyard/framework/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "steelyard/framework/tensor.h"

namespace steelyard {
namespace {

template <typename Format>
class HalfTest : public ::testing::Test {};
using Formats = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(HalfTest, Formats);

TYPED_TEST(HalfTest, EveryFinitePatternSurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const double value = TypeParam::decode(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(TypeParam::decode(TypeParam::encode(value))));
    } else {
      ASSERT_EQ(TypeParam::encode(value), bits) << value;
    }
  }
}

// Between neighbours a and b: below the middle gives a, above gives b, the middle the even one.
TYPED_TEST(HalfTest, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits + 1 < TypeParam::kInfinity; ++bits) {
    const double a = TypeParam::decode(static_cast<std::uint16_t>(bits));
    const double b = TypeParam::decode(static_cast<std::uint16_t>(bits + 1));
    const double middle = (a + b) / 2;
    ASSERT_EQ(TypeParam::encode(std::nextafter(middle, 0.0)), bits);
    ASSERT_EQ(TypeParam::encode(std::nextafter(middle, b)), bits + 1);
    ASSERT_EQ(TypeParam::encode(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(TypeParam::encode(-middle), 0x8000 + (bits % 2 == 0 ? bits : bits + 1));
  }
}

TYPED_TEST(HalfTest, OverflowsToInfinityAndUnderflowsToZero) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(TypeParam::encode(infinity), TypeParam::kInfinity);
  EXPECT_EQ(TypeParam::encode(-1e300), 0x8000 | TypeParam::kInfinity);
  EXPECT_EQ(TypeParam::encode(std::numeric_limits<double>::denorm_min()), 0);
  EXPECT_EQ(TypeParam::encode(-1e-300), 0x8000);
}

TEST(HalfValues, MatchTheStandard) {
  EXPECT_EQ(Half::decode(0x3C00), 1.0);
  EXPECT_EQ(Half::decode(0x7BFF), 65504.0);
  EXPECT_EQ(Half::decode(0x0001), 0x1p-24);
  EXPECT_EQ(Half::encode(65519.99), 0x7BFF);
  EXPECT_EQ(Half::encode(65520.0), 0x7C00);
  EXPECT_EQ(BFloat16::decode(0x3F80), 1.0);
  EXPECT_EQ(BFloat16::decode(0x7F7F), 0x1.FEp127);
}

TEST(HalfTensors, ConvertBothWays) {
  const Tensor values = Tensor::from<float>({0.0F, -1.5F, 0.1F, 3e38F}, {2, 2});
  const Tensor half = values.to(DType::kF16);
  EXPECT_EQ(half.dtype(), DType::kF16);
  const Tensor back = half.to(DType::kF32);
  EXPECT_EQ(back.shape(), values.shape());
  EXPECT_EQ(back.span<float>()[1], -1.5F);
  EXPECT_NEAR(back.span<float>()[2], 0.1F, 0.1 * 0x1p-11);
  EXPECT_TRUE(std::isinf(back.span<float>()[3]));
  const Tensor twice = half.to(DType::kBF16).to(DType::kF64);
  EXPECT_NEAR(twice.span<double>()[2], 0.1, 0.1 * 0x1p-8);
  EXPECT_THROW(half.to(DType::kI32), std::invalid_argument);
  EXPECT_THROW(Tensor::zeros({2}, DType::kI8).to(DType::kBF16), std::invalid_argument);
}

}  // namespace
}  // namespace steelyard
