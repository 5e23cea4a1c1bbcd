#include "steelyard/kernels/value_type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "tests/kernels/quant_plan/quant_reference.h"

namespace steelyard::kernels {
namespace {

TEST(NarrowFloats, EveryPatternWidensExactly) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const double half = reference::half_value(pattern);
    const double brain = reference::bfloat16_value(pattern);
    const float wide_half = widen(Half{pattern});
    const float wide_brain = widen(BFloat16{pattern});
    if (std::isnan(half)) {
      ASSERT_TRUE(std::isnan(wide_half)) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide_half),
                std::bit_cast<std::uint32_t>(static_cast<float>(half)))
          << bits;
    }
    if (std::isnan(brain)) {
      ASSERT_TRUE(std::isnan(wide_brain)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(wide_brain), brain) << bits;
    }
  }
}

template <typename V>
void check_narrow(float value, std::uint16_t infinity, double (*value_of)(std::uint16_t)) {
  const std::uint16_t want = reference::nearest(static_cast<double>(value), infinity, value_of);
  ASSERT_EQ(narrow<V>(value).bits, want) << value;
}

// Every value of a format, the ties between neighbours and their neighbours among the floats.
TEST(NarrowFloats, RoundToTheNearestEven) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    for (const bool is_half : {true, false}) {
      const float value = is_half ? widen(Half{pattern}) : widen(BFloat16{pattern});
      if (std::isnan(value)) continue;
      const auto next = static_cast<std::uint16_t>(pattern + 1);
      const float above = is_half ? widen(Half{next}) : widen(BFloat16{next});
      const float tie = value / 2 + above / 2;
      for (const float each : {value, tie, std::nextafter(tie, 0.0F), std::nextafter(tie, 1e38F)}) {
        if (is_half) {
          check_narrow<Half>(each, 0x7C00, reference::half_value);
        } else {
          check_narrow<BFloat16>(each, 0x7F80, reference::bfloat16_value);
        }
      }
    }
  }
}

TEST(NarrowFloats, AnyFloat) {
  std::mt19937 random(5);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    check_narrow<Half>(value, 0x7C00, reference::half_value);
    check_narrow<BFloat16>(value, 0x7F80, reference::bfloat16_value);
  }
}

template <typename V>
class NarrowedDoubles : public ::testing::Test {};
using NarrowTypes = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(NarrowedDoubles, NarrowTypes);

template <typename V>
constexpr std::uint16_t kInfinity = std::is_same_v<V, Half> ? 0x7C00 : 0x7F80;
template <typename V>
double value_of_bits(std::uint32_t bits) {
  return static_cast<double>(widen(V{static_cast<std::uint16_t>(bits)}));
}
template <typename V>
std::uint32_t bits_of(double value) {
  return narrow_once<V>(value).bits;
}

// Between neighbours a and b: below the middle gives a, above gives b, the middle the even one.
TYPED_TEST(NarrowedDoubles, RoundOnceToTheNearestEven) {
  for (std::uint32_t bits = 0; bits + 1 < kInfinity<TypeParam>; ++bits) {
    const double a = value_of_bits<TypeParam>(bits);
    const double b = value_of_bits<TypeParam>(bits + 1);
    const double middle = (a + b) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(bits_of<TypeParam>(a), bits);
    ASSERT_EQ(bits_of<TypeParam>(std::nextafter(middle, 0.0)), bits);
    ASSERT_EQ(bits_of<TypeParam>(std::nextafter(middle, b)), bits + 1);
    ASSERT_EQ(bits_of<TypeParam>(middle), even);
    ASSERT_EQ(bits_of<TypeParam>(-middle), 0x8000 + even);
  }
}

TYPED_TEST(NarrowedDoubles, OverflowToInfinityAndUnderflowToZero) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(bits_of<TypeParam>(infinity), kInfinity<TypeParam>);
  EXPECT_EQ(bits_of<TypeParam>(-1e300), 0x8000 | kInfinity<TypeParam>);
  EXPECT_EQ(bits_of<TypeParam>(std::numeric_limits<double>::denorm_min()), 0U);
  EXPECT_EQ(bits_of<TypeParam>(-1e-300), 0x8000U);
  EXPECT_TRUE(std::isnan(widen(narrow_once<TypeParam>(std::nan("")))));
}

TEST(NarrowFloats, LimitsOfHalf) {
  EXPECT_EQ(bits_of<Half>(65519.99), 0x7BFFU);
  EXPECT_EQ(bits_of<Half>(65520.0), 0x7C00U);
}

}  // namespace
}  // namespace steelyard::kernels
