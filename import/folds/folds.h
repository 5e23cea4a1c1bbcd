// The operations that fold() computes, by family.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "steelyard/import/constants.h"
#include "steelyard/import/onnx/onnx_model.h"
#include "steelyard/import/unsupported.h"

namespace steelyard::imports {

using FoldInputs = std::vector<const Constant*>;  // null where one is absent

struct FoldRow {
  std::string op;
  std::function<std::vector<Constant>(const OnnxNode&, const FoldInputs&)> compute;
};
// The row of an operation with one output.
FoldRow one_output(std::string op, std::function<Constant(const OnnxNode&, const FoldInputs&)> f);

std::vector<FoldRow> moving_folds();      // other shapes, parts, joins, new constants
std::vector<FoldRow> arithmetic_folds();  // of each element by itself
std::vector<FoldRow> reducing_folds();    // of several elements

// Input i; refuses one that is absent, or gives null.
const Constant& required(const FoldInputs& inputs, std::size_t i);
const Constant* given(const FoldInputs& inputs, std::size_t i);

// Axes of an attribute, which newer operation sets have as an input.
std::vector<std::int64_t> axes_of(const OnnxNode& node, const FoldInputs& inputs);

// The dimensions of `rank` that Shape gives.
struct ShapePart {
  std::int64_t first = 0, end = 0;
};
ShapePart shape_part(const OnnxNode& node, std::int64_t rank);

// A list of whole numbers.
Constant list_of(const std::vector<std::int64_t>& values);

// '+', '-', '*' or '/' of whole numbers that may contain the batch's size. Throws Unsupported where
// no Extent holds the result.
Extent combined(char op, const Extent& a, const Extent& b);

}  // namespace steelyard::imports
