// Values whose batch ONNX has joined with a dimension beside it, as PyTorch's attention joins it
// with the heads: held with the two apart, where what reads them computes the same.
#include <algorithm>
#include <array>

#include "steelyard/import/translator.h"
#include "steelyard/kernels/transpose/transpose.h"

namespace steelyard::imports {
namespace {

// Operations on each element of one computed operand by itself; constants beside it are numbers.
constexpr std::array kElementwise{"Relu",      "LeakyRelu", "Sigmoid", "Tanh",     "Gelu",   "GELU",
                                  "HardSwish", "SiLU",      "Clip",    "Identity", "Dropout"};
constexpr std::array kArithmetic{"Add", "Sub", "Mul", "Div"};

bool is_one_of(const OnnxNode& node, const auto& names) {
  return std::find(names.begin(), names.end(), node.op) != names.end();
}

std::size_t rank_behind_ones(const Shape& shape) {
  const auto first = std::find_if(shape.begin(), shape.end(), [](auto size) { return size != 1; });
  return static_cast<std::size_t>(shape.end() - first);
}

// A transpose of a value of ONNX's `rank`, for an input that has dimension `joined` apart from the
// next.
ApartNode transposed_apart(OnnxNode node, std::size_t rank, std::size_t joined) {
  std::vector<std::int64_t> apart;
  const auto from = static_cast<std::int64_t>(joined);
  for (const std::int64_t axis : perm_of(node, rank)) {
    if (axis == from) joined = apart.size();
    apart.push_back(axis > from ? axis + 1 : axis);
    if (axis == from) apart.push_back(from + 1);
  }
  node.attributes["perm"] = apart;
  return {std::move(node), joined};
}

}  // namespace

ExtentShape onnx_shape(const ImportedValue& value) {
  ExtentShape shape = value.shape;
  if (!value.joined) return shape;
  const auto first = shape.begin() + static_cast<std::ptrdiff_t>(*value.joined);
  *first = elements({first, first + 2});
  shape.erase(first + 1);
  return shape;
}

std::optional<std::size_t> take_batch_apart(const ExtentShape& from, ExtentShape& to) {
  const auto of_batch = [](const Extent& extent) { return extent.of_batch; };
  const auto batch = std::find_if(from.begin(), from.end(), of_batch);
  const auto dim = std::find_if(to.begin(), to.end(), of_batch);
  if (batch == from.end() || batch->value != 1 || dim == to.end() || dim->value <= 1 ||
      to.size() >= kernels::kMostPermuted) {
    return std::nullopt;
  }
  const std::int64_t outside = elements({from.begin(), batch}).value;
  const std::int64_t before = elements({to.begin(), dim}).value;
  if (before < 1 || outside % before != 0) return std::nullopt;
  const std::int64_t count = dim->value, left = outside / before;
  if (left != 1 && left != count) return std::nullopt;
  const std::size_t at = static_cast<std::size_t>(dim - to.begin());
  const Extent one{1, true};
  *dim = left == 1 ? one : Extent{count};
  to.insert(dim + 1, left == 1 ? Extent{count} : one);
  return at;
}

std::optional<ApartNode> Translator::with_batch_apart() {
  const OnnxNode& node = *node_;
  std::vector<const ImportedValue*> values;
  std::size_t behind_ones = 0, constant_rank = 0;  // of constants, the largest
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!has_input(i)) continue;
    if (const ImportedValue& value = input(i); value.known) {
      behind_ones = std::max(behind_ones, rank_behind_ones(value.known->shape));
      constant_rank = std::max(constant_rank, value.known->shape.size());
    } else {
      values.push_back(&value);
    }
  }
  if (values.empty() || !values[0]->joined) return std::nullopt;
  const ImportedValue* first = values[0];
  const std::size_t joined = *first->joined, behind = first->rank() - joined - 2;
  const std::size_t rank = first->rank() - 1;  // ONNX's
  const auto alike = [&](std::size_t dimensions) {
    return std::all_of(values.begin(), values.end(), [&](const ImportedValue* value) {
      return value->joined == joined && value->rank() == first->rank() &&
             std::equal(value->shape.begin(),
                        value->shape.begin() + static_cast<std::ptrdiff_t>(dimensions),
                        first->shape.begin());
    });
  };
  ApartNode apart{node, joined};
  bool fits = is_one_of(node, kElementwise) || node.op == "Reshape" ||
              (node.op == "Gather" && values.size() == 1 && input(1).sample_step != 0);
  if (node.op == "Transpose") {
    apart = transposed_apart(node, rank, joined);
    fits = true;
  } else if (node.op == "Softmax") {
    const std::int64_t axis = node.integer("axis", opset() < 13 ? 1 : -1);
    fits = behind > 0 && (axis == -1 || axis == static_cast<std::int64_t>(rank) - 1);
    apart.node.attributes["axis"] = std::int64_t{-1};
  } else if (node.op == "MatMul") {
    const bool by_matrix = values.size() == 1 && this->value(node.input(0)) != nullptr;
    fits = behind >= (by_matrix ? 1 : 2) && alike(joined + 2);
  } else if (node.op == "Linear") {
    fits = behind > 0;
  } else if (is_one_of(node, kArithmetic)) {
    fits = behind_ones <= behind && constant_rank <= rank && alike(first->rank());
  }
  return fits ? std::optional(apart) : std::nullopt;
}

void Translator::join_batch(const std::string& name) {
  const auto found = values_.find(name);
  if (found == values_.end() || !found->second.joined) return;
  const ExtentShape shape = onnx_shape(found->second);
  const std::string node = add_called(legal(found->second.node) + "_joined", "Reshape",
                                      {node_of(name, false)}, {{"shape", open_sizes(shape)}});
  found->second = {.shape = shape, .node = node, .whole = found->second.whole};
}

void Translator::set_joined(std::optional<std::size_t> dimension) {
  const auto made = values_.find(node_->outputs[0]);
  if (made != values_.end()) made->second.joined = dimension;
}

}  // namespace steelyard::imports
