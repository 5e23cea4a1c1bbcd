#include "steelyard/runtime/op_info.h"

#include <algorithm>
#include <stdexcept>

#include "steelyard/runtime/ops/rows.h"  // IWYU pragma: keep: by the macro

namespace steelyard::deploy {

// In the order of Op.
const std::vector<OpInfo>& op_table() {
  static const std::vector<OpInfo> kTable{
#define STEELYARD_OP(enumerator, row) row##_op(),
      STEELYARD_DEPLOYED_OPS(STEELYARD_OP)
#undef STEELYARD_OP
  };
  return kTable;
}

const OpInfo& op_info(Op op) {
  const std::vector<OpInfo>& table = op_table();
  const auto number = static_cast<std::size_t>(op);
  if (number < table.size()) return table[number];
  throw std::invalid_argument("[graph] expected one of " + std::to_string(table.size()) +
                              " operations, got number " + std::to_string(number));
}

int version_of_node(const Graph& graph, const Node& node) {
  const OpInfo& info = op_info(node.op);
  const int form = info.later_version == nullptr ? 0 : info.later_version(graph, node);
  return std::max({info.graph_version.number, form, node.constants.empty() ? 0 : 5});
}

const OpInfo* find_op(std::string_view name) {
  for (const OpInfo& info : op_table()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

const char* op_name(Op op) { return op_info(op).name; }

}  // namespace steelyard::deploy
