// An ONNX graph under construction, without the types of protobuf.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::deploy {

enum class OnnxType { kFloat, kInt32, kInt64, kInt16, kUint16, kInt8, kUint8, kInt4 };

struct OnnxAttribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>> value;
};

// The receiver of initializers and nodes, in order.
class OnnxGraph {
 public:
  virtual ~OnnxGraph() = default;

  // Initializers; each returns its name, which is that of an equal one if there is such a matrix.
  std::string floats(const std::string& name, std::span<const float> values, const Shape& shape);
  std::string int32s(const std::string& name, std::span<const std::int32_t> values,
                     const Shape& shape);
  std::string int64s(const std::string& name, std::span<const std::int64_t> values,
                     const Shape& shape);
  // Codes of INT8, UINT8 or INT4, which is packed, the first of two in the low half.
  std::string codes(const std::string& name, OnnxType type, std::span<const std::int8_t> values,
                    const Shape& shape);
  // Codes of INT16 or UINT16, which hold them.
  std::string wide_codes(const std::string& name, OnnxType type,
                         std::span<const std::int32_t> values, const Shape& shape);

  // A node that makes the tensor `output`; an empty input is an absent one.
  void add(const std::string& operation, const std::vector<std::string>& inputs,
           const std::string& output, const std::vector<OnnxAttribute>& attributes = {}) {
    add_all(operation, inputs, {output}, attributes);
  }
  // A node with several outputs, of which empty ones are absent.
  virtual void add_all(const std::string& operation, const std::vector<std::string>& inputs,
                       const std::vector<std::string>& outputs,
                       const std::vector<OnnxAttribute>& attributes) = 0;

 private:
  // Returns the name under which the file has it.
  virtual std::string initializer(const std::string& name, OnnxType type, const Shape& shape,
                                  std::string_view bytes) = 0;
};

// {top, left, bottom, right}.
std::vector<std::int64_t> pads(const std::array<std::int64_t, 2>& padding);
std::vector<std::int64_t> pair(const std::array<std::int64_t, 2>& extents);

}  // namespace steelyard::deploy
