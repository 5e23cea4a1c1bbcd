// The operands and weights of recurrent networks.
#pragma once

#include <cstddef>

#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {

// Their places.
namespace gru {
enum Operand : std::size_t {
  kInput,
  kWeight,
  kRecurrent,
  kBias,
  kRecurrentBias,
  kOutput,
  kOperands
};
}
namespace lstm {
enum Operand : std::size_t { kInput, kWeight, kRecurrent, kBias, kOutput, kCell, kOperands };
}

// The outputs of a step, by the recurrent weights of either.
inline std::int64_t recurrent_units(const Node& node) {
  static_assert(std::size_t{gru::kRecurrent} == std::size_t{lstm::kRecurrent});
  return constant_at(node, gru::kRecurrent)->dim(1);
}

// The product of recurrent weights as a node of its own, whose input is the node's output.
inline Node recurrence_of(const Node& node) {
  Node product = node;
  product.inputs = {node.output};
  product.weights = node.recurrent;
  product.recurrent.reset();
  return product;
}

}  // namespace steelyard::deploy
