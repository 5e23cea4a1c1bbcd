// Einsum as the operations that it stands for.
#pragma once

#include "steelyard/import/graph/editable_graph.h"

namespace steelyard::imports {

// Replaces each Einsum that is a product of matrices, or a Transpose, by Transpose, Reshape,
// Unsqueeze, MatMul and Squeeze. Of two computed operands each has at most one letter of its own,
// and they share at most one that is added up; a constant operand may have several of both. Others
// stay, and are refused when they are translated.
void spell_out_einsum(EditableGraph& graph);

}  // namespace steelyard::imports
