// Functions that deployed operations share: checks, access to codes, output grids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "steelyard/kernels/broadcast/broadcast.h"
#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/op_info.h"

namespace steelyard::deploy {

// A message with the node's name and operation.
std::string about(const Node& node, const std::string& what);
// Throws it as std::invalid_argument.
[[noreturn]] void fail(const Node& node, const std::string& what);
inline void expect(bool holds, const Node& node, const std::string& what) {
  if (!holds) fail(node, what);
}

// Throws unless each operand of the node has one place, which is a value's or a constant's.
void validate_operands(const Node& node);

// Throws where a weight of the node has its shape alone, as kLean leaves it.
void require_weights(const Node& node);

// Throws where the node's input or output has codes of more than 8 bits.
void require_bytes(const Graph& graph, const Node& node);

// One sample as a batch of one: what the engine's shape functions take.
Shape batched(const Shape& sample);

// The f32 operand at a place: a constant, or a value, dequantized.
Tensor real_operand(const Operands& op, std::size_t place);
// The constant at a place; null where there is a value or nothing.
const Tensor* constant_at(const Node& node, std::size_t place);

// Which of the node's inputs stands at a place that no constant has.
std::size_t input_at(const Node& node, std::size_t place);

// Code i of a tensor of codes.
inline std::int32_t code_at(const Tensor& codes, std::int64_t i) {
  if (codes.dtype() == DType::kI32) return codes.data<std::int32_t>()[i];
  return codes.dtype() == DType::kI8 ? codes.data<std::int8_t>()[i] : codes.data<std::uint8_t>()[i];
}

inline void set_code(const Tensor& codes, std::int64_t i, std::int32_t code) {
  if (codes.dtype() == DType::kI8) {
    codes.data<std::int8_t>()[i] = static_cast<std::int8_t>(code);
  } else if (codes.dtype() == DType::kI32) {
    codes.data<std::int32_t>()[i] = code;
  } else {
    codes.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(code);
  }
}

inline constexpr std::int64_t kElementsForThreads = 1 << 14;  // that pay for waking them

// out[i] = f(i) for every element, floats or codes.
template <typename F>
void fill(float* out, std::int64_t size, const F& f) {
#pragma omp parallel for if (size >= kElementsForThreads)
  for (std::int64_t i = 0; i < size; ++i) out[i] = f(i);
}
template <typename F>
void fill_floats(const Tensor& out, const F& f) {
  fill(out.data<float>(), out.size(), f);
}
template <typename F>
void fill_codes(const Tensor& out, const F& f) {
#pragma omp parallel for if (out.size() >= kElementsForThreads)
  for (std::int64_t i = 0; i < out.size(); ++i) set_code(out, i, f(i));
}

// Whether kernels that walk over strides can walk over the output.
inline bool has_few_axes(const Operands& op) {
  return op.output().rank() <= kernels::kMaxBroadcastAxes;
}

inline constexpr std::int64_t kBytes = 256;

// What the reference of an operation on one value gives for each byte; undefined where a side has
// no codes or wide ones.
Tensor byte_table(const Graph& graph, const Node& node);
// Computes such an operation byte by byte from its table; false where it has none, or none is
// prepared and there are at most 256 elements.
bool map_bytes(const Operands& op);

inline kernels::CodeGrid<float> grid_of(const Quantization& q) {
  return kernels::make_code_grid(q.range, q.scale, q.zero_point);
}

// The output's grid, narrowed to the codes that the fused activation leaves.
inline kernels::CodeGrid<float> output_grid(const Operands& op) {
  const Quantization& q = *op.output_value().quantization;
  return kernels::make_code_grid(kernels::activation_code_range(op.node.activation, q.range,
                                                                q.scale, q.zero_point, q.rounding),
                                 q.scale, q.zero_point);
}

// The code within the output's grid, narrowed as output_grid() does.
inline std::int32_t clamped_code(const Operands& op, std::int32_t code) {
  const Quantization& q = *op.output_value().quantization;
  const kernels::CodeRange left = kernels::activation_code_range(op.node.activation, q.range,
                                                                 q.scale, q.zero_point, q.rounding);
  return std::clamp(code, left.qmin, left.qmax);
}

// The least and the largest of some codes; {127, -128} of none.
kernels::CodeRange range_of(std::span<const std::int8_t> codes);

// The sum of a row of weights times x.
double dot(const float* row, const float* x, std::int64_t count);

}  // namespace steelyard::deploy
