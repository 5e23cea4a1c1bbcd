#include "steelyard/qat/model/range_check.h"

#include <gtest/gtest.h>

#include <cmath>

namespace steelyard::qat {
namespace {

// A bell of 4,000 values around 0, -3.5 to 3.5.
std::vector<float> bell() {
  std::vector<float> values;
  for (int i = 0; i < 4000; ++i) {
    const double p = (i + 0.5) / 4000;
    values.push_back(static_cast<float>(std::log(p / (1 - p)) * 0.39));
  }
  return values;
}

// What is said of a symmetric quantizer with codes up to `largest` for these values; nothing: "".
template <typename Quantizer = ActivationQuantizer>
std::string verdict(int bits, double largest, const std::vector<float>& values) {
  Quantizer quantizer(QuantizerConfig{{.bits = bits}, {}});
  quantizer.set_qparams(0, static_cast<float>(largest / quantizer.code_range().qmax), 0);
  MeasuredTensor tensor{.name = "fc.output_quantizer", .quantizer = &quantizer};
  tensor.error.emplace();
  add_error(*tensor.error, quantizer, values);
  const auto found = doubtful_ranges({&tensor, 1});
  return found.empty() ? "" : to_string(found[0]);
}

TEST(RangeCheck, SaysWhichRangesAreWrong) {
  struct Case {
    int bits;
    double largest;
    const char* said;
  };
  const Case cases[] = {
      {8, 3.5, ""}, {8, 3, ""}, {8, 1.5, "too narrow"}, {8, 70, "too wide"}, {8, 20, ""},
      {4, 3.5, ""}, {4, 2, ""}, {4, 0.5, "too narrow"}, {2, 1, ""},          {2, 0.2, "too narrow"},
  };
  for (const Case& c : cases) {
    const std::string said = verdict(c.bits, c.largest, bell());
    const bool found = *c.said != '\0' && said.find(c.said) != std::string::npos;
    EXPECT_TRUE(found || said.empty()) << c.bits << " bits, " << c.largest << ": " << said;
    EXPECT_EQ(said.empty(), *c.said == '\0') << c.bits << " bits, " << c.largest << ": " << said;
  }
}

// Their observers see them whole, so that only a frozen range can be too narrow.
TEST(RangeCheck, SaysWhichWeightsOutgrewTheirRange) {
  const auto of_weights = [](int bits, double largest) {
    return verdict<WeightQuantizer>(bits, largest, bell());
  };
  EXPECT_NE(of_weights(8, 0.1).find("too narrow"), std::string::npos);
  EXPECT_EQ(of_weights(8, 3.5), "");
  EXPECT_EQ(of_weights(2, 3.5), "");
  EXPECT_EQ(of_weights(8, 70), "") << "too wide costs resolution alone";
}

TEST(RangeCheck, SaysItInOneLine) {
  std::vector<float> values(100, 1.0F);
  for (int i = 0; i < 5; ++i) values[static_cast<std::size_t>(i)] = 2;
  EXPECT_EQ(verdict(8, 1, values), "fc.output: too narrow, 5.00 % clipped, SQNR 13.6 dB at 8 bits");
}

TEST(RangeCheck, LeavesAloneWhatSaysNothing) {
  EXPECT_EQ(verdict(8, 1, std::vector<float>(10, 0.0F)), "") << "no signal";
  EXPECT_EQ(verdict(8, 1, {}), "");
  // A few values clipped are what percentiles are for.
  std::vector<float> values = bell();
  values[0] = -6;
  EXPECT_EQ(verdict(8, 3.5, values), "");
}

}  // namespace
}  // namespace steelyard::qat
