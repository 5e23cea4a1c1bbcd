// The common part of linear, conv2d and conv_transpose2d: sums of products with weights, in
// integers or in float.
#pragma once

#include <memory>
#include <vector>

#include "steelyard/runtime/ops/products/products.h"
#include "steelyard/runtime/ops/windows.h"

namespace steelyard::deploy {

// Checks that weights, scales and bias fit each other, the input and the output, and int32.
void check_weights(const Graph& graph, const Node& node);

// The operation as plain loops over patches of the input.
void run_linear_map(const Operands& op, const Windows& windows);

// A node's integer weights as the kernels of training take them, with the scales of its products,
// or the floats of a linear one, or the table of an operation that is computed byte by byte; else
// null.
std::shared_ptr<PreparedNode> prepared_node(const Graph& graph, const Node& node);
// The same; a weight that products pack is no longer the node's, which keeps its shape.
std::shared_ptr<const PreparedNode> lean_node(const Graph& graph, Node& node);

// The float product of a linear node, to the bit that of the plain loops; false for an integer one.
bool run_float_rows(const Operands& op);

// The integer product on the exact kernels that training runs; false for a float one.
bool run_linear_map(const Operands& op);

// The factors from sums of its products to codes in fixed point, one for each scale of its weights.
std::vector<kernels::FixedMultiplier> fixed_factors(const Graph& graph, const Node& node);

}  // namespace steelyard::deploy
