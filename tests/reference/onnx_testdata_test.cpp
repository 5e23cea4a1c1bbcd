// The cases that ONNX ships for QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear:
// integers must be equal, floats within a rounding.
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "kernels/quant_plan.h"

namespace steelyard::kernels {
namespace {

// Where the cases are: Debian's, or those that the environment names.
std::filesystem::path nodes() {
  const char* newer = std::getenv("STEELYARD_ONNX_NEWER");
  return newer != nullptr ? newer : STEELYARD_ONNX_TESTDATA "/node";
}

// TensorProto.DataType of ONNX 1.16 and later, which Debian's header lacks.
constexpr int kUint4 = 21;
constexpr int kInt4 = 22;

std::optional<CodeType> code_type_of(const onnx::TensorProto& tensor) {
  switch (tensor.data_type()) {
    case onnx::TensorProto::INT8:
      return CodeType::kS8;
    case onnx::TensorProto::UINT8:
      return CodeType::kU8;
    case kInt4:
      return CodeType::kS4;
    case kUint4:
      return CodeType::kU4;
    default:
      return std::nullopt;
  }
}

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

// Packed codes, as ONNX stores them and as we do.
std::vector<std::uint8_t> codes_of(const onnx::TensorProto& tensor) {
  std::vector<std::uint8_t> bytes(tensor.raw_data().begin(), tensor.raw_data().end());
  for (const std::int32_t field : tensor.int32_data()) {
    bytes.push_back(static_cast<std::uint8_t>(field));
  }
  EXPECT_EQ(static_cast<std::int64_t>(bytes.size()),
            packed_bytes(*code_type_of(tensor), size_of(tensor)));
  return bytes;
}

std::vector<std::int32_t> zero_points(const onnx::TensorProto& tensor) {
  const CodeType type = *code_type_of(tensor);
  const std::vector<std::uint8_t> codes = codes_of(tensor);
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < size_of(tensor); ++i) {
    const int bits = code_bits(type);
    const auto byte = static_cast<std::size_t>(i * bits / 8);
    values.push_back(decode_code(static_cast<std::uint32_t>(codes[byte]) >> (i * bits % 8), bits,
                                 code_is_signed(type)));
  }
  return values;
}

// One case: its tensors, and the axis of the node (the operators' default is 1).
struct Case {
  explicit Case(const std::filesystem::path& folder) {
    const auto model = read<onnx::ModelProto>(folder / "model.onnx");
    for (const auto& attribute : model.graph().node(0).attribute()) {
      if (attribute.name() == "axis") axis = static_cast<int>(attribute.i());
      if (attribute.name() == "block_size") block_size = attribute.i();
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
  std::int64_t block_size = 0;
  std::vector<onnx::TensorProto> inputs, outputs;
};

QuantDescriptor descriptor(const Case& one, QuantOperation operation,
                           const onnx::TensorProto& codes) {
  QuantDescriptor d;
  d.operation = operation;
  d.shape = shape_of(codes);
  d.code_type = *code_type_of(codes);
  d.range = whole_range(d.code_type);
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
    if (one.inputs.size() > 2) zero_point = zero_points(one.inputs[2]);
    args.scale = scale.data();
    args.zero_point = zero_point.data();
  }
  std::vector<float> scale;
  std::vector<std::int32_t> zero_point;
  QuantArgs args;
};

bool check_quantize(const Case& one) {
  if (!code_type_of(one.outputs[0])) return false;
  const auto x = raw<float>(one.inputs[0]);
  Parameters parameters(one);
  std::vector<std::uint8_t> codes(codes_of(one.outputs[0]).size());
  parameters.args.x = x.data();
  parameters.args.codes = codes.data();
  QuantPlan::select(descriptor(one, QuantOperation::kQuantize, one.outputs[0]), DeviceType::kCpu)
      .run(nullptr, nullptr, parameters.args);
  EXPECT_EQ(codes, codes_of(one.outputs[0]));
  return true;
}

bool check_dequantize(const Case& one) {
  if (!code_type_of(one.inputs[0])) return false;
  auto codes = codes_of(one.inputs[0]);
  Parameters parameters(one);
  std::vector<float> y(static_cast<std::size_t>(size_of(one.outputs[0])));
  parameters.args.codes = codes.data();
  parameters.args.y = y.data();
  QuantPlan::select(descriptor(one, QuantOperation::kDequantize, one.inputs[0]), DeviceType::kCpu)
      .run(nullptr, nullptr, parameters.args);
  EXPECT_EQ(y, raw<float>(one.outputs[0]));
  return true;
}

bool check_dynamic(const Case& one) {
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
  EXPECT_EQ(codes, codes_of(one.outputs[0]));
  EXPECT_FLOAT_EQ(scale, raw<float>(one.outputs[1])[0]);
  EXPECT_EQ(zero_point, zero_points(one.outputs[2])[0]);
  return true;
}

// Every folder of the test data whose name starts so.
std::vector<std::filesystem::path> folders(const std::string& prefix) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(nodes())) {
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void check_each(const std::string& prefix, int least, bool (*check)(const Case&)) {
  if (!std::filesystem::exists(nodes())) GTEST_SKIP() << "no " << nodes();
  int checked = 0;
  int left_out = 0;
  for (const auto& folder : folders(prefix)) {
    SCOPED_TRACE(folder.filename().string());
    ++(check(Case(folder)) ? checked : left_out);
  }
  EXPECT_GE(checked, least);
  std::printf("%d cases, %d of formats that are not ours\n", checked, left_out);
}

TEST(OnnxTestdata, QuantizeLinear) { check_each("test_quantizelinear", 2, check_quantize); }
TEST(OnnxTestdata, DequantizeLinear) { check_each("test_dequantizelinear", 2, check_dequantize); }
TEST(OnnxTestdata, DynamicQuantizeLinear) {
  check_each("test_dynamicquantizelinear", 6, check_dynamic);
}

}  // namespace
}  // namespace steelyard::kernels
