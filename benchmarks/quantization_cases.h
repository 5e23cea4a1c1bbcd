// What the quantization benchmarks measure: every operation with every way to share a scale.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/kernels/quant_plan/quant_plan.h"

namespace steelyard::kernels {

// A tensor of n elements, by the granularity that is measured.
struct Sharing {
  const char* name;
  Granularity granularity;
  GranularityOptions options;
  std::vector<std::int64_t> (*shape)(std::int64_t n);
};

inline const std::vector<Sharing>& sharings() {
  using G = Granularity;
  using Shape = std::vector<std::int64_t>;
  static const std::vector<Sharing> all{
      {"tensor", G::kTensor, {}, [](std::int64_t n) { return Shape{n}; }},
      {"channel of 3x3x64",
       G::kChannel,
       {.axis = 0},
       [](std::int64_t n) {
         return Shape{n / 576, 64, 3, 3};
       }},
      {"channel of 7x7 planes",
       G::kChannel,
       {.axis = 1},
       [](std::int64_t n) {
         return Shape{n / 3136, 64, 7, 7};
       }},
      {"channel last of 64",
       G::kChannel,
       {.axis = 1},
       [](std::int64_t n) {
         return Shape{n / 64, 64};
       }},
      {"token of 1024",
       G::kToken,
       {},
       [](std::int64_t n) {
         return Shape{n / 1024, 1024};
       }},
      {"group of 32",
       G::kGroup,
       {.axis = 1, .group_size = 32},
       [](std::int64_t n) {
         return Shape{n / 1024, 1024};
       }},
      {"group of 128",
       G::kGroup,
       {.axis = 1, .group_size = 128},
       [](std::int64_t n) {
         return Shape{n / 1024, 1024};
       }},
      {"block of 16x16",
       G::kBlock,
       {.block_rows = 16, .block_columns = 16},
       [](std::int64_t n) {
         return Shape{n / 1024, 1024};
       }},
  };
  return all;
}

// What moves an operation's values, codes and nothing else: as fast as the operation could be. A
// copy moves as much to memory as from it, an operation seldom does.
enum class Move {
  kCopy,         // values to values
  kTwoToOne,     // values and values to values
  kToBytes,      // values to bytes
  kFromBytes,    // bytes to values
  kReadToBytes,  // values, then values once more to bytes
  kReadCopy      // values, then values once more to values
};
inline constexpr const char* kMoveNames[] = {
    "copy",      "two arrays to one", "values to bytes", "bytes to values", "read, values to bytes",
    "read, copy"};

// What is measured: a plan with its arguments, and the bytes that it has to move.
struct Work {
  const char* name;
  QuantOperation operation;
  QuantDirection direction;
  CodeType code_type;
  Statistics statistics;
  bool mask;        // written forward, read backward
  bool parameters;  // gradients of scale and zero point
  double values;    // arrays of values read and written; codes and mask come on top
  Move move;
};

inline const std::vector<Work>& works() {
  using O = QuantOperation;
  using D = QuantDirection;
  using C = CodeType;
  using S = Statistics;
  using M = Move;
  static const std::vector<Work> all{
      {"fake_quantize forward", O::kFakeQuantize, D::kForward, C::kU8, S::kGiven, false, false, 2,
       M::kCopy},
      {"fake_quantize forward + mask", O::kFakeQuantize, D::kForward, C::kU8, S::kGiven, true,
       false, 2, M::kCopy},
      {"observe + fake_quantize, delayed", O::kFakeQuantize, D::kForward, C::kU8, S::kDelayed,
       false, false, 2, M::kCopy},
      {"observe + fake_quantize, current", O::kFakeQuantize, D::kForward, C::kU8, S::kCurrent,
       false, false, 2, M::kReadCopy},
      {"fake_quantize backward", O::kFakeQuantize, D::kBackward, C::kU8, S::kGiven, false, false, 3,
       M::kTwoToOne},
      {"fake_quantize backward from mask", O::kFakeQuantize, D::kBackward, C::kU8, S::kGiven, true,
       false, 2, M::kCopy},
      {"fake_quantize backward, LSQ", O::kFakeQuantize, D::kBackward, C::kU8, S::kGiven, false,
       true, 3, M::kTwoToOne},
      {"quantize u8", O::kQuantize, D::kForward, C::kU8, S::kGiven, false, false, 1, M::kToBytes},
      {"quantize u8 + mask", O::kQuantize, D::kForward, C::kU8, S::kGiven, true, false, 1,
       M::kToBytes},
      {"quantize s4", O::kQuantize, D::kForward, C::kS4, S::kGiven, false, false, 1, M::kToBytes},
      {"quantize s2", O::kQuantize, D::kForward, C::kS2, S::kGiven, false, false, 1, M::kToBytes},
      {"quantize u8, dynamic", O::kQuantize, D::kForward, C::kU8, S::kDynamic, false, false, 1,
       M::kReadToBytes},
      {"quantize backward", O::kQuantize, D::kBackward, C::kU8, S::kGiven, false, false, 3,
       M::kTwoToOne},
      {"dequantize u8", O::kDequantize, D::kForward, C::kU8, S::kGiven, false, false, 1,
       M::kFromBytes},
      {"dequantize s4", O::kDequantize, D::kForward, C::kS4, S::kGiven, false, false, 1,
       M::kFromBytes},
      {"dequantize backward", O::kDequantize, D::kBackward, C::kU8, S::kGiven, false, false, 2,
       M::kCopy},
  };
  return all;
}

inline double bytes_per_element(const Work& work, ValueType type) {
  const double codes =
      work.operation == QuantOperation::kFakeQuantize || work.direction == QuantDirection::kBackward
          ? 0
          : code_bits(work.code_type) / 8.0;
  return work.values * static_cast<double>(value_bytes(type)) + codes + (work.mask ? 0.125 : 0);
}

// Per element.
inline double bytes_moved(Move move, ValueType type) {
  const double value = static_cast<double>(value_bytes(type));
  switch (move) {
    case Move::kCopy:
      return 2 * value;
    case Move::kTwoToOne:
    case Move::kReadCopy:
      return 3 * value;
    case Move::kToBytes:
    case Move::kFromBytes:
      return value + 1;
    case Move::kReadToBytes:
      return 2 * value + 1;
  }
  return 0;
}

inline bool makes_sense(const Work& work, const Sharing& sharing) {
  // With a mask the gradient has no scale: one sharing stands for all.
  return sharing.granularity == Granularity::kTensor || !work.mask ||
         work.direction == QuantDirection::kForward;
}

inline QuantDescriptor descriptor_of(const Work& work, const Sharing& sharing, ValueType type,
                                     std::int64_t elements) {
  QuantDescriptor d;
  d.spec.operation = work.operation;
  d.spec.direction = work.direction;
  d.granularity = sharing.granularity;
  d.options = sharing.options;
  d.shape = sharing.shape(elements);
  d.spec.value_type = type;
  d.spec.code_type = work.code_type;
  d.spec.range = whole_range(work.code_type);
  d.spec.statistics = work.statistics;
  d.spec.parameter_gradients = work.parameters;
  return d;
}

// Of all arrays that a work may have those that it takes.
inline QuantArrays taken_by(const Work& work, QuantArrays all) {
  const bool forward = work.direction == QuantDirection::kForward;
  if (work.operation == QuantOperation::kDequantize || (!forward && work.mask)) all.x = {};
  if (!forward || work.operation == QuantOperation::kQuantize) all.y = {};
  if (!forward || work.operation == QuantOperation::kFakeQuantize) all.codes = {};
  if (forward) all.grad_y = all.grad_x = {};
  if (!work.mask) all.mask = {};
  if (!work.parameters) all.grad_scale = all.grad_zero_point = {};
  return all;
}

inline const char* name_of(ValueType type) {
  constexpr const char* kNames[] = {"f32", "f64", "f16", "bf16"};
  return kNames[static_cast<int>(type)];
}

}  // namespace steelyard::kernels
