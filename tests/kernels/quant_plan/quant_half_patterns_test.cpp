// Every pattern of the two 16-bit floats through fake-quantize, for a thousand parameters.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "tests/kernels/quant_plan/quant_reference.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kPatterns = 65536;

struct Parameters {
  float scale;
  std::int32_t zero_point;
  CodeRange range;
};

Parameters draw(std::mt19937& random) {
  constexpr CodeRange kRanges[] = {{0, 255}, {-127, 127}, {-128, 127}, {0, 15}, {-7, 7}, {-2, 1}};
  const CodeRange range = kRanges[random() % 6];
  const float scale = std::exp2(static_cast<float>(random() % 40000) / 1000.0F - 26.0F);
  const auto codes = static_cast<std::uint32_t>(range.qmax - range.qmin + 1);
  return {scale, range.qmin + static_cast<std::int32_t>(random() % codes), range};
}

// Few codes exist, so the narrowing of each is looked up.
struct Answer {
  std::array<std::uint16_t, 256> of_code{};

  Answer(ValueType type, const Parameters& p) {
    for (std::int32_t code = p.range.qmin; code <= p.range.qmax; ++code) {
      const float value = static_cast<float>(code - p.zero_point) * p.scale;
      of_code[static_cast<std::size_t>(code - p.range.qmin)] =
          type == ValueType::kF16
              ? reference::nearest(static_cast<double>(value), 0x7C00, reference::half_value)
              : reference::nearest(static_cast<double>(value), 0x7F80, reference::bfloat16_value);
    }
  }
};

std::int64_t mismatches(ValueType type, const std::vector<double>& values,
                        const std::vector<std::uint16_t>& x, const Parameters& p) {
  QuantDescriptor d;
  d.spec.value_type = type;
  d.spec.code_type = p.range.qmin < 0 ? CodeType::kS8 : CodeType::kU8;
  d.spec.range = p.range;
  d.shape = {kPatterns};
  std::vector<std::uint16_t> y(x.size());
  std::vector<std::uint8_t> mask(x.size() / 8);
  Parameters copy = p;
  QuantArrays arrays;
  arrays.x = std::as_bytes(std::span(x));
  arrays.y = std::as_writable_bytes(std::span(y));
  arrays.mask = mask;
  arrays.scale = {&copy.scale, 1};
  arrays.zero_point = {&copy.zero_point, 1};
  QuantPlan::select(d, DeviceType::kCpu).run(nullptr, {}, arrays);
  const Answer answer(type, p);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float quotient = static_cast<float>(values[i] / static_cast<double>(p.scale));
    const float u = std::nearbyint(quotient) + static_cast<float>(p.zero_point);
    const bool passes = (mask[i / 8] >> (i % 8) & 1) != 0;
    if (std::isnan(u)) {
      wrong += passes && (y[i] & 0x7FFF) > (type == ValueType::kF16 ? 0x7C00 : 0x7F80) ? 0 : 1;
      continue;
    }
    const float low = static_cast<float>(p.range.qmin);
    const float high = static_cast<float>(p.range.qmax);
    const float code = u < low ? low : u > high ? high : u;
    wrong += y[i] == answer.of_code[static_cast<std::size_t>(code - low)] ? 0 : 1;
    wrong += passes == (u >= low && u <= high) ? 0 : 1;
  }
  return wrong;
}

class HalfPatterns : public ::testing::TestWithParam<ValueType> {};

TEST_P(HalfPatterns, AgreeWithTheOracleForAThousandParameters) {
  std::vector<std::uint16_t> x(kPatterns);
  std::vector<double> values(kPatterns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<std::uint16_t>(i);
    values[i] = GetParam() == ValueType::kF16 ? reference::half_value(x[i])
                                              : reference::bfloat16_value(x[i]);
  }
  std::mt19937 random(11);
  for (int i = 0; i < 1000; ++i) {
    const Parameters p = draw(random);
    ASSERT_EQ(mismatches(GetParam(), values, x, p), 0)
        << "scale " << p.scale << ", zero point " << p.zero_point << ", range [" << p.range.qmin
        << ", " << p.range.qmax << "]";
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfPatterns,
                         ::testing::Values(ValueType::kF16, ValueType::kBF16),
                         [](const ::testing::TestParamInfo<ValueType>& test) {
                           return test.param == ValueType::kF16 ? "f16" : "bf16";
                         });

}  // namespace
}  // namespace steelyard::kernels
