// The cases that ONNX ships for QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear:
// integers must be equal, floats within a rounding.
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/quant_plan.h"

namespace steelyard::kernels {
namespace {

const std::filesystem::path kNodes = STEELYARD_ONNX_TESTDATA "/node";

template <typename Message>
Message read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  Message message;
  EXPECT_TRUE(message.ParseFromIstream(&file)) << path;
  return message;
}

std::vector<std::int64_t> shape_of(const onnx::TensorProto& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

std::int64_t size_of(const onnx::TensorProto& tensor) {
  std::int64_t size = 1;
  for (const std::int64_t dim : tensor.dims()) size *= dim;
  return size;
}

template <typename T>
std::vector<T> raw(const onnx::TensorProto& tensor) {
  std::vector<T> values(static_cast<std::size_t>(size_of(tensor)));
  EXPECT_EQ(tensor.raw_data().size(), values.size() * sizeof(T)) << tensor.name();
  std::copy_n(tensor.raw_data().data(),
              std::min(tensor.raw_data().size(), values.size() * sizeof(T)),
              reinterpret_cast<char*>(values.data()));
  return values;
}

std::vector<std::int32_t> zero_points(const onnx::TensorProto& tensor) {
  if (tensor.data_type() == onnx::TensorProto::INT8) {
    const auto values = raw<std::int8_t>(tensor);
    return {values.begin(), values.end()};
  }
  EXPECT_EQ(tensor.data_type(), onnx::TensorProto::UINT8);
  const auto values = raw<std::uint8_t>(tensor);
  return {values.begin(), values.end()};
}

// One case: its tensors, and the axis of the node (the operators' default is 1).
struct Case {
  explicit Case(const std::filesystem::path& folder) {
    const auto model = read<onnx::ModelProto>(folder / "model.onnx");
    for (const auto& attribute : model.graph().node(0).attribute()) {
      if (attribute.name() == "axis") axis = static_cast<int>(attribute.i());
    }
    for (int i = 0; std::filesystem::exists(folder / "test_data_set_0" / file("input", i)); ++i) {
      inputs.push_back(read<onnx::TensorProto>(folder / "test_data_set_0" / file("input", i)));
    }
    for (int i = 0; std::filesystem::exists(folder / "test_data_set_0" / file("output", i)); ++i) {
      outputs.push_back(read<onnx::TensorProto>(folder / "test_data_set_0" / file("output", i)));
    }
  }
  static std::string file(const char* kind, int index) {
    return std::string(kind) + "_" + std::to_string(index) + ".pb";
  }

  int axis = 1;
  std::vector<onnx::TensorProto> inputs, outputs;
};

QuantDescriptor descriptor(const Case& one, QuantOperation operation,
                           const onnx::TensorProto& codes) {
  QuantDescriptor d;
  d.operation = operation;
  d.shape = shape_of(codes);
  d.code_type = codes.data_type() == onnx::TensorProto::INT8 ? CodeType::kS8 : CodeType::kU8;
  d.range = whole_range(d.code_type);
  if (one.inputs.size() > 1 && size_of(one.inputs[1]) > 1) {
    d.granularity = Granularity::kChannel;
    d.options.axis = one.axis;
  }
  return d;
}

void check_quantize(const Case& one) {
  const auto x = raw<float>(one.inputs[0]);
  auto scale = raw<float>(one.inputs[1]);
  auto zero_point = zero_points(one.inputs[2]);
  std::vector<std::uint8_t> codes(x.size());
  QuantArgs args;
  args.x = x.data();
  args.scale = scale.data();
  args.zero_point = zero_point.data();
  args.codes = codes.data();
  QuantPlan::select(descriptor(one, QuantOperation::kQuantize, one.outputs[0]), DeviceType::kCpu)
      .run(nullptr, nullptr, args);
  EXPECT_EQ(codes, raw<std::uint8_t>(one.outputs[0]));
}

void check_dequantize(const Case& one) {
  auto codes = raw<std::uint8_t>(one.inputs[0]);
  auto scale = raw<float>(one.inputs[1]);
  auto zero_point = zero_points(one.inputs[2]);
  std::vector<float> y(codes.size());
  QuantArgs args;
  args.codes = codes.data();
  args.scale = scale.data();
  args.zero_point = zero_point.data();
  args.y = y.data();
  QuantPlan::select(descriptor(one, QuantOperation::kDequantize, one.inputs[0]), DeviceType::kCpu)
      .run(nullptr, nullptr, args);
  EXPECT_EQ(y, raw<float>(one.outputs[0]));
}

void check_dynamic(const Case& one) {
  const auto x = raw<float>(one.inputs[0]);
  float scale = 0;
  std::int32_t zero_point = -1;
  std::vector<std::uint8_t> codes(x.size());
  QuantDescriptor d = descriptor(one, QuantOperation::kQuantize, one.outputs[0]);
  d.statistics = Statistics::kDynamic;
  QuantArgs args;
  args.x = x.data();
  args.scale = &scale;
  args.zero_point = &zero_point;
  args.codes = codes.data();
  QuantPlan::select(d, DeviceType::kCpu).run(nullptr, nullptr, args);
  EXPECT_EQ(codes, raw<std::uint8_t>(one.outputs[0]));
  EXPECT_FLOAT_EQ(scale, raw<float>(one.outputs[1])[0]);
  EXPECT_EQ(zero_point, zero_points(one.outputs[2])[0]);
}

// Every folder of the test data whose name starts so.
std::vector<std::filesystem::path> folders(const std::string& prefix) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(kNodes)) {
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void check_each(const std::string& prefix, std::size_t least, void (*check)(const Case&)) {
  if (!std::filesystem::exists(kNodes)) GTEST_SKIP() << "no " << kNodes;
  const auto found = folders(prefix);
  EXPECT_GE(found.size(), least);
  for (const auto& folder : found) {
    SCOPED_TRACE(folder.filename().string());
    check(Case(folder));
  }
}

TEST(OnnxTestdata, QuantizeLinear) { check_each("test_quantizelinear", 2, check_quantize); }
TEST(OnnxTestdata, DequantizeLinear) { check_each("test_dequantizelinear", 2, check_dequantize); }
TEST(OnnxTestdata, DynamicQuantizeLinear) {
  check_each("test_dynamicquantizelinear", 6, check_dynamic);
}

}  // namespace
}  // namespace steelyard::kernels
