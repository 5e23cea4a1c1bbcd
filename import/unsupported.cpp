#include "steelyard/import/unsupported.h"

#include "steelyard/framework/tensor/printable.h"

namespace steelyard::imports {
namespace {

std::string message(const std::string& source, const std::vector<UnsupportedNode>& nodes) {
  std::string text = printable(source) + ": " + std::to_string(nodes.size()) +
                     (nodes.size() == 1 ? " node" : " nodes") + " cannot be imported: ";
  for (std::size_t i = 0; i < nodes.size(); ++i) text += (i > 0 ? "; " : "") + to_string(nodes[i]);
  return text;
}

}  // namespace

std::string to_string(const UnsupportedNode& node) {
  return printable(node.node) + " (" + printable(node.op) + "): " + printable(node.reason, 1000);
}

UnsupportedGraph::UnsupportedGraph(const std::string& source, std::vector<UnsupportedNode> nodes)
    : InputError(message(source, nodes)), source_(source), nodes_(std::move(nodes)) {}

}  // namespace steelyard::imports
