#include "steelyard/export/onnx/onnx_graph.h"

#include <bit>
#include <string_view>

#include "steelyard/export/packed_codes.h"

namespace steelyard::deploy {

static_assert(std::endian::native == std::endian::little, "raw_data is little-endian");

namespace {

template <typename T>
std::string_view bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

std::string OnnxGraph::floats(const std::string& name, std::span<const float> values,
                              const Shape& shape) {
  return initializer(name, OnnxType::kFloat, shape, bytes_of(values));
}

std::string OnnxGraph::int32s(const std::string& name, std::span<const std::int32_t> values,
                              const Shape& shape) {
  return initializer(name, OnnxType::kInt32, shape, bytes_of(values));
}

std::string OnnxGraph::int64s(const std::string& name, std::span<const std::int64_t> values,
                              const Shape& shape) {
  return initializer(name, OnnxType::kInt64, shape, bytes_of(values));
}

std::string OnnxGraph::codes(const std::string& name, OnnxType type,
                             std::span<const std::int8_t> values, const Shape& shape) {
  return initializer(name, type, shape, packed_codes(values, type == OnnxType::kInt4 ? 4 : 8));
}

std::string OnnxGraph::wide_codes(const std::string& name, OnnxType type,
                                  std::span<const std::int32_t> values, const Shape& shape) {
  // The low half of a code is the same, signed or not.
  std::vector<std::uint16_t> halves;
  for (const std::int32_t value : values) halves.push_back(static_cast<std::uint16_t>(value));
  return initializer(name, type, shape, bytes_of(std::span<const std::uint16_t>(halves)));
}

std::vector<std::int64_t> pads(const std::array<std::int64_t, 2>& padding) {
  return {padding[0], padding[1], padding[0], padding[1]};
}

std::vector<std::int64_t> pair(const std::array<std::int64_t, 2>& extents) {
  return {extents[0], extents[1]};
}

}  // namespace steelyard::deploy
