// Constant folding: ONNX operations on known values are computed once, at import.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "steelyard/import/onnx_model.h"

namespace steelyard::imports {

// The outputs of a node whose inputs are these (null where one is absent); nothing for an operation
// that is not computed here. Throws Unsupported for arguments that do not fit and for results that
// are too large.
std::optional<std::vector<Constant>> fold(const OnnxNode& node,
                                          const std::vector<const Constant*>& inputs);

// The number of a constant of one element.
std::optional<double> scalar_of(const Constant& constant);
// Whole numbers without the batch's size. Throws Unsupported that begins with `what` otherwise.
std::vector<std::int64_t> integers_of(const Constant& constant, const std::string& what);
// From 0, for an axis that may count from the end. Throws Unsupported where it is none of them.
std::size_t axis_of(std::int64_t axis, std::size_t rank);
// The positions that Slice takes of an axis: the first, how many, and the step.
struct SlicedAxis {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;
};
SlicedAxis sliced(std::int64_t start, std::int64_t end, std::int64_t step, std::int64_t extent);
// The shape of two that broadcast (NumPy's rule). Throws Unsupported.
Shape broadcast(const Shape& a, const Shape& b);
// A constant with its axes in another order.
Constant transposed(const Constant& constant, const std::vector<std::int64_t>& order);

}  // namespace steelyard::imports
