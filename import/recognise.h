// Recognises activations and norms that exporters write as several nodes.
#pragma once

#include <optional>

#include "steelyard/import/graph/editable_graph.h"

namespace steelyard::imports {

// One node for the pattern that ends in `node`, which would replace it (simplify.h lists the
// patterns); nothing where it ends none. Values inside of a pattern have no other readers.
std::optional<OnnxNode> recognised(const EditableGraph& graph, const OnnxNode& node);

}  // namespace steelyard::imports
