// Shapes and elements of constants.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/import/onnx/onnx_model.h"

namespace steelyard::imports {

inline constexpr std::int64_t kMostElementsOfAConstant = std::int64_t{1} << 28;
// The most elements of a constant that is larger than those from which it is computed: weights of a
// test file, which are zeros of a given shape; a mask for 4096 positions.
inline constexpr std::int64_t kMostGrownFloats = std::int64_t{1} << 27;
inline constexpr std::int64_t kMostGrownIntegers = std::int64_t{1} << 24;

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
// Completes the axes and steps of a Slice where they are absent: the first axes, in steps of 1.
// Throws Unsupported for lists of other lengths than `starts`.
void complete_slices(const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& ends,
                     std::vector<std::int64_t>& axes, std::vector<std::int64_t>& steps);
SlicedAxis sliced(std::int64_t start, std::int64_t end, std::int64_t step, std::int64_t extent);
// The shape of two that broadcast (NumPy's rule). Throws Unsupported.
Shape broadcast(const Shape& a, const Shape& b);
// The number of elements. Throws Unsupported for more than kMostElementsOfAConstant.
std::int64_t limited_size(const Shape& shape);
// The distance of neighbours of each axis, in elements. Throws Unsupported as limited_size().
std::vector<std::int64_t> strides_of(const Shape& shape);

// A constant of `shape` whose element at a position is that of `x` which `from` gives for it.
// Throws Unsupported where it has more elements than x and `like`, and too many for grown_size().
using Positions = std::vector<std::int64_t>;  // one of each axis
using From = std::function<std::int64_t(const Positions&)>;
Constant rearranged(const Constant& x, Shape shape, const From& from, std::int64_t like = 0);
// A constant broadcast to a shape. Throws Unsupported, for too many elements as rearranged().
Constant expanded(const Constant& x, const Shape& wanted, std::int64_t like = 0);
// The number of elements. Throws Unsupported for more than `like` that are more than
// kMostGrownFloats or kMostGrownIntegers.
std::int64_t grown_size(const Shape& shape, bool floating, std::int64_t like);
// A constant as floats. Throws Unsupported where it holds a whole number that no float does.
Constant as_floats(const Constant& constant);
// A constant with its axes in another order.
Constant transposed(const Constant& constant, const std::vector<std::int64_t>& order);

}  // namespace steelyard::imports
