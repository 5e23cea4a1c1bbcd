// Reductions of constants.
#include "steelyard/import/folds/folds.h"

namespace steelyard::imports {
namespace {

Constant product_of_all(const OnnxNode& node, const FoldInputs& in) {
  const Constant& x = required(in, 0);
  if (x.floating || x.shape.size() != 1) refuse("expected a list of whole numbers");
  Extent product{1};
  for (const Extent& e : x.integers) product = combined('*', product, e);
  Constant y{.shape = {}, .integers = {product}};
  if (node.integer("keepdims", 1) == 1) y.shape = {1};
  return y;
}

}  // namespace

std::vector<FoldRow> reducing_folds() { return {one_output("ReduceProd", product_of_all)}; }

}  // namespace steelyard::imports
