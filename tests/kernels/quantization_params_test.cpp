#include "steelyard/kernels/quant_plan/quantization_params.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace steelyard::kernels {
namespace {

using Params = QuantizationParams;
const std::vector<std::int64_t> kShape{6, 40};

TEST(QuantizationParams, PresetsHaveTheirRanges) {
  EXPECT_EQ(Params::int8_symmetric().range, (CodeRange{-127, 127}));
  EXPECT_EQ(Params::uint8_asymmetric().range, (CodeRange{0, 255}));
  EXPECT_EQ(Params::int4_symmetric().range, (CodeRange{-7, 7}));
  EXPECT_EQ(code_bits(Params::int4_symmetric().code_type), 4);
  EXPECT_TRUE(Params::int8_symmetric().symmetric);
  EXPECT_FALSE(Params::uint8_asymmetric().symmetric);
}

TEST(QuantizationParams, CountsParameterSetsOfEveryGranularity) {
  const Params base = Params::int8_symmetric();
  EXPECT_EQ(base.num_parameter_sets(kShape), 1);
  EXPECT_EQ(base.channel_wise(0).num_parameter_sets(kShape), 6);
  EXPECT_EQ(base.channel_wise(1).num_parameter_sets(kShape), 40);
  EXPECT_TRUE(base.channel_wise(1).is_per_channel());
  EXPECT_EQ(base.token_wise().num_parameter_sets(kShape), 6);
  EXPECT_EQ(base.block_wise(16).num_parameter_sets(kShape), 6 * 3);
  EXPECT_EQ(base.block_wise(4, 0).num_parameter_sets(kShape), 2 * 40);
  EXPECT_EQ(base.block_wise_2d(4, 16).num_parameter_sets(kShape), 2 * 3);
  EXPECT_FALSE(base.block_wise(16).is_per_channel());
}

TEST(QuantizationParams, FromStatisticsFollowsTheDefinition) {
  const double lo[] = {-1.0, 0.5, 0.0, -3.0, 2.0, -4e-60};
  const double hi[] = {2.0, 6.0, 0.0, -1.0, 2.0, 1e-60};
  const Params affine = Params::uint8_asymmetric().channel_wise(0).from_statistics(kShape, lo, hi);
  affine.validate(kShape);
  EXPECT_EQ(affine.qparams[0].scale, static_cast<double>(static_cast<float>(3.0 / 255)));
  EXPECT_EQ(affine.qparams[0].zero_point, 85);
  EXPECT_EQ(affine.qparams[1].scale, static_cast<double>(static_cast<float>(6.0 / 255)));
  EXPECT_EQ(affine.qparams[1].zero_point, 0);
  EXPECT_EQ(affine.qparams[2].scale, 1);  // a zero range
  EXPECT_EQ(affine.qparams[3].zero_point, 255);
  EXPECT_EQ(affine.qparams[4].scale, static_cast<double>(static_cast<float>(2.0 / 255)));
  EXPECT_EQ(affine.lo, std::vector<double>(std::begin(lo), std::end(lo)));
  EXPECT_EQ(affine.hi, std::vector<double>(std::begin(hi), std::end(hi)));
  EXPECT_EQ(affine.qparams[5].scale, static_cast<double>(std::numeric_limits<float>::min()));
  const Params symmetric = Params::int8_symmetric().channel_wise(0).from_statistics(kShape, lo, hi);
  EXPECT_EQ(symmetric.qparams[3].scale, static_cast<double>(static_cast<float>(3.0 / 127)));
  EXPECT_EQ(symmetric.qparams[3].zero_point, 0);
}

TEST(QuantizationParams, ScalesAreRoundedToTheirStoredType) {
  Params params = Params::int4_symmetric();
  const double lo[] = {-1.0};
  for (const double amax : {0.1, 3.7, 1e-12, 1e9}) {
    const double hi[] = {amax};
    const double negative[] = {-amax};
    params.scale_type = ValueType::kF16;
    const double half = params.from_statistics(kShape, negative, hi).qparams[0].scale;
    EXPECT_EQ(half, static_cast<double>(widen(narrow<Half>(static_cast<float>(half)))));
    EXPECT_GE(half, 0x1p-24);
    EXPECT_LE(half, 65504);
    params.scale_type = ValueType::kBF16;
    const double brain = params.from_statistics(kShape, negative, hi).qparams[0].scale;
    EXPECT_NEAR(brain, amax / 7, amax / 7 / 256);
  }
  params.scale_type = ValueType::kF64;
  const double hi[] = {0.1};
  EXPECT_EQ(params.from_statistics(kShape, lo, hi).qparams[0].scale, 1.0 / 7);
}

// z = clamp(rint(qmin - lo / s)) with the s that is stored: in f16 small scales become 2^-24, large
// ones 65504, and every scale is rounded.
TEST(QuantizationParams, ZeroPointsAreThoseOfTheStoredScale) {
  for (const ValueType type : {ValueType::kF16, ValueType::kBF16}) {
    Params params = Params::uint8_asymmetric();
    params.scale_type = type;
    for (double size = 1e-9; size < 1e9; size *= 1.7) {
      for (const double share : {0.0, 0.1, 0.43, 0.77, 1.0}) {
        const double lo[] = {-share * size};
        const double hi[] = {size - share * size};
        const Params chosen = params.from_statistics(kShape, lo, hi);
        const double z =
            std::clamp(std::nearbyint(0 - lo[0] / chosen.qparams[0].scale), 0.0, 255.0);
        EXPECT_EQ(chosen.qparams[0].zero_point, z)
            << "[" << lo[0] << ", " << hi[0] << "], scale " << chosen.qparams[0].scale;
      }
    }
  }
}

TEST(QuantizationParams, LargestValuesStayFiniteWhateverTheScalesType) {
  const double most = static_cast<double>(std::numeric_limits<float>::max());
  for (const ValueType type : {ValueType::kF32, ValueType::kF16, ValueType::kBF16}) {
    for (Params params :
         {Params::int8_symmetric(), Params::uint8_asymmetric(), Params::int4_symmetric()}) {
      params.scale_type = type;
      for (double amax = most / 4; amax <= most; amax *= 1.01) {
        const double lo[] = {-amax};
        const double hi[] = {amax};
        const Params chosen = params.from_statistics(kShape, lo, hi);
        EXPECT_LE(chosen.largest_value(0), most);
        EXPECT_GE(chosen.smallest_value(0), -most);
      }
    }
  }
}

TEST(QuantizationParams, ErrorBoundHoldsForEveryGranularity) {
  std::vector<float> x(240);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 5.0F * std::sin(static_cast<float>(i * i));
  for (const Params& preset :
       {Params::int8_symmetric(), Params::uint8_asymmetric(), Params::int4_symmetric()}) {
    for (const Params& shared : {preset, preset.channel_wise(1), preset.token_wise(),
                                 preset.block_wise(16), preset.block_wise_2d(4, 7)}) {
      const SetMap map = make_set_map(kShape, shared.granularity, shared.options);
      const auto sets = static_cast<std::size_t>(map.sets);
      const double inf = std::numeric_limits<double>::infinity();
      std::vector<double> lo(sets, inf), hi(sets, -inf);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto set = static_cast<std::size_t>(map.set_of(static_cast<std::int64_t>(i)));
        lo[set] = std::min(lo[set], static_cast<double>(x[i]));
        hi[set] = std::max(hi[set], static_cast<double>(x[i]));
      }
      const Params params = shared.from_statistics(kShape, lo, hi);
      params.validate(kShape);
      const QuantPlan plan = QuantPlan::select(
          params.descriptor(QuantOperation::kFakeQuantize, QuantDirection::kForward, kShape),
          DeviceType::kCpu);
      std::vector<float> scale;
      std::vector<std::int32_t> zero_point;
      for (const QParams<double>& of_set : params.qparams) {
        scale.push_back(static_cast<float>(of_set.scale));
        zero_point.push_back(of_set.zero_point);
      }
      std::vector<float> y(x.size());
      QuantArrays arrays;
      arrays.x = x;
      arrays.y = y;
      arrays.scale = scale;
      arrays.zero_point = zero_point;
      plan.run(nullptr, {}, arrays);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::int64_t set = map.set_of(static_cast<std::int64_t>(i));
        const double bound = params.quantization_error_bound(set);
        EXPECT_LE(bound, params.qparams[static_cast<std::size_t>(set)].scale * 0.50001);
        EXPECT_LE(std::fabs(static_cast<double>(x[i]) - static_cast<double>(y[i])), bound + 1e-6);
        EXPECT_GE(static_cast<double>(y[i]), params.smallest_value(set) - 1e-6);
        EXPECT_LE(static_cast<double>(y[i]), params.largest_value(set) + 1e-6);
      }
    }
  }
}

// A scale that its type rounded down or cannot hold: the ends of the range lose more than half a
// step, and no value of the range loses more than the bound.
TEST(QuantizationParams, ErrorBoundCountsWhatTheEndsLose) {
  bool exceeds = false;
  for (const ValueType type : {ValueType::kF16, ValueType::kBF16}) {
    for (Params params : {Params::int8_symmetric(), Params::uint8_asymmetric()}) {
      params.scale_type = type;
      for (const double size : {1e-9, 0.013, 1.0, 3.3, 1000.7, 3e7}) {
        const double lo[] = {-0.3 * size};
        const double hi[] = {0.7 * size};
        const Params chosen = params.from_statistics(kShape, lo, hi);
        const double bound = chosen.quantization_error_bound(0);
        exceeds |= bound > chosen.qparams[0].scale / 2;
        const auto grid =
            make_code_grid(chosen.range, chosen.qparams[0].scale, chosen.qparams[0].zero_point);
        double largest = 0;
        for (int i = 0; i <= 1000; ++i) {
          const double x = lo[0] + (hi[0] - lo[0]) * i / 1000;
          largest = std::max(largest, std::fabs(x - fake_quantize_value(x, grid)));
        }
        EXPECT_LE(largest, bound * (1 + 1e-12)) << size;
        EXPECT_GE(bound, chosen.qparams[0].scale / 2);
      }
    }
  }
  EXPECT_TRUE(exceeds);
}

TEST(QuantizationParams, ErrorBoundOfGivenScalesIsHalfAStep) {
  Params params = Params::uint8_asymmetric();
  params.qparams = {{0.25, 3}};
  EXPECT_EQ(params.quantization_error_bound(0), 0.125);
}

TEST(QuantizationParams, TextFormReadsBackToTheSameBits) {
  Params params = Params::uint8_asymmetric().block_wise(16, 0);
  params.scale_type = ValueType::kBF16;
  params.qparams = {{0.1, 0}, {5e-324, 255}, {1e300, 7}};
  params.lo = {-0.0, 1.0 / 3, -1e-300};
  params.hi = {0.5, 2.5, 3};
  const std::string text = params.to_text();
  EXPECT_EQ(text,
            "code_type=u8 range=0,255 symmetric=false granularity=group axis=0 group_size=16 "
            "block=0,0 scale_type=bf16 scale=0.1,5e-324,1e+300 zero_point=0,255,7 "
            "lo=-0,0.3333333333333333,-1e-300 hi=0.5,2.5,3");
  const Params read = Params::from_text(text);
  EXPECT_EQ(read.to_text(), text);
  EXPECT_EQ(read.qparams, params.qparams);
  EXPECT_EQ(read.lo, params.lo);
  for (const Params& other :
       {Params::int8_symmetric(), Params::int4_symmetric().token_wise(),
        Params::int8_symmetric().channel_wise(-2), Params::int4_symmetric().block_wise_2d(4, 7)}) {
    EXPECT_EQ(Params::from_text(other.to_text()).to_text(), other.to_text());
    EXPECT_EQ(Params::from_text(other.to_text()).num_parameter_sets(kShape),
              other.num_parameter_sets(kShape));
  }
}

TEST(QuantizationParams, TextFormNamesWhatIsWrong) {
  const std::string good = Params::int8_symmetric().to_text();
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"", "'code_type': expected it as the next key, got ''"},
      {replaced("s8", "s9"), "'code_type': expected one of its words, got 's9'"},
      {replaced("-127,127", "-127"), "'range': expected 2 numbers, got '1'"},
      {replaced("-127,127", "-127,x"), "'range': expected a number, got 'x'"},
      {replaced("-127,127", "-127,"), "'range': expected a number after the last comma"},
      {replaced("symmetric=true", "symmetric=yes"), "expected true or false, got 'yes'"},
      {replaced("group_size", "size"), "'group_size': expected it as the next key, got 'size=0'"},
      {replaced("zero_point=", "zero_point=3"),
       "'zero_point': expected one for each scale, 0, got '1'"},
      {good + " more=1", "'hi': expected nothing after it, got 'more=1'"},
  };
  for (const auto& [text, part] : cases) {
    try {
      Params::from_text(text);
      FAIL() << "accepted " << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(QuantizationParams, CompressionCountsTheParametersToo) {
  EXPECT_DOUBLE_EQ(Params::int8_symmetric().compression_ratio(kShape), 960.0 / (240 + 4));
  EXPECT_DOUBLE_EQ(Params::uint8_asymmetric().compression_ratio(kShape), 960.0 / (240 + 4 + 1));
  EXPECT_DOUBLE_EQ(Params::int4_symmetric().block_wise(16).compression_ratio(kShape),
                   960.0 / (120 + 18 * 4));
  Params half = Params::int4_symmetric().block_wise(16);
  half.scale_type = ValueType::kF16;
  EXPECT_DOUBLE_EQ(half.compression_ratio(kShape, ValueType::kBF16), 480.0 / (120 + 18 * 2));
  const std::vector<std::int64_t> empty{0, 40};
  EXPECT_EQ(half.compression_ratio(empty), 1);
}

TEST(QuantizationParams, SetsThatAreNotThereAreNamed) {
  const double lo[] = {-1};
  const double hi[] = {1};
  const Params params = Params::int8_symmetric().from_statistics(kShape, lo, hi);
  EXPECT_THROW(params.quantization_error_bound(-1), std::invalid_argument);
  EXPECT_THROW(params.quantization_error_bound(1), std::invalid_argument);
  EXPECT_THROW(params.smallest_value(1), std::invalid_argument);
  EXPECT_THROW(params.largest_value(1), std::invalid_argument);
}

void expect_invalid(const Params& params, const char* part) {
  try {
    params.validate(kShape);
    FAIL() << "accepted, expected: " << part;
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(QuantizationParams, ValidateNamesWhatIsWrong) {
  Params params = Params::uint8_asymmetric();
  expect_invalid(params, "expected 1 scales");
  params.qparams = {{0.1, 256}};
  expect_invalid(params, "set 0");
  params.qparams = {{0.1, 255}};
  params.validate(kShape);
  for (const double scale : {std::nan(""), 0.0}) {
    params.qparams[0].scale = scale;
    expect_invalid(params, "finite scale");
  }
  params.qparams[0].scale = 1e300;
  expect_invalid(params, "in its type");
  params.qparams[0].scale = 0.1;
  params.range = {0, 300};
  expect_invalid(params, "within [0, 255]");
  params = Params::int8_symmetric();
  params.qparams = {{0.1, 1}};
  expect_invalid(params, "of 0");
  params.qparams = {{1e-60, 0}};  // 0 in the type that it is stored in
  expect_invalid(params, "got 1e-60 and 0");
  params.qparams = {{1e-9, 0}};
  params.validate(kShape);
  params.scale_type = ValueType::kF16;
  expect_invalid(params, "finite scale");
  params.scale_type = ValueType::kF32;
  params.lo = {-1};
  expect_invalid(params, "expected no extremes or 1, got 1 and 0");
  params.hi = {-2};
  expect_invalid(params, "set 0 has [-1, -2]");
}

TEST(QuantizationParams, FromStatisticsRefusesWhatHasNoAnswer) {
  const double one[] = {1.0};
  const double two[] = {1.0, 2.0};
  const double nan[] = {std::nan("")};
  const double infinite[] = {std::numeric_limits<double>::infinity()};
  const Params params = Params::uint8_asymmetric();
  EXPECT_THROW(params.from_statistics(kShape, nan, one), std::invalid_argument);
  EXPECT_THROW(params.from_statistics(kShape, one, nan), std::invalid_argument);
  EXPECT_THROW(params.from_statistics(kShape, one, infinite), std::invalid_argument);
  EXPECT_THROW(params.from_statistics(kShape, two, two), std::invalid_argument);
  const double largest[] = {INFINITY};
  const double smallest[] = {-INFINITY};
  const double zero[] = {0.0};
  const std::vector<std::pair<const double*, const double*>> reversed = {
      {largest, smallest}, {one, zero}, {smallest, largest}, {zero, nan}};
  for (const auto& [lo, hi] : reversed) {
    try {
      params.from_statistics(kShape, {lo, 1}, {hi, 1});
      FAIL() << "accepted [" << *lo << ", " << *hi << "]";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("finite extremes with lo <= hi"), std::string::npos)
          << error.what();
    }
  }
  Params wrong = params;
  wrong.range = {7, 7};
  EXPECT_THROW(wrong.from_statistics(kShape, one, one), std::invalid_argument);
  wrong.range = {-7, 0};
  wrong.symmetric = true;
  EXPECT_THROW(wrong.from_statistics(kShape, one, one), std::invalid_argument);
}

}  // namespace
}  // namespace steelyard::kernels
