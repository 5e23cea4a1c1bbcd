// A TFLite file as data: what its flatbuffer holds. Numbers are those of TensorFlow Lite's schema
// (schema.fbs of tflite-micro), version 3.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace steelyard::deploy {

enum class TfliteType : std::int8_t {
  kInt32 = 2,
  kInt16 = 7,
  kInt8 = 9,
  kResource = 13,
  kInt4 = 17
};

enum class TfliteOp : std::int32_t {
  kAdd = 0,
  kAveragePool2d = 1,
  kConcatenation = 2,
  kConv2d = 3,
  kDepthwiseConv2d = 4,
  kFullyConnected = 9,
  kLogistic = 14,
  kMaxPool2d = 17,
  kMul = 18,
  kRelu = 19,
  kReshape = 22,
  kSoftmax = 25,
  kTanh = 28,
  kPad = 34,
  kTranspose = 39,
  kMean = 40,
  kUnidirectionalSequenceLstm = 44,
  kStridedSlice = 45,
  kPadV2 = 60,
  kSlice = 65,
  kTransposeConv = 67,
  kResizeNearestNeighbor = 97,
  kLeakyRelu = 98,
  kQuantize = 114,
  kHardSwish = 117,
  kVarHandle = 142,
  kReadVariable = 143,
  kAssignVariable = 144
};

// A field of a table of options: its number, its bytes (1 or 4) and its value.
struct TfliteField {
  std::uint16_t number = 0;
  int bytes = 4;
  std::int32_t value = 0;
};

// The options of an operator: the number of their table in the union, which is 0 for none.
struct TfliteOptions {
  std::uint8_t table = 0;
  std::vector<TfliteField> fields = {};
  std::vector<std::pair<std::uint16_t, std::string>> texts = {};  // fields that are strings
};

// One scale, or one for each slice along the axis; as many zero points.
struct TfliteQuantization {
  std::vector<float> scales;
  std::vector<std::int64_t> zero_points;
  std::int32_t axis = 0;
};

struct TfliteTensor {
  std::string name;
  std::vector<std::int32_t> shape;  // the batch, 1, included
  TfliteType type = TfliteType::kInt8;
  std::uint32_t buffer = 0;  // index; 0 for what is computed
  std::optional<TfliteQuantization> quantization = {};
  bool is_variable = false;  // computed codes that stay for the next run
};

inline constexpr std::int32_t kNoTfliteTensor = -1;  // an input that is left out

struct TfliteOperator {
  TfliteOp op = TfliteOp::kAdd;
  std::int32_t version = 1;          // of the operation, for LiteRT
  std::vector<std::int32_t> inputs;  // indices of tensors
  std::vector<std::int32_t> outputs;
  TfliteOptions options = {};
  std::vector<std::int32_t> intermediates = {};  // tensors whose quantization LiteRT reads
};

// A tensor under the name that programs know it by.
struct TflitePort {
  std::string name;
  std::int32_t tensor = 0;
};

struct TfliteModel {
  std::string description;
  std::vector<TfliteTensor> tensors;
  std::vector<TfliteOperator> operators;
  std::vector<std::string> buffers{""};  // bytes; the first is empty
  std::vector<TflitePort> inputs, outputs;
  std::vector<std::pair<std::string, std::uint32_t>> metadata;  // names, indices of buffers
};

// Whether this build writes TFLite files.
bool can_write_tflite();
// The bytes of the file. Throws std::runtime_error in a build without flatbuffers.
std::string tflite_bytes(const TfliteModel& model);

}  // namespace steelyard::deploy
