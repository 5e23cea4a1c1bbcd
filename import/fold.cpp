#include "steelyard/import/fold.h"

#include <map>

#include "steelyard/import/folds/folds.h"

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

std::optional<std::vector<Constant>> fold(const OnnxNode& node, const FoldInputs& inputs,
                                          std::int64_t& foldable_bytes) {
  const auto found = folds().find(node.op);
  if (found == folds().end() || !node.domain.empty()) return std::nullopt;
  std::vector<Constant> outputs = found->second.compute(node, inputs);
  std::int64_t bytes = 0;
  for (const Constant& output : outputs) bytes += output.bytes();
  if (bytes > foldable_bytes) refuse("the constants computed from others are too large together");
  foldable_bytes -= bytes;
  return outputs;
}

}  // namespace steelyard::imports
