#include "steelyard/export/c/c_move.h"

#include <fmt/format.h>

#include "steelyard/export/c/c_nodes.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

constexpr std::size_t kMovedDims = 6;  // of the kernel

// Fewer dimensions: neighbours that follow each other in input and output are one.
std::vector<CMoved> joined(const std::vector<CMoved>& dims) {
  std::vector<CMoved> result;
  for (const CMoved& dim : dims) {
    if (dim.size == 1) continue;
    if (!result.empty()) {
      CMoved& outer = result.back();
      if (outer.from == dim.size * dim.from && outer.to == dim.size * dim.to) {
        outer = {outer.size * dim.size, dim.from, dim.to};
        continue;
      }
    }
    result.push_back(dim);
  }
  return result;
}

}  // namespace

void add_c_move(CNodes& nodes, const Node& node, std::size_t input, std::vector<CMoved> dims,
                std::int64_t first_from, std::int64_t first_to) {
  dims = joined(dims);
  expect(dims.size() <= kMovedDims, node,
         fmt::format("moves codes along more than {} dimensions", kMovedDims));
  dims.insert(dims.begin(), kMovedDims - dims.size(), {1, 0, 0});
  std::string size, from, to;
  for (const CMoved& dim : dims) {
    const char* separator = size.empty() ? "{" : ", ";
    size += fmt::format("{}{}", separator, dim.size);
    from += fmt::format("{}{}", separator, dim.from);
    to += fmt::format("{}{}", separator, dim.to);
  }
  CFields fields;
  fields.set("size", size + "}").set("from_step", from + "}").set("to_step", to + "}");
  fields.set("from", first_from).set("to", first_to);
  nodes.call_on(input, "move", "move_node", node, fields);
}

}  // namespace steelyard::deploy
