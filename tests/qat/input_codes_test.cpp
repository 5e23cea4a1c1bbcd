#include "steelyard/qat/model/input_codes.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "steelyard/layers/containers/sequential.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/prepare/prepare.h"
#include "steelyard/qat/quantizers/fake_quantize.h"

namespace steelyard::qat {
namespace {

using ::testing::HasSubstr;

// What is said of an input with that scale and zero point.
std::string said(const Normalization& normalization, float scale, std::int32_t zero_point) {
  Rng rng(1);
  const auto model = std::make_shared<Sequential>(
      Sequential::NamedChildren{{"fc", std::make_shared<Linear>(LinearOptions{3, 2}, rng)}});
  QuantizeConfig config;
  config.groups.push_back({{"Linear"}, default_w8a8()});
  const PreparedModel prepared = prepare(model, config);
  for (const NamedQuantizer& entry : named_quantizers(*prepared.model)) {
    if (entry.name == "input_quantizer") entry.quantizer->set_qparams(0, scale, zero_point);
  }
  return note_of_bytes_between_codes(*prepared.model, normalization).value_or("");
}

TEST(InputCodes, BytesHalfWayBetweenCodesAreTold) {
  const float step = 2.0F / 255;
  const std::string note = said({{0.5F}, {0.5F}}, step, 128);
  EXPECT_THAT(note, HasSubstr("a mean of 128/255 = 0.501961 in place of 0.500000"));
  // Counted with NumPy: rint(x / step) of x in float64 rounded once, and of x in float32.
  EXPECT_THAT(note, HasSubstr("normalizes in f32 and not in double gives 56 of the 256 bytes"));
  EXPECT_THAT(said({{0.5F, 128.0F / 255, 0.5F}, {0.5F, 0.5F, 0.5F}}, step, 128),
              HasSubstr("a mean of 128/255 = 0.501961 in place of 0.500000 (channel 0), 128/255 = "
                        "0.501961 in place of 0.500000 (channel 2) in data.normalize"));
  EXPECT_EQ(said({{128.0F / 255}, {0.5F}}, step, 128), "");
  EXPECT_EQ(said({{0.0F}, {1.0F}}, 1.0F / 255, 0), "");
  EXPECT_EQ(said({{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}}, 0.0187F, 114), "");
  EXPECT_EQ(said({}, step, 128), "");
}

}  // namespace
}  // namespace steelyard::qat
