// Plans that choose their own scale, on the device of the program this is linked into.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>

#include "steelyard/kernels/qparams.h"
#include "steelyard/kernels/quant_plan/quant_plan.h"
#include "tests/kernels/quant_plan/quant_device.h"
#include "tests/kernels/quant_plan/quant_reference.h"
#include "tests/kernels/quant_plan/quant_values.h"

namespace steelyard::kernels {
namespace {

using test::fake_quantize;
using test::OnDevice;
using test::wave;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Extremes of the finite values of each set, straight from the definition.
struct Range {
  float lo = kInf;
  float hi = -kInf;
  int skipped = 0;
};

std::vector<Range> ranges_of(const QuantDescriptor& d, std::int64_t sets,
                             const std::vector<float>& x) {
  std::vector<Range> ranges(static_cast<std::size_t>(sets));
  for (std::size_t i = 0; i < x.size(); ++i) {
    Range& r = ranges[static_cast<std::size_t>(reference::set_of(d, static_cast<std::int64_t>(i)))];
    if (std::isfinite(x[i])) {
      r.lo = std::min(r.lo, x[i]);
      r.hi = std::max(r.hi, x[i]);
    } else {
      ++r.skipped;
    }
  }
  return ranges;
}

// Scale and zero point as docs/numerics.md says, in long double.
struct Chosen {
  float scale;
  std::int32_t zero_point;
};

Chosen choose(const Range& range, CodeRange codes, bool symmetric) {
  if (!(range.lo <= range.hi) || (range.lo == 0 && range.hi == 0)) {
    return {1.0F, std::clamp(0, codes.qmin, codes.qmax)};
  }
  const double lo = static_cast<double>(range.lo);
  const double hi = static_cast<double>(range.hi);
  if (symmetric) return {static_cast<float>(std::max(-lo, hi) / codes.qmax), 0};
  const double low = std::min(lo, 0.0);
  const double scale = (std::max(hi, 0.0) - low) / (codes.qmax - codes.qmin);
  const double z = std::nearbyint(codes.qmin - low / scale);
  return {static_cast<float>(scale),
          static_cast<std::int32_t>(std::clamp<double>(z, codes.qmin, codes.qmax))};
}

float fake(float x, const Chosen& c, CodeRange codes) {
  return static_cast<float>(reference::element<float>(static_cast<double>(x),
                                                      static_cast<double>(c.scale), c.zero_point,
                                                      codes)
                                .y);
}

// A quantizer with its state on the device.
class Quantizer {
 public:
  explicit Quantizer(const QuantDescriptor& d)
      : plan_(QuantPlan::select(d, test::device())),
        sets_(static_cast<std::size_t>(plan_.num_parameter_sets())),
        scale_(OnDevice::of(std::vector<float>(sets_, -1.0F))),
        zero_point_(OnDevice::of(std::vector<std::int32_t>(sets_, -9999))),
        lo_(OnDevice::of(std::vector<float>(sets_, kInf))),
        hi_(OnDevice::of(std::vector<float>(sets_, -kInf))),
        flags_(OnDevice::of(std::vector<std::uint8_t>{1, 1, 0})),
        count_(OnDevice::of(std::vector<std::int64_t>{0})),
        workspace_(std::vector<std::uint8_t>(plan_.workspace_bytes(), 0x5A)) {}

  // y of one call.
  std::vector<float> operator()(const std::vector<float>& x,
                                std::vector<std::uint8_t>* mask = nullptr) {
    const OnDevice in = OnDevice::of(x);
    const OnDevice out = OnDevice::of(std::vector<float>(x.size(), 77.0F));
    const OnDevice bits(std::vector<std::uint8_t>((x.size() + 7) / 8, 0xEE));
    QuantArrays arrays = state();
    arrays.x = in.span();
    arrays.y = out.span();
    arrays.mask = bits.span<std::uint8_t>();
    plan_.run(nullptr, workspace_.span(), arrays);
    if (mask != nullptr) *mask = bits.host();
    return out.host<float>();
  }
  QuantArrays state() const {
    QuantArrays arrays;
    arrays.scale = scale_.span();
    arrays.zero_point = zero_point_.span<std::int32_t>();
    arrays.range_lo = lo_.span();
    arrays.range_hi = hi_.span();
    arrays.observing = flags_.span<std::uint8_t>(0, 1);
    arrays.quantizing = flags_.span<std::uint8_t>(1, 1);
    arrays.initialized = flags_.span<std::uint8_t>(2, 1);
    arrays.non_finite_count = count_.span<std::int64_t>();
    return arrays;
  }
  void set_switches(bool observing, bool quantizing) {
    const std::uint8_t flags[] = {observing, quantizing};
    copy_to_device(flags_.get(), flags, 2);
  }
  const QuantPlan& plan() const { return plan_; }
  std::size_t sets() const { return sets_; }
  std::vector<float> scale() const { return scale_.host<float>(); }
  std::vector<std::int32_t> zero_point() const { return zero_point_.host<std::int32_t>(); }
  std::vector<float> lo() const { return lo_.host<float>(); }
  std::vector<float> hi() const { return hi_.host<float>(); }
  std::int64_t non_finite() const { return count_.host<std::int64_t>()[0]; }
  bool initialized() const { return flags_.host()[2] != 0; }

 private:
  static void copy_to_device(void* to, const void* from, std::size_t bytes) {
    test::copy_to_device(to, from, bytes);
  }

  QuantPlan plan_;
  std::size_t sets_;
  OnDevice scale_, zero_point_, lo_, hi_, flags_, count_, workspace_;
};

struct StatisticsCase {
  std::string name;
  std::vector<std::int64_t> shape;
  Granularity granularity = Granularity::kTensor;
  GranularityOptions options = {};
};

void PrintTo(const StatisticsCase& one, std::ostream* out) { *out << one.name; }

std::vector<StatisticsCase> statistics_cases() {
  using G = Granularity;
  return {{"tensor", {3, 1009}},
          {"channel", {4, 6, 35}, G::kChannel, {.axis = 1}},
          {"channel_of_eights", {3, 5, 64}, G::kChannel, {.axis = 1}},
          {"channel_last", {90, 12}, G::kChannel, {.axis = 1}},
          {"channel_last_of_three", {50, 3}, G::kChannel, {.axis = 1}},
          {"channel_long", {3, 2, 5000}, G::kChannel, {.axis = 1}},
          {"token", {50, 100}, G::kToken},
          {"token_wide", {5, 3000}, G::kToken},
          {"group", {40, 128}, G::kGroup, {.axis = 1, .group_size = 32}},
          {"group_ragged", {11, 50}, G::kGroup, {.axis = 1, .group_size = 16}},
          {"group_of_eights_ragged", {6, 72}, G::kGroup, {.axis = 1, .group_size = 16}},
          {"block_of_eights", {24, 64}, G::kBlock, {.block_rows = 8, .block_columns = 16}},
          {"block", {20, 30}, G::kBlock, {.block_rows = 8, .block_columns = 8}},
          // Many runs of one length, with lengths around those of vectors.
          {"planes", {3, 40, 49}, G::kChannel, {.axis = 1}},
          {"groups_of_3", {4, 1601}, G::kGroup, {.axis = 1, .group_size = 3}},
          {"groups_of_6", {3, 903}, G::kGroup, {.axis = 1, .group_size = 6}},
          {"groups_of_16", {5, 1600}, G::kGroup, {.axis = 1, .group_size = 16}},
          {"groups_of_33", {5, 1200}, G::kGroup, {.axis = 1, .group_size = 33}},
          {"blocks_wide", {20, 610}, G::kBlock, {.block_rows = 8, .block_columns = 16}}};
}

class QuantStatistics : public ::testing::TestWithParam<StatisticsCase> {
 protected:
  QuantDescriptor descriptor(Statistics statistics, bool symmetric) const {
    QuantDescriptor d = fake_quantize(GetParam().shape);
    d.granularity = GetParam().granularity;
    d.options = GetParam().options;
    d.spec.statistics = statistics;
    d.spec.symmetric = symmetric;
    d.spec.averaging_constant = 0.25;
    if (symmetric) {
      d.spec.code_type = CodeType::kS8;
      d.spec.range = {-127, 127};
    }
    return d;
  }
  std::int64_t elements() const {
    return std::accumulate(GetParam().shape.begin(), GetParam().shape.end(), std::int64_t{1},
                           std::multiplies<>());
  }
  // Some values non-finite, one set of zeros where there are several.
  std::vector<float> values(const QuantDescriptor& d, float amplitude) const {
    std::vector<float> x = wave(elements(), amplitude, 0.4F);
    for (std::size_t i = 17; i < x.size(); i += 101) x[i] = i % 2 == 0 ? NAN : kInf;
    const bool several = QuantPlan::select(d, DeviceType::kCpu).num_parameter_sets() > 2;
    for (std::size_t i = 0; several && i < x.size(); ++i) {
      if (reference::set_of(d, static_cast<std::int64_t>(i)) == 1) x[i] = i % 2 == 0 ? 0.0F : -0.0F;
    }
    return x;
  }
};

void expect_quantized(const QuantDescriptor& d, const std::vector<float>& x,
                      const std::vector<Chosen>& chosen, const std::vector<float>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto set = static_cast<std::size_t>(reference::set_of(d, static_cast<std::int64_t>(i)));
    const float want = fake(x[i], chosen[set], d.spec.range);
    ASSERT_TRUE(y[i] == want || (std::isnan(y[i]) && std::isnan(want)))
        << "element " << i << ": " << y[i] << ", expected " << want;
  }
}

TEST_P(QuantStatistics, DynamicTakesTheCallsOwnExtremes) {
  for (const bool symmetric : {false, true}) {
    const QuantDescriptor d = descriptor(Statistics::kDynamic, symmetric);
    const std::vector<float> x = values(d, 3);
    test::for_each_order([&] {
      Quantizer quantizer(d);
      const std::vector<float> y = quantizer(x);
      std::vector<Chosen> chosen;
      int skipped = 0;
      for (const Range& range : ranges_of(d, quantizer.plan().num_parameter_sets(), x)) {
        chosen.push_back(choose(range, d.spec.range, symmetric));
        skipped += range.skipped;
      }
      for (std::size_t set = 0; set < chosen.size(); ++set) {
        ASSERT_EQ(quantizer.scale()[set], chosen[set].scale) << "set " << set;
        ASSERT_EQ(quantizer.zero_point()[set], chosen[set].zero_point) << "set " << set;
      }
      EXPECT_EQ(quantizer.non_finite(), skipped);
      expect_quantized(d, x, chosen, y);
    });
  }
}

// Three calls by hand: the average, then scale and zero point, before or after quantizing.
void check_moving(const QuantDescriptor& d, const std::vector<std::vector<float>>& calls) {
  Quantizer quantizer(d);
  std::vector<Range> average(quantizer.sets());
  std::vector<Chosen> chosen(quantizer.sets());
  bool initialized = false;
  int skipped = 0;
  for (const std::vector<float>& x : calls) {
    const std::vector<Chosen> before = chosen;
    const bool was_initialized = initialized;
    const auto seen = ranges_of(d, quantizer.plan().num_parameter_sets(), x);
    for (std::size_t set = 0; set < seen.size(); ++set) {
      skipped += seen[set].skipped;
      if (seen[set].lo <= seen[set].hi) {
        const bool first = !(average[set].lo <= average[set].hi);
        const auto follow = [&](float m, float v) {
          const double mean = static_cast<double>(m);
          return first ? v : static_cast<float>(mean + 0.25 * (static_cast<double>(v) - mean));
        };
        average[set].lo = follow(average[set].lo, seen[set].lo);
        average[set].hi = follow(average[set].hi, seen[set].hi);
        initialized = true;
      }
      chosen[set] = choose(average[set], d.spec.range, d.spec.symmetric);
    }
    std::vector<std::uint8_t> mask;
    const std::vector<float> y = quantizer(x, &mask);
    for (std::size_t set = 0; set < chosen.size(); ++set) {
      ASSERT_EQ(quantizer.lo()[set], average[set].lo);
      ASSERT_EQ(quantizer.hi()[set], average[set].hi);
      ASSERT_EQ(quantizer.scale()[set], chosen[set].scale);
      ASSERT_EQ(quantizer.zero_point()[set], chosen[set].zero_point);
    }
    const bool delayed = d.spec.statistics == Statistics::kDelayed;
    if (delayed && !was_initialized) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(y[i] == x[i] || std::isnan(x[i])) << "passes before the first average";
        ASSERT_TRUE((mask[i / 8] >> (i % 8) & 1) != 0);
      }
    } else {
      expect_quantized(d, x, delayed ? before : chosen, y);
    }
    EXPECT_EQ(quantizer.initialized(), initialized);
    EXPECT_EQ(quantizer.non_finite(), skipped);
  }
}

TEST_P(QuantStatistics, CurrentAndDelayedFollowTheMovingAverage) {
  for (const Statistics statistics : {Statistics::kCurrent, Statistics::kDelayed}) {
    for (const bool symmetric : {false, true}) {
      const QuantDescriptor d = descriptor(statistics, symmetric);
      const std::vector<std::vector<float>> calls{
          std::vector<float>(static_cast<std::size_t>(elements()), NAN), values(d, 2),
          values(d, 5)};
      test::for_each_order([&] { check_moving(d, calls); });
    }
  }
}

TEST_P(QuantStatistics, SwitchesAreReadOnTheDevice) {
  const QuantDescriptor d = descriptor(Statistics::kCurrent, false);
  const std::vector<float> x = wave(elements(), 2);
  Quantizer quantizer(d);
  quantizer.set_switches(true, false);
  EXPECT_EQ(quantizer(x), x) << "observes, passes";
  const std::vector<float> scale = quantizer.scale();
  EXPECT_GT(scale[0], 0);
  quantizer.set_switches(false, true);
  const std::vector<float> y = quantizer(wave(elements(), 50));
  EXPECT_EQ(quantizer.scale(), scale) << "quantizes, does not observe";
  EXPECT_NE(y, wave(elements(), 50));
}

std::string case_label(const ::testing::TestParamInfo<StatisticsCase>& test) {
  return test.param.name;
}

INSTANTIATE_TEST_SUITE_P(All, QuantStatistics, ::testing::ValuesIn(statistics_cases()), case_label);

TEST(QuantDynamic, QuantizesToCodesAndMask) {
  QuantDescriptor d = fake_quantize({13, 40});
  d.spec.operation = QuantOperation::kQuantize;
  d.granularity = Granularity::kToken;
  d.spec.statistics = Statistics::kDynamic;
  d.spec.symmetric = true;
  d.spec.code_type = CodeType::kS4;
  d.spec.range = {-7, 7};
  const std::vector<float> x = wave(13 * 40, 3);
  const auto ranges = ranges_of(d, 13, x);
  test::for_each_order([&] {
    Quantizer quantizer(d);
    const OnDevice in = OnDevice::of(x);
    const OnDevice codes(std::vector<std::uint8_t>(x.size() / 2, 0xEE));
    const OnDevice mask(std::vector<std::uint8_t>(x.size() / 8, 0xEE));
    const OnDevice workspace(std::vector<std::uint8_t>(quantizer.plan().workspace_bytes()));
    QuantArrays arrays;
    arrays.x = in.span();
    arrays.codes = codes.span();
    arrays.mask = mask.span<std::uint8_t>();
    arrays.scale = quantizer.state().scale;
    arrays.zero_point = quantizer.state().zero_point;
    quantizer.plan().run(nullptr, workspace.span(), arrays);
    const std::vector<std::uint8_t> packed = codes.host(), bits = mask.host();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Chosen chosen = choose(ranges[i / 40], d.spec.range, true);
      const auto e = reference::element<float>(static_cast<double>(x[i]),
                                               static_cast<double>(chosen.scale), 0, d.spec.range);
      ASSERT_EQ(reference::code_at(d.spec.code_type, packed, static_cast<std::int64_t>(i)),
                static_cast<std::int32_t>(e.code));
      ASSERT_EQ((bits[i / 8] >> (i % 8) & 1) != 0, e.inside);
    }
  });
}

// One set of two values, and what a plan with statistics makes of them.
struct Pair {
  reference::Values y;
  double scale;
  std::int32_t zero_point;
};

Pair quantize_pair(QuantDescriptor d, double lo, double hi, double average_lo, double average_hi) {
  d.shape = {2};
  const QuantPlan plan = QuantPlan::select(d, test::device());
  const ValueType real = d.spec.value_type == ValueType::kF64 ? ValueType::kF64 : ValueType::kF32;
  reference::Values x(d.spec.value_type, 2), state(real, 3);
  x.set(0, lo);
  x.set(1, hi);
  state.set(0, average_lo);
  state.set(1, average_hi);
  const OnDevice in(x.bytes), out(x.bytes), reals(state.bytes);
  const OnDevice zero_point = OnDevice::of(std::vector<std::int32_t>{-9999});
  const OnDevice initialized(std::vector<std::uint8_t>{1});
  const OnDevice workspace(std::vector<std::uint8_t>(plan.workspace_bytes()));
  const auto bytes = static_cast<std::size_t>(value_bytes(real));
  QuantArrays arrays;
  arrays.x = in.span();
  arrays.y = out.span();
  arrays.range_lo = reals.span(0, bytes);
  arrays.range_hi = reals.span(bytes, bytes);
  arrays.scale = reals.span(2 * bytes, bytes);
  arrays.zero_point = zero_point.span<std::int32_t>();
  arrays.initialized = initialized.span<std::uint8_t>();
  plan.run(nullptr, workspace.span(), arrays);
  state.bytes = reals.host();
  Pair pair{reference::Values(d.spec.value_type, 2), state.get(2),
            zero_point.host<std::int32_t>()[0]};
  pair.y.bytes = out.host();
  return pair;
}

TEST(QuantDynamic, ExtremeValuesOfEveryFormatStayFinite) {
  const std::pair<ValueType, double> largest[] = {
      {ValueType::kF32, static_cast<double>(std::numeric_limits<float>::max())},
      {ValueType::kF64, std::numeric_limits<double>::max()},
      {ValueType::kF16, 65504},
      {ValueType::kBF16, 0x1.FEp127}};
  for (const auto& [type, value] : largest) {
    for (const bool symmetric : {false, true}) {
      SCOPED_TRACE(static_cast<int>(type));
      QuantDescriptor d;
      d.spec.value_type = type;
      d.spec.statistics = Statistics::kDynamic;
      d.spec.symmetric = symmetric;
      const Pair pair = quantize_pair(d, -value, value, 0, 0);
      EXPECT_TRUE(std::isfinite(pair.y.get(0))) << pair.y.get(0);
      EXPECT_TRUE(std::isfinite(pair.y.get(1))) << pair.y.get(1);
    }
  }
}

TEST(QuantDynamic, DenormalExtremesGiveAScale) {
  QuantDescriptor d;
  d.spec.statistics = Statistics::kDynamic;
  d.spec.value_type = ValueType::kF64;
  for (const double lo : {0.0, -4.9e-324, -1e-310}) {
    const Pair pair = quantize_pair(d, lo, 4.9e-324, 0, 0);
    EXPECT_EQ(pair.scale, std::numeric_limits<double>::min());
    EXPECT_EQ(pair.zero_point, 0);
  }
  // A code other than z is no zero, of either sign.
  d.spec.value_type = ValueType::kF16;
  const Pair half = quantize_pair(d, -0x1p-24, 0x1p-23, 0, 0);
  EXPECT_EQ(half.y.get(0), -0x1p-24);
  EXPECT_EQ(half.y.get(1), 0x1p-23);
}

TEST(QuantMoving, AverageSurvivesTheLargestDoublesAndItsOwnRounding) {
  QuantDescriptor d;
  d.spec.value_type = ValueType::kF64;
  d.spec.statistics = Statistics::kCurrent;
  d.spec.averaging_constant = 0.5;
  const double most = std::numeric_limits<double>::max();
  const Pair pair = quantize_pair(d, -most, -most / 2, most / 2, most);
  EXPECT_GT(pair.scale, 0);
  EXPECT_LE(pair.scale, most / 255);  // the average is [-max / 4, max / 4]
  EXPECT_NEAR(pair.zero_point, 127.5, 0.5);
  // 1e300 + (2 - 1e300) is 0: the upper end may not fall below the lower one.
  d.spec.averaging_constant = 1;
  EXPECT_EQ(quantize_pair(d, 2, 2, 1, 1e300).scale, 2.0 / 255);
}

}  // namespace
}  // namespace steelyard::kernels
