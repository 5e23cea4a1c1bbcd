#include "steelyard/kernels/quant_plan/quant_arguments.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "steelyard/kernels/quant_plan/quant_names.h"

namespace steelyard::kernels {
namespace {

// Memory as addresses; empty where there is none.
struct Extent {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

bool overlap(const Extent& a, const Extent& b) { return a.begin < b.end && b.begin < a.end; }

// One array of a call, and what the plan expects of it.
struct Argument {
  const char* name;
  QuantArray array;
  ArrayType type;
  std::int64_t count;
  bool written;
  const StrideMap* strides = nullptr;  // of values
};

using Arguments = std::array<Argument, 16>;

Arguments arguments_of(const QuantProblem& p, const QuantArrays& a) {
  const bool forward = p.direction == QuantDirection::kForward;
  const bool chosen = p.statistics != Statistics::kGiven;
  const bool averages = chosen && p.statistics != Statistics::kDynamic;
  const ArrayType value = array_type_of(p.value_type);
  const ArrayType real = p.value_type == ValueType::kF64 ? ArrayType::kF64 : ArrayType::kF32;
  const ArrayType code = p.code_type == CodeType::kS8 ? ArrayType::kS8 : ArrayType::kU8;
  const std::int64_t n = p.map.elements;
  const std::int64_t sets = p.map.sets;
  const bool writes_codes = forward && p.operation == QuantOperation::kQuantize;
  return {{{"x", a.x, value, n, false, &p.strides},
           {"grad_y", a.grad_y, value, n, false, &p.strides},
           {"y", a.y, value, n, forward, &p.strides},
           {"grad_x", a.grad_x, value, n, !forward, &p.strides},
           {"codes", a.codes, code, packed_bytes(p.code_type, n), writes_codes},
           {"mask", a.mask, ArrayType::kU8, mask_bytes(n), forward},
           {"scale", a.scale, real, sets, chosen},
           {"zero_point", a.zero_point, ArrayType::kI32, sets, chosen},
           {"grad_scale", a.grad_scale, real, sets, true},
           {"grad_zero_point", a.grad_zero_point, real, sets, true},
           {"non_finite_count", a.non_finite_count, ArrayType::kI64, 1, true},
           {"range_lo", a.range_lo, real, sets, averages},
           {"range_hi", a.range_hi, real, sets, averages},
           {"initialized", a.initialized, ArrayType::kBool, 1, averages},
           {"observing", a.observing, ArrayType::kBool, 1, false},
           {"quantizing", a.quantizing, ArrayType::kBool, 1, false}}};
}

// An array of one of several calls.
struct Placed {
  Extent extent;
  std::size_t item;
  const char* name;
  bool written;
};

// The smallest and the largest offset of an element, in elements.
struct Reach {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

Reach reach_of(const Argument& argument) {
  if (argument.strides == nullptr || argument.strides->dense) return {0, argument.count - 1};
  Reach reach;
  for (int axis = 0; axis < argument.strides->rank; ++axis) {
    const std::int64_t span = (argument.strides->size[axis] - 1) * argument.strides->stride[axis];
    (span < 0 ? reach.first : reach.last) += span;
  }
  return reach;
}

Extent extent_of(const Argument& argument) {
  if (!argument.array.given() || argument.count == 0) return {};
  const Reach reach = reach_of(argument);
  const auto first = reinterpret_cast<std::intptr_t>(argument.array.data);
  const std::int64_t bytes = array_bytes(argument.type);
  return {static_cast<std::uintptr_t>(first + reach.first * bytes),
          static_cast<std::uintptr_t>(first + (reach.last + 1) * bytes)};
}

bool suits(ArrayType expected, ArrayType given) {
  return given == expected || (expected == ArrayType::kBool && given == ArrayType::kU8);
}

std::string length_problem(const Argument& argument) {
  const std::int64_t elements = reach_of(argument).last + 1;
  const std::string name = argument.name;
  if (argument.array.type == ArrayType::kBytes) {
    const std::int64_t bytes = elements * array_bytes(argument.type);
    if (argument.array.count >= bytes) return "";
    return "expected " + name + " of at least " + std::to_string(bytes) + " bytes, got " +
           std::to_string(argument.array.count);
  }
  const bool dense = argument.strides == nullptr || argument.strides->dense;
  const bool right = dense ? argument.array.count == elements : argument.array.count >= elements;
  if (right) return "";
  return "expected " + name + " of " + (dense ? "" : "at least ") + std::to_string(elements) +
         " elements, got " + std::to_string(argument.array.count);
}

// Of one array by itself.
std::string own_problem(const Argument& argument) {
  const QuantArray& array = argument.array;
  const std::string name = argument.name;
  if (array.type != ArrayType::kBytes && !suits(argument.type, array.type)) {
    return "expected " + name + " of type " + name_of(argument.type) + ", got " +
           name_of(array.type);
  }
  if (const std::string problem = length_problem(argument); !problem.empty()) return problem;
  if (argument.written && !array.writable) {
    return "expected " + name + " that may be written, got const elements";
  }
  const std::int64_t alignment = array_bytes(argument.type);
  const auto past =
      reinterpret_cast<std::uintptr_t>(array.data) % static_cast<std::uintptr_t>(alignment);
  if (past == 0) return "";
  return "expected " + name + " aligned to " + std::to_string(alignment) +
         " bytes, got an address " + std::to_string(past) + " past one";
}

// What a call may compute in place.
bool in_place(const Argument& a, const Argument& b) {
  const auto is = [&](std::string_view first, std::string_view second) {
    return a.name == first && b.name == second;
  };
  return a.array.data == b.array.data && (is("x", "y") || is("grad_y", "grad_x"));
}

std::string problem_among(const Arguments& arguments) {
  std::array<Extent, std::tuple_size_v<Arguments>> extents;
  std::ranges::transform(arguments, extents.begin(), extent_of);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    for (std::size_t j = i + 1; j < arguments.size(); ++j) {
      const Argument &a = arguments[i], &b = arguments[j];
      if (!(a.written || b.written) || !overlap(extents[i], extents[j])) continue;
      if (in_place(a, b)) continue;
      return std::string("expected ") + a.name + " and " + b.name +
             " apart or, in place, one array; got memory that overlaps";
    }
  }
  return "";
}

std::string needs(const char* name) { return std::string("needs ") + name + ", got null"; }
std::string takes_no(const char* name, const char* why) {
  return std::string("takes no ") + name + ": " + why;
}

std::string forward_problem(const QuantProblem& p, const QuantArrays& a) {
  const bool quantize = p.operation == QuantOperation::kQuantize;
  const bool dequantize = p.operation == QuantOperation::kDequantize;
  if (!dequantize && !a.x.given()) return needs("x");
  if (!quantize && !a.y.given()) return needs("y");
  if (quantize || dequantize) {
    if (!a.codes.given()) return needs("codes");
    if (a.quantizing.given()) {
      return takes_no("quantizing switch", "codes exist only where it is on");
    }
  } else if (a.codes.given()) {
    return takes_no("codes", "quantize writes them");
  }
  return dequantize && a.mask.given() ? takes_no("mask", "dequantize has none") : "";
}

std::string backward_problem(const QuantProblem& p, const QuantArrays& a) {
  if (!a.grad_y.given()) return needs("grad_y");
  if (!a.grad_x.given()) return needs("grad_x");
  if (p.operation == QuantOperation::kDequantize) return "";
  if (!a.x.given() && !a.mask.given()) {
    return "needs x (to see what was inside) or the mask of the forward, got neither";
  }
  if (a.x.given() && a.mask.given()) return "takes x or the mask of the forward, got both";
  if (!a.x.given() && p.parameter_gradients) {
    return "needs x for the gradients of scale and zero point, got the mask";
  }
  return "";
}

std::string parameter_problem(const QuantProblem& p, const QuantArrays& a) {
  const bool forward = p.direction == QuantDirection::kForward;
  const bool from_mask =
      a.mask.given() && !a.x.given() && !forward && p.operation == QuantOperation::kFakeQuantize;
  if (!from_mask && !a.scale.given()) return needs("scale");
  // A backward pass from the mask, or of dequantize, does not need the code of 0.
  const bool quantizes_again = forward || a.x.given();
  if (!a.zero_point.given()) {
    if (p.statistics != Statistics::kGiven) return needs("zero_point");
    if (quantizes_again && (p.range.qmin > 0 || p.range.qmax < 0)) {
      return "needs zero_point: 0 is no code of " + range_text(p.range);
    }
  }
  if (p.parameter_gradients && !a.grad_scale.given()) return needs("grad_scale");
  for (const QuantArray QuantArrays::*gradient :
       {&QuantArrays::grad_scale, &QuantArrays::grad_zero_point}) {
    if (p.parameter_gradients || !(a.*gradient).given()) continue;
    return takes_no(gradient == &QuantArrays::grad_scale ? "grad_scale" : "grad_zero_point",
                    "set parameter_gradients in the descriptor");
  }
  if (p.statistics == Statistics::kCurrent || p.statistics == Statistics::kDelayed) {
    if (!a.range_lo.given()) return needs("range_lo");
    if (!a.range_hi.given()) return needs("range_hi");
    if (!a.initialized.given()) return needs("initialized");
  }
  return "";
}

}  // namespace

std::string problem_with(const QuantProblem& problem, const QuantArrays& arrays) {
  if (problem.map.elements > 0) {
    const bool forward = problem.direction == QuantDirection::kForward;
    std::string missing =
        forward ? forward_problem(problem, arrays) : backward_problem(problem, arrays);
    if (!missing.empty()) return missing;
  }
  if (problem.map.sets > 0) {
    if (std::string missing = parameter_problem(problem, arrays); !missing.empty()) return missing;
  }
  const Arguments arguments = arguments_of(problem, arrays);
  for (const Argument& argument : arguments) {
    if (!argument.array.given()) continue;
    if (std::string own = own_problem(argument); !own.empty()) return own;
  }
  return problem_among(arguments);
}

std::string problem_between(std::span<const CheckedCall> calls) {
  std::vector<Placed> all;
  for (std::size_t item = 0; item < calls.size(); ++item) {
    for (const Argument& argument : arguments_of(*calls[item].problem, *calls[item].arrays)) {
      const Extent extent = extent_of(argument);
      if (extent.begin < extent.end) all.push_back({extent, item, argument.name, argument.written});
    }
  }
  std::ranges::sort(all, {}, [](const Placed& placed) { return placed.extent.begin; });
  std::vector<Placed> open;  // those that may still reach the next one
  for (const Placed& next : all) {
    std::erase_if(open, [&](const Placed& a) { return a.extent.end <= next.extent.begin; });
    for (const Placed& a : open) {
      if (a.item == next.item || !(a.written || next.written)) continue;
      const Placed &first = a.item < next.item ? a : next, &second = a.item < next.item ? next : a;
      return "item " + std::to_string(second.item) + ": expected " + second.name + " and item " +
             std::to_string(first.item) + "'s " + first.name + " apart; got memory that overlaps";
    }
    open.push_back(next);
  }
  return "";
}

const char* first_over(const QuantProblem& problem, const QuantArrays& arrays, const void* begin,
                       std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  for (const Argument& argument : arguments_of(problem, arrays)) {
    if (overlap(extent_of(argument), {address, address + bytes})) return argument.name;
  }
  return nullptr;
}

QuantArgs pointers_of(const QuantArrays& arrays) {
  const auto bytes = [](const QuantArray& array) { return static_cast<std::uint8_t*>(array.data); };
  QuantArgs args;
  args.x = arrays.x.data;
  args.grad_y = arrays.grad_y.data;
  args.y = arrays.y.data;
  args.grad_x = arrays.grad_x.data;
  args.codes = arrays.codes.data;
  args.mask = bytes(arrays.mask);
  args.scale = arrays.scale.data;
  args.zero_point = static_cast<std::int32_t*>(arrays.zero_point.data);
  args.grad_scale = arrays.grad_scale.data;
  args.grad_zero_point = arrays.grad_zero_point.data;
  args.non_finite_count = static_cast<std::int64_t*>(arrays.non_finite_count.data);
  args.range_lo = arrays.range_lo.data;
  args.range_hi = arrays.range_hi.data;
  args.initialized = bytes(arrays.initialized);
  args.observing = bytes(arrays.observing);
  args.quantizing = bytes(arrays.quantizing);
  return args;
}

}  // namespace steelyard::kernels
