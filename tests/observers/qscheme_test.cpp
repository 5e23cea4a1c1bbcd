#include "steelyard/observers/qscheme.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "steelyard/observers/registry.h"

namespace steelyard::observers {
namespace {

const QScheme kWeight8{};
const QScheme kUnsigned8{.is_signed = false, .symmetric = false, .narrow_range = false};

TEST(QScheme, CodeRanges) {
  EXPECT_EQ(kWeight8.code_range(), (kernels::CodeRange{-127, 127}));
  EXPECT_EQ(kUnsigned8.code_range(), (kernels::CodeRange{0, 255}));
  EXPECT_EQ((QScheme{.bits = 2, .narrow_range = false}.code_range()), (kernels::CodeRange{-2, 1}));
  EXPECT_EQ((QScheme{.bits = 4, .is_signed = false, .symmetric = false, .narrow_range = false}
                 .code_range()),
            (kernels::CodeRange{0, 15}));
}

TEST(QScheme, RejectsWhatHasNoMeaning) {
  EXPECT_THROW(validate(QScheme{.bits = 1}), std::invalid_argument);
  EXPECT_NO_THROW(validate(QScheme{.bits = 16}));
  EXPECT_THROW(validate(QScheme{.bits = 17}), std::invalid_argument);
  EXPECT_THROW(
      validate(QScheme{.bits = 9, .granularity = kernels::Granularity::kToken, .dynamic = true}),
      std::invalid_argument);
  EXPECT_THROW(validate(QScheme{.is_signed = false}), std::invalid_argument);
  EXPECT_THROW(validate(QScheme{.symmetric = false}), std::invalid_argument);
  EXPECT_THROW(validate(QScheme{.granularity = kernels::Granularity::kBlock}),
               std::invalid_argument);
}

std::vector<QScheme> valid_schemes() {
  std::vector<QScheme> all;
  for (const int bits : {2, 8, 16}) {
    for (const int signs : {0, 1, 2, 3}) {  // unsigned, signed, symmetric, symmetric and narrow
      QScheme scheme{
          .bits = bits, .is_signed = signs > 0, .symmetric = signs > 1, .narrow_range = signs > 2};
      using kernels::Granularity;
      for (const auto granularity :
           {Granularity::kTensor, Granularity::kChannel, Granularity::kGroup, Granularity::kToken,
            Granularity::kBlock}) {
        scheme.granularity = granularity;
        scheme.group_size = granularity == Granularity::kGroup ? 32 : 0;
        if (granularity == Granularity::kBlock) scheme.block = {128, 64};
        for (const bool dynamic : {false, true}) {
          scheme.dynamic = dynamic;
          try {
            validate(scheme);
            all.push_back(scheme);
          } catch (const std::invalid_argument&) {
          }
        }
        scheme.block = {0, 0};
      }
    }
  }
  return all;
}

TEST(QScheme, TextsReadBackAndTellSchemesApart) {
  const std::vector<QScheme> schemes = valid_schemes();
  ASSERT_GT(schemes.size(), 50U);
  std::set<std::string> texts;
  for (const QScheme& scheme : schemes) {
    const std::string text = to_string(scheme);
    EXPECT_EQ(parse_qscheme(text), scheme) << text;
    EXPECT_TRUE(texts.insert(text).second) << text;
  }
  EXPECT_EQ(std::set<QScheme>(schemes.begin(), schemes.end()).size(), schemes.size());
  EXPECT_EQ(std::unordered_set<QScheme>(schemes.begin(), schemes.end()).size(), schemes.size());
  EXPECT_EQ(to_string(QScheme{.narrow_range = false}), "int8 symmetric, full range, per tensor");
}

TEST(QScheme, OtherTextsAreRefused) {
  for (const std::string text :
       {"", "int8", "int8 symmetric", "int8 symmetric, per tensor ", "Int8 symmetric, per tensor",
        "int08 symmetric, per tensor", "int17 symmetric, per tensor", "int8 symmetric, per token",
        "uint8 symmetric, per tensor", "int8 affine, full range, per tensor",
        "int8 symmetric, groups of , dynamic", "int8 symmetric, groups of -4",
        "int8 symmetric, groups of 99999999999999999999",
        "int8 symmetric, blocks of 8 rows and 0 columns, dynamic"}) {
    EXPECT_THROW(parse_qscheme(text), std::invalid_argument) << text;
  }
}

TEST(QParams, SymmetricUsesTheLargerSide) {
  EXPECT_EQ(choose_qparams({-2.54, 1.0}, kWeight8).scale, static_cast<float>(2.54 / 127));
  EXPECT_EQ(choose_qparams({-1.0, 2.54}, kWeight8).scale, static_cast<float>(2.54 / 127));
  EXPECT_EQ(choose_qparams({-1.0, 2.54}, kWeight8).zero_point, 0);
}

TEST(QParams, AffineHoldsZero) {
  const QParams p = choose_qparams({5.0, 6.0}, kUnsigned8);
  EXPECT_EQ(p.scale, static_cast<float>(6.0 / 255));
  EXPECT_EQ(p.zero_point, 0);
  const QParams negative = choose_qparams({-6.0, -5.0}, kUnsigned8);
  EXPECT_EQ(negative.scale, static_cast<float>(6.0 / 255));
  EXPECT_EQ(negative.zero_point, 255);
  EXPECT_EQ(choose_qparams({-1.0, 1.0}, kUnsigned8).zero_point, 128);  // rint(127.5), half to even
}

TEST(QParams, ZeroAndEmptyRanges) {
  for (const Range& range : {Range{0, 0}, Range{}}) {
    for (const QScheme& scheme : {kWeight8, kUnsigned8}) {
      EXPECT_EQ(choose_qparams(range, scheme), (QParams{1.0F, 0}));
    }
  }
}

TEST(QParams, ScalesStayNormalAndReconstructionFinite) {
  constexpr double kMax = std::numeric_limits<float>::max();
  for (const QScheme& scheme : {kWeight8, kUnsigned8, QScheme{.bits = 2, .narrow_range = false}}) {
    for (const Range& range : {Range{-kMax, kMax}, Range{0, kMax}, Range{-kMax, 0}, Range{0, 1e-45},
                               Range{-1e-40, 1e-40}}) {
      const QParams p = choose_qparams(range, scheme);
      EXPECT_TRUE(std::isnormal(p.scale)) << range.lo << " " << range.hi;
      for (const std::int32_t q : {scheme.code_range().qmin, scheme.code_range().qmax}) {
        EXPECT_TRUE(std::isfinite(static_cast<float>(q - p.zero_point) * p.scale));
      }
      EXPECT_NO_THROW(validate(p, scheme, "test"));
    }
  }
}

TEST(QParams, RejectsNonFiniteRangesAndBadValues) {
  EXPECT_THROW(choose_qparams({0, INFINITY}, kUnsigned8), std::invalid_argument);
  EXPECT_THROW(validate({0.0F, 0}, kWeight8, "w"), std::invalid_argument);
  EXPECT_THROW(validate({-1.0F, 0}, kWeight8, "w"), std::invalid_argument);
  EXPECT_THROW(validate({NAN, 0}, kWeight8, "w"), std::invalid_argument);
  EXPECT_THROW(validate({INFINITY, 0}, kWeight8, "w"), std::invalid_argument);
  EXPECT_THROW(validate({1.0F, 1}, kWeight8, "w"), std::invalid_argument);
  EXPECT_THROW(validate({1.0F, 256}, kUnsigned8, "w"), std::invalid_argument);
  EXPECT_THROW(validate({1.0F, -1}, kUnsigned8, "w"), std::invalid_argument);
}

TEST(Registry, KnowsEveryNameItLists) {
  for (const std::string& name : observer_names()) {
    EXPECT_EQ(make_observer({.type = name}, kUnsigned8, 1)->name(), name);
  }
  EXPECT_THROW(make_observer({.type = "median"}, kUnsigned8, 1), std::invalid_argument);
  EXPECT_THROW(make_observer({.type = "moving_average", .averaging_constant = 0}, kUnsigned8, 1),
               std::invalid_argument);
}

}  // namespace
}  // namespace steelyard::observers
