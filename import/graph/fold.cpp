#include "steelyard/import/graph/fold.h"

#include <map>

#include "steelyard/import/folds/folds.h"
#include "steelyard/import/unsupported.h"

namespace steelyard::imports {
namespace {

const std::map<std::string, FoldRow>& folds() {
  static const std::map<std::string, FoldRow> kFolds = [] {
    std::map<std::string, FoldRow> all;
    for (const auto& family : {moving_folds(), arithmetic_folds(), reducing_folds()}) {
      for (const FoldRow& row : family) all.emplace(row.op, row);
    }
    return all;
  }();
  return kFolds;
}

constexpr std::int64_t kLargestElement = sizeof(Extent);

std::int64_t elements_of(const FoldInputs& inputs) {
  std::int64_t elements = 0;
  for (const Constant* input : inputs) elements += input == nullptr ? 0 : input->size();
  return elements;
}

// How many products of numbers a product of matrices takes, which is longer than to read them; 0
// for other operations.
std::int64_t products_of(const OnnxNode& node, const FoldInputs& inputs) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (node.op != "MatMul") return 0;
  const Constant &a = required(inputs, 0), &b = required(inputs, 1);
  if (b.shape.empty()) return 0;
  const std::int64_t columns = b.shape.back();
  return columns > 0 && a.size() > kMost / columns ? kMost : a.size() * columns;
}

// The initializer that alone gives the floats of these inputs; "" where several do, or none.
std::string origin_of(const FoldInputs& inputs) {
  std::string origin;
  for (const Constant* input : inputs) {
    if (input == nullptr || !input->floating || input->size() < 2) continue;
    if (!origin.empty() && origin != input->origin) return "";
    origin = input->origin;
    if (origin.empty()) return "";
  }
  return origin;
}

[[noreturn]] void refuse_too_large(const OnnxNode& node, const OnnxModel& model) {
  throw UnsupportedGraph(
      model.source, {{node.label(), node.op,
                      "constants computed from others would take more than 768 MiB and eight times "
                      "what the file's own take"}});
}

}  // namespace

FoldRow one_output(std::string op, std::function<Constant(const OnnxNode&, const FoldInputs&)> f) {
  return {std::move(op), [f = std::move(f)](const OnnxNode& node, const FoldInputs& in) {
            std::vector<Constant> outputs{f(node, in)};
            return outputs;
          }};
}

const Constant& required(const FoldInputs& inputs, std::size_t i) {
  if (i >= inputs.size() || inputs[i] == nullptr) {
    refuse("expected an input " + std::to_string(i + 1));
  }
  return *inputs[i];
}
const Constant* given(const FoldInputs& inputs, std::size_t i) {
  return i < inputs.size() ? inputs[i] : nullptr;
}

Constant list_of(const std::vector<std::int64_t>& values) {
  Constant c{.shape = {std::ssize(values)}};
  for (const std::int64_t v : values) c.integers.push_back({v});
  return c;
}

std::vector<std::int64_t> axes_of(const OnnxNode& node, const FoldInputs& inputs) {
  if (node.has("axes")) return node.integers("axes");
  const Constant* list = given(inputs, 1);
  return list == nullptr ? std::vector<std::int64_t>{} : integers_of(*list, "axes");
}

bool is_folded(const OnnxNode& node) { return node.domain.empty() && folds().contains(node.op); }

std::optional<std::vector<Constant>> fold(const OnnxNode& node, const FoldInputs& inputs,
                                          OnnxModel& model) {
  if (!is_folded(node)) return std::nullopt;
  const auto take = [&](std::int64_t bytes) {
    model.foldable_bytes -= bytes;
    if (model.foldable_bytes < 0) refuse_too_large(node, model);
  };
  // Whatever it makes of them, before it does.
  const std::int64_t elements = elements_of(inputs);
  if (elements > model.foldable_bytes / kLargestElement) refuse_too_large(node, model);
  take(elements + products_of(node, inputs) / 4);
  std::vector<Constant> outputs = folds().at(node.op).compute(node, inputs);
  const std::string origin = node.op == "Constant" ? node.outputs[0] : origin_of(inputs);
  for (Constant& output : outputs) {
    take(output.bytes());
    output.origin = origin;
  }
  return outputs;
}

}  // namespace steelyard::imports
