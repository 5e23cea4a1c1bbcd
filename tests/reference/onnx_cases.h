// ONNX's test cases: their files, tensors and packed codes.
#pragma once

#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/kernels/quant_plan/quant_plan.h"

namespace steelyard::kernels::onnx_cases {

// Where the cases are: Debian's, or those that the environment names.
inline std::filesystem::path nodes() {
  const char* newer = std::getenv("STEELYARD_ONNX_NEWER");
  return newer != nullptr ? newer : STEELYARD_ONNX_TESTDATA "/node";
}

// TensorProto.DataType of ONNX 1.16 and later, which Debian's header lacks.
inline constexpr int kUint4 = 21;
inline constexpr int kInt4 = 22;

inline std::optional<CodeType> code_type_of(const onnx::TensorProto& tensor) {
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

inline std::vector<std::int64_t> shape_of(const onnx::TensorProto& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

inline std::int64_t size_of(const onnx::TensorProto& tensor) {
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
inline std::vector<std::uint8_t> codes_of(const onnx::TensorProto& tensor) {
  std::vector<std::uint8_t> bytes(tensor.raw_data().begin(), tensor.raw_data().end());
  for (const std::int32_t field : tensor.int32_data()) {
    bytes.push_back(static_cast<std::uint8_t>(field));
  }
  EXPECT_EQ(static_cast<std::int64_t>(bytes.size()),
            packed_bytes(*code_type_of(tensor), size_of(tensor)));
  return bytes;
}

inline std::vector<std::int32_t> code_values(const onnx::TensorProto& tensor) {
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

// One case: its node, its tensors, and the axis of the node (the operators' default is 1).
struct Case {
  explicit Case(const std::filesystem::path& folder) : name(folder.filename().string()) {
    const auto model = read<onnx::ModelProto>(folder / "model.onnx");
    node = model.graph().node(0);
    for (const auto& attribute : node.attribute()) {
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

  std::string name;
  onnx::NodeProto node;
  int axis = 1;
  std::int64_t block_size = 0;
  std::vector<onnx::TensorProto> inputs, outputs;
};

// Every folder of the test data whose name starts so.
inline std::vector<std::filesystem::path> folders(const std::string& prefix) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(nodes())) {
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

inline void check_each(const std::string& prefix, int least, bool (*check)(const Case&)) {
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

}  // namespace steelyard::kernels::onnx_cases
