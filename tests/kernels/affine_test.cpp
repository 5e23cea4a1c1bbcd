#include "steelyard/kernels/affine.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "steelyard/kernels/multiples.h"

namespace steelyard::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

CodeGrid<float> u8(float scale, std::int32_t zero_point) {
  return make_code_grid(CodeRange{0, 255}, scale, zero_point);
}

TEST(Affine, TiesRoundToEvenBeforeTheZeroPointIsAdded) {
  const CodeGrid<float> p = u8(1.0F, 7);  // with an odd z, rounding after adding would differ
  EXPECT_EQ(quantize_value(0.5F, p), 7);
  EXPECT_EQ(quantize_value(1.5F, p), 9);
  EXPECT_EQ(quantize_value(2.5F, p), 9);
  EXPECT_EQ(quantize_value(-0.5F, p), 7);
  EXPECT_EQ(quantize_value(-1.5F, p), 5);
}

TEST(Affine, DividesInsteadOfMultiplyingByTheReciprocal) {
  int differing = 0;
  for (int i = 0; i < 200 * 200; ++i) {
    const float scale = 0.001F * static_cast<float>(1 + i / 200);
    const float x = (static_cast<float>(i % 200) + 0.5F) * scale;
    const float quotient = static_cast<float>(static_cast<double>(x) / static_cast<double>(scale));
    EXPECT_EQ(unclamped_code(x, u8(scale, 0)), std::rint(quotient));
    differing += std::rint(quotient) != std::rint(x * (1.0F / scale)) ? 1 : 0;
  }
  EXPECT_GT(differing, 0) << "the data do not tell division from multiplication";
}

// Holds multiples, by division and quick ones, against the definition. Counts the sure.
template <typename T>
class MultiplesCheck {
 public:
  MultiplesCheck(CodeRange range, T scale, std::int32_t zero_point)
      : p_(make_code_grid(range, scale, zero_point)), multiples_(p_) {}

  void take(T x) {
    const T values[1] = {x};
    T multiple[1];
    ASSERT_EQ(multiples_of(values, multiples_, multiple), std::isnan(x) ? 1U : 0U);
    expect_the_code(x, multiple[0]);
    expect_the_code(x, multiples_.of(x));
    const T quick = multiples_.quick(x);
    const bool sure = multiples_.is_sure(x, quick);
    ++(sure ? sure_ : unsure_);
    if (sure) expect_the_code(x, quick);
  }
  // The part that was sure of the values since the last call.
  double take_sure_part() {
    const double part = static_cast<double>(sure_) / static_cast<double>(sure_ + unsure_);
    sure_ = unsure_ = 0;
    return part;
  }

 private:
  void expect_the_code(T x, T multiple) const {
    const T code = unclamped_code(x, p_);
    ASSERT_EQ(multiples_.is_inside(multiple), code_is_inside(code, p_)) << x << " / " << p_.scale;
    const T clamped = multiples_.clamp(multiple);
    ASSERT_EQ(is_unchanged(multiple, clamped), code_is_inside(code, p_));
    const T number = clamped + multiples_.code_of_zero();
    ASSERT_EQ(static_cast<std::int16_t>(std::bit_cast<BitsOf<T>>(number)), quantize_value(x, p_))
        << x << " / " << p_.scale << ": " << multiple << " for " << code;
    if (std::isnan(x)) return;
    ASSERT_TRUE(is_unchanged(clamped * p_.scale, fake_quantize_value(x, p_)))
        << x << " / " << p_.scale;
  }

  CodeGrid<T> p_;
  Multiples<T> multiples_;
  std::int64_t sure_ = 0, unsure_ = 0;
};

// Ties and 64 neighbours on either side of each, random patterns, and random values in the range.
template <typename T>
void check_multiples(T scale, std::mt19937_64& random, bool is_usual) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const bool exact = is_usual && std::fma(1 / scale, scale, T(-1)) == 0;
  for (const auto& [range, zero_point] :
       {std::pair{CodeRange{0, 255}, 7}, {CodeRange{-8, 7}, 0}, {CodeRange{-32768, 32767}, -999}}) {
    MultiplesCheck<T> check(range, scale, zero_point);
    for (const T x : {kInfinity, -kInfinity, std::numeric_limits<T>::quiet_NaN()}) check.take(x);
    EXPECT_EQ(check.take_sure_part(), 0) << "of infinities and NaN";
    for (int i = 0; i < 20000; ++i) check.take(std::bit_cast<T>(static_cast<BitsOf<T>>(random())));
    check.take_sure_part();
    const int codes = range.qmax - range.qmin;
    for (int i = 0; i < 20000; ++i) {
      const T code = static_cast<T>(range.qmin - zero_point) +
                     static_cast<T>(random() >> 11) * T(0x1p-53) * static_cast<T>(codes);
      check.take(code * scale);
    }
    const double least = exact ? 1 : std::is_same_v<T, float> && codes > 255 ? 0.95 : 0.999;
    const double part = check.take_sure_part();
    EXPECT_GE(part, is_usual ? least : 0) << scale;
    if (!is_usual) {
      EXPECT_EQ(part, 0) << scale;
    }
    for (int code = -300; code < 300; ++code) {
      T x = (static_cast<T>(code) + T(0.5)) * scale;
      for (int i = 0; i < 64; ++i) x = std::nextafter(x, -kInfinity);
      for (int i = 0; i < 128; ++i) {
        check.take(x);
        x = std::nextafter(x, kInfinity);
      }
    }
    if (exact) {
      EXPECT_EQ(check.take_sure_part(), 1) << "at ties of a power of two";
    }
  }
}

template <typename T>
void check_multiples_of_scales(T most) {
  std::mt19937_64 random(3);
  for (const T scale : {T(0.1), T(0.01), T(1) / 3, T(1), T(0.25), T(6.0e-5), 1 / most, most,
                        std::nextafter(T(1), T(0)), std::nextafter(T(1), T(2))}) {
    check_multiples(scale, random, true);
  }
  for (int i = 0; i < 24; ++i) {
    const T mantissa = T(1) + static_cast<T>(random() >> 11) * T(0x1p-53);
    check_multiples(std::ldexp(mantissa, static_cast<int>(random() % 100) - 50), random, true);
  }
  for (const T scale : {std::numeric_limits<T>::denorm_min(), 1 / most / 2, most * 2}) {
    check_multiples(scale, random, false);
  }
}

TEST(Affine, MultiplesAreTheCodesLessTheirZeroPoint) {
  check_multiples_of_scales(0x1p60F);
  check_multiples_of_scales(0x1p500);
}

TEST(Affine, EndpointsAreInsideAndTheirNeighboursAreNot) {
  const CodeGrid<float> p = u8(1.0F, 3);
  EXPECT_FALSE(is_inside(-3.5F, p));  // ties to -4, code -1
  EXPECT_FALSE(is_inside(-3.6F, p));
  EXPECT_TRUE(is_inside(-3.0F, p));
  EXPECT_TRUE(is_inside(252.0F, p));
  EXPECT_TRUE(is_inside(252.5F, p));  // ties to 252
  EXPECT_FALSE(is_inside(252.6F, p));
}

TEST(Affine, InfinityAndOverflowSaturateBySign) {
  for (const float scale : {0.1F, std::numeric_limits<float>::min()}) {
    const CodeGrid<float> p = u8(scale, 100);
    for (const float x : {kInf, std::numeric_limits<float>::max()}) {
      EXPECT_EQ(quantize_value(x, p), 255);
      EXPECT_EQ(quantize_value(-x, p), 0);
      EXPECT_FALSE(is_inside(x, p));
      EXPECT_FALSE(is_inside(-x, p));
      EXPECT_EQ(fake_quantize_value(x, p), 155 * scale);
      EXPECT_EQ(fake_quantize_value(-x, p), -100 * scale);
    }
  }
}

TEST(Affine, NanStaysNanPassesItsGradientAndHasTheCodeOfZero) {
  const CodeGrid<float> p = u8(0.1F, 100);
  EXPECT_TRUE(std::isnan(fake_quantize_value(kNan, p)));
  EXPECT_TRUE(is_inside(kNan, p));
  EXPECT_EQ(quantize_value(kNan, p), 100);
}

TEST(Affine, NeverGivesNegativeZero) {
  for (const std::int32_t z : {0, 1, 100}) {
    for (const float x : {-0.0F, -0.01F, -1e-40F, 0.0F}) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(fake_quantize_value(x, u8(0.1F, z))), 0U);
    }
  }
}

TEST(Affine, DenormalsAreKept) {
  const CodeGrid<float> p =
      make_code_grid(CodeRange{-127, 127}, std::numeric_limits<float>::min(), std::int32_t{0});
  const float most_of_a_step = std::numeric_limits<float>::min() * 0.75F;  // a denormal
  EXPECT_EQ(quantize_value(most_of_a_step, p), 1);
  EXPECT_EQ(quantize_value(most_of_a_step * 0.5F, p), 0);
}

TEST(Affine, DoubleIsGenuinelyDouble) {
  const CodeGrid<double> p = make_code_grid(CodeRange{0, 255}, 0.1, 0);
  // 1 + 1e-12 is just above the tie; in float it is the tie.
  EXPECT_EQ(quantize_value(1.0 + 1e-12, make_code_grid(CodeRange{0, 255}, 2.0, 0)), 1);
  EXPECT_EQ(quantize_value(static_cast<float>(1.0 + 1e-12), u8(2.0F, 0)), 0);
  EXPECT_EQ(fake_quantize_value(0.7, p), 7 * 0.1);
}

TEST(Affine, BiasRoundsAndSaturates) {
  EXPECT_EQ(quantize_bias(2.5F, 1.0F), 2);
  EXPECT_EQ(quantize_bias(-3.5F, 1.0F), -4);
  EXPECT_EQ(quantize_bias(1e30F, 1.0F), INT32_MAX);
  EXPECT_EQ(quantize_bias(-1e30F, 1.0F), INT32_MIN);
  EXPECT_EQ(quantize_bias(2147483648.0F, 1.0F), INT32_MAX);
  EXPECT_EQ(quantize_bias(-2147483648.0F, 1.0F), INT32_MIN);
  EXPECT_EQ(quantize_bias(2147483520.0F, 1.0F), 2147483520);  // the largest float below 2^31
  EXPECT_EQ(quantize_bias(2147483646.6, 1.0), INT32_MAX);
  EXPECT_EQ(quantize_bias(kNan, 1.0F), 0);
}

// Uniform from the first run on: rapidcheck's ranges otherwise start at their lower end and widen.
template <typename T>
T uniform(T low, T end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, end));
}

// A scale between 2^-20 and 2^4 with an arbitrary mantissa, and a zero point in the range.
struct Case {
  CodeGrid<float> p;
  CodeRange range;
};

Case arbitrary_case() {
  const CodeRange range = *rc::gen::elementOf(
      std::vector<CodeRange>{{0, 255}, {-128, 127}, {-127, 127}, {0, 15}, {-8, 7}, {-1, 1}});
  const auto bits = uniform<std::uint32_t>(107U << 23, 131U << 23);
  const auto zero_point = uniform<std::int32_t>(range.qmin, range.qmax + 1);
  return {make_code_grid(range, std::bit_cast<float>(bits), zero_point), range};
}

// x within twice the representable range.
float arbitrary_value(const Case& c) {
  const auto numerator = uniform<std::int32_t>(-(1 << 23), 1 << 23);
  const float width = static_cast<float>(c.range.qmax - c.range.qmin + 1) * c.p.scale;
  return static_cast<float>(numerator) / static_cast<float>(1 << 22) * width;
}

void hold(const char* what, const std::function<void()>& property) {
  EXPECT_TRUE(rc::check(what, property)) << what;
}

TEST(AffineProperties, FakeQuantizeIsIdempotent) {
  hold("fake_quantize is idempotent", [] {
    const Case c = arbitrary_case();
    const float once = fake_quantize_value(arbitrary_value(c), c.p);
    RC_ASSERT(fake_quantize_value(once, c.p) == once);
  });
}

TEST(AffineProperties, FakeQuantizeIsMonotonic) {
  hold("fake_quantize is monotonic", [] {
    const Case c = arbitrary_case();
    const float a = arbitrary_value(c);
    const float b = arbitrary_value(c);
    RC_ASSERT(fake_quantize_value(std::min(a, b), c.p) <= fake_quantize_value(std::max(a, b), c.p));
  });
}

TEST(AffineProperties, ErrorInsideIsAtMostHalfAStep) {
  hold("|x - fake_quantize(x)| <= s / 2 + 2 ulp(x)", [] {
    const Case c = arbitrary_case();
    const float x = arbitrary_value(c);
    RC_PRE(is_inside(x, c.p));
    const double ulp = static_cast<double>(std::nextafter(std::abs(x), kInf)) - std::abs(x);
    const double error = std::abs(static_cast<double>(x) - fake_quantize_value(x, c.p));
    RC_ASSERT(error <= 0.5 * c.p.scale + 2 * ulp);
  });
}

TEST(AffineProperties, CodeAndMaskAgree) {
  hold("the code is the unclamped one exactly where the mask is set", [] {
    const Case c = arbitrary_case();
    const float x = arbitrary_value(c);
    const std::int32_t code = quantize_value(x, c.p);
    const float unclamped = unclamped_code(x, c.p);
    RC_ASSERT(is_inside(x, c.p) == (static_cast<float>(code) == unclamped));
    RC_ASSERT(code >= c.range.qmin && code <= c.range.qmax);
    const float y = dequantize_code(static_cast<float>(code), c.p.zero_point, c.p.scale);
    RC_ASSERT(y == fake_quantize_value(x, c.p));
  });
}

}  // namespace
}  // namespace steelyard::kernels
