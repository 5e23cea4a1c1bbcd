// What an import knows of values: shapes, constants, and what follows from them.
#include <algorithm>
#include <set>

#include "steelyard/import/folds/folds.h"
#include "steelyard/import/graph/fold.h"
#include "steelyard/import/translator.h"

namespace steelyard::imports {

namespace {

// The shape that a repeated constant has in ONNX.
ExtentShape repeated_shape(const ImportedValue& value) {
  ExtentShape shape;
  for (const std::int64_t size : value.known->shape) shape.push_back({size});
  shape[*value.repeated] = {1, true};
  return shape;
}

}  // namespace

// A constant that is repeated for each sample: what reads it broadcasts over the batch.
bool Translator::repeats_over_batch(const OnnxNode& node) {
  const bool expands = node.op == "Expand" || node.op == "Tile";
  if (!expands && node.op != "ConstantOfShape") return false;
  const std::size_t at = expands ? 1 : 0;
  if (!input(0).known || !input(at).known) return false;
  Constant sizes = *input(at).known;
  const auto of_batch = std::find(sizes.integers.begin(), sizes.integers.end(), Extent{1, true});
  if (of_batch == sizes.integers.end()) return false;
  *of_batch = {1};
  const auto axis = static_cast<std::size_t>(of_batch - sizes.integers.begin());
  std::int64_t sample_step = 0;
  if (expands) {
    const Shape& shape = input(0).known->shape;
    const std::size_t added = sizes.integers.size() - std::min(shape.size(), sizes.integers.size());
    if (shape.size() > sizes.integers.size() || (axis >= added && shape[axis - added] != 1)) {
      return false;
    }
    // What is repeated already may get more elements, but not the batch once more.
    if (input(0).repeated && (node.op == "Tile" || *input(0).repeated + added != axis)) {
      return false;
    }
    sample_step = input(0).sample_step;
  }
  std::vector<const Constant*> inputs{&sizes};
  if (expands) inputs.insert(inputs.begin(), &*input(0).known);
  auto outputs = fold(node, inputs, model_.model);
  give({.shape = {},
        .known = std::move((*outputs)[0]),
        .repeated = axis,
        .sample_step = sample_step});
  return true;
}

// The numbers of the samples, as masks are looked up by them.
bool Translator::counts_samples(const OnnxNode& node) {
  if (node.op != "Range" || node.inputs.size() != 3) return false;
  const auto is = [&](std::size_t i, const Extent& extent) {
    const auto& known = input(i).known;
    return known && !known->floating && known->size() == 1 && known->integers[0] == extent;
  };
  if (!is(0, {0}) || !is(1, {1, true}) || !is(2, {1})) return false;
  give({.shape = {},
        .known = Constant{.shape = {1}, .integers = {{0}}},
        .repeated = 0,
        .sample_step = 1});
  return true;
}

// Of the output of a node that reads repeated constants. Refuses what has no such step.
std::int64_t Translator::sample_step_of(const OnnxNode& node) {
  const auto step = [&](std::size_t i) { return has_input(i) ? input(i).sample_step : 0; };
  bool counts = false, computed = false;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    counts = counts || step(i) != 0;
    computed = computed || (has_input(i) && !input(i).known);
  }
  if (!counts) return 0;
  if (computed && node.op == "Gather") return 0;  // which looks at it (ops/lookups.cpp)
  if (!computed && (node.op == "Unsqueeze" || node.op == "Cast")) return step(0);
  if (!computed && node.inputs.size() == 2) {
    if (node.op == "Add") return imports::combined('+', Extent{step(0)}, Extent{step(1)}).value;
    const std::size_t at = step(0) != 0 ? 0 : 1;
    const Constant& factor = *input(1 - at).known;
    if (node.op == "Mul" && step(1 - at) == 0 && factor.size() == 1 && !factor.floating &&
        !factor.integers[0].of_batch) {
      return imports::combined('*', Extent{step(at)}, factor.integers[0]).value;
    }
  }
  refuse("of the numbers of the samples");
}

// The dimension of the batch in the outputs of a node that reads such constants; nothing for other
// nodes. Refuses what does not broadcast over the batch.
std::optional<std::size_t> Translator::read_repeated(const OnnxNode& node) {
  std::optional<std::size_t> axis;
  std::size_t rank = 0;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!has_input(i) || !input(i).repeated) continue;
    axis = input(i).repeated;
    rank = std::max(rank, input(i).known->shape.size());
  }
  if (!axis) return axis;
  const auto is_of_batch = [&](const ImportedValue& value) {
    if (!value.known) return value.rank() == rank && value.shape[*axis] == Extent{1, true};
    const Shape& shape = value.known->shape;
    if (value.repeated) return value.repeated == axis && shape.size() == rank;
    return shape.size() + *axis < rank || (shape.size() == rank && shape[*axis] == 1);
  };
  bool fits = node.op == "LSTM" || node.op == "GRU";
  if (node.op == "Concat") {  // among computed values, or of such constants alone
    bool alone = axis_of(node.integer("axis", 0), rank) != *axis;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      fits = fits || !input(i).known;
      alone = alone && input(i).repeated == axis;
    }
    fits = fits || alone;
  }
  if (node.op == "Gather") fits = !input(0).repeated && node.integer("axis", 0) == 0;
  if (node.op == "GatherElements") {
    fits = axis_of(node.integer("axis", 0), rank) != *axis && is_of_batch(input(0)) &&
           is_of_batch(input(1));
  }
  if (node.op == "Slice") {
    const auto axes = attribute_or_input("axes", 3);
    fits = !axes.empty() && std::all_of(axes.begin(), axes.end(), [&](std::int64_t sliced) {
      return axis_of(sliced, rank) != *axis;
    });
  }
  if (node.op == "Unsqueeze") {
    fits = true;
    const std::vector<std::int64_t> added = attribute_or_input("axes", 1);
    std::set<std::size_t> ones;
    for (const std::int64_t one : added) ones.insert(axis_of(one, rank + added.size()));
    for (const std::size_t one : ones) axis = *axis + (one <= *axis ? 1 : 0);
  }
  if (node.op == "Transpose") {
    fits = true;
    const std::vector<std::int64_t> order = perm_of(node, rank);
    const auto at = std::find(order.begin(), order.end(), static_cast<std::int64_t>(*axis));
    axis = static_cast<std::size_t>(at - order.begin());
  }
  if (node.op == "Split") fits = axis_of(node.integer("axis", 0), rank) != *axis;
  if (node.op == "Cast" || node.op == "Add" || node.op == "Sub" || node.op == "Mul" ||
      node.op == "Div" || node.op == "Where") {
    fits = true;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) fits = fits && is_of_batch(input(i));
  }
  if (!fits) {
    const bool supported = find_operation(node) != nullptr || is_folded(node);
    refuse(supported ? "of a constant that is repeated for each sample" : kNotSupported);
  }
  return axis;
}

// Shapes are known, and what follows from known values alone.
bool Translator::know(const OnnxNode& node) {
  if (!node.domain.empty()) return false;
  if (repeats_over_batch(node) || counts_samples(node)) return true;
  if (node.op == "Shape" && (!input(0).known || input(0).repeated)) {
    const ExtentShape all = input(0).known ? repeated_shape(input(0)) : onnx_shape(input(0));
    const auto [first, end] = shape_part(node, std::ssize(all));
    const ExtentShape shape(all.begin() + first, all.begin() + end);
    give({.shape = {}, .known = Constant{.shape = {std::ssize(shape)}, .integers = shape}});
    return true;
  }
  const std::optional<std::size_t> repeated = read_repeated(node);
  const std::int64_t sample_step = repeated ? sample_step_of(node) : 0;
  if (node.op == "Size" && !input(0).known) {
    give({.shape = {}, .known = Constant{.shape = {}, .integers = {elements(input(0).shape)}}});
    return true;
  }
  std::vector<const Constant*> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!has_input(i)) {
      inputs.push_back(nullptr);
      continue;
    }
    if (!input(i).known) return false;
    inputs.push_back(&*input(i).known);
  }
  auto outputs = fold(node, inputs, model_.model);
  if (!outputs) {
    if (inputs.empty() || node.op == "Resize") return false;
    refuse("all of its inputs are constants");
  }
  for (std::size_t i = 0; i < node.outputs.size() && i < outputs->size(); ++i) {
    give({.shape = {},
          .known = std::move((*outputs)[i]),
          .repeated = repeated,
          .sample_step = sample_step},
         i);
  }
  return true;
}

}  // namespace steelyard::imports
