// The cases that ONNX ships for QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear:
// integers must be equal, floats within a rounding.
#include "tests/reference/onnx_cases.h"

namespace steelyard::kernels::onnx_cases {
namespace {

QuantDescriptor descriptor(const Case& one, QuantOperation operation,
                           const onnx::TensorProto& codes) {
  QuantDescriptor d;
  d.spec.operation = operation;
  d.shape = shape_of(codes);
  d.spec.code_type = *code_type_of(codes);
  d.spec.range = whole_range(d.spec.code_type);
  d.options.axis = one.axis;
  if (one.block_size > 0) {
    d.granularity = Granularity::kGroup;
    d.options.group_size = one.block_size;
  } else if (one.inputs.size() > 1 && size_of(one.inputs[1]) > 1) {
    d.granularity = Granularity::kChannel;
  }
  return d;
}

// Scales and zero points of a case, in arrays that live as long as this.
struct Parameters {
  explicit Parameters(const Case& one)
      : scale(raw<float>(one.inputs[1])), zero_point(scale.size(), 0) {
    if (one.inputs.size() > 2) zero_point = code_values(one.inputs[2]);
    arrays.scale = scale;
    arrays.zero_point = zero_point;
  }
  std::vector<float> scale;
  std::vector<std::int32_t> zero_point;
  QuantArrays arrays;
};

bool check_quantize(const Case& one) {
  if (!code_type_of(one.outputs[0])) return false;
  const auto x = raw<float>(one.inputs[0]);
  Parameters parameters(one);
  std::vector<std::uint8_t> codes(codes_of(one.outputs[0]).size());
  parameters.arrays.x = x;
  parameters.arrays.codes = std::as_writable_bytes(std::span(codes));
  QuantPlan::select(descriptor(one, QuantOperation::kQuantize, one.outputs[0]), DeviceType::kCpu)
      .run(nullptr, {}, parameters.arrays);
  EXPECT_EQ(codes, codes_of(one.outputs[0]));
  return true;
}

bool check_dequantize(const Case& one) {
  if (!code_type_of(one.inputs[0])) return false;
  auto codes = codes_of(one.inputs[0]);
  Parameters parameters(one);
  std::vector<float> y(static_cast<std::size_t>(size_of(one.outputs[0])));
  parameters.arrays.codes = std::as_writable_bytes(std::span(codes));
  parameters.arrays.y = y;
  QuantPlan::select(descriptor(one, QuantOperation::kDequantize, one.inputs[0]), DeviceType::kCpu)
      .run(nullptr, {}, parameters.arrays);
  EXPECT_EQ(y, raw<float>(one.outputs[0]));
  return true;
}

bool check_dynamic(const Case& one) {
  const auto x = raw<float>(one.inputs[0]);
  float scale = 0;
  std::int32_t zero_point = -1;
  std::vector<std::uint8_t> codes(x.size());
  QuantDescriptor d = descriptor(one, QuantOperation::kQuantize, one.outputs[0]);
  d.spec.statistics = Statistics::kDynamic;
  QuantArrays arrays;
  arrays.x = x;
  arrays.scale = {&scale, 1};
  arrays.zero_point = {&zero_point, 1};
  arrays.codes = std::as_writable_bytes(std::span(codes));
  QuantPlan::select(d, DeviceType::kCpu).run(nullptr, {}, arrays);
  EXPECT_EQ(codes, codes_of(one.outputs[0]));
  EXPECT_FLOAT_EQ(scale, raw<float>(one.outputs[1])[0]);
  EXPECT_EQ(zero_point, code_values(one.outputs[2])[0]);
  return true;
}

TEST(OnnxTestdata, QuantizeLinear) { check_each("test_quantizelinear", 2, check_quantize); }
TEST(OnnxTestdata, DequantizeLinear) { check_each("test_dequantizelinear", 2, check_dequantize); }
TEST(OnnxTestdata, DynamicQuantizeLinear) {
  check_each("test_dynamicquantizelinear", 6, check_dynamic);
}

}  // namespace
}  // namespace steelyard::kernels::onnx_cases
