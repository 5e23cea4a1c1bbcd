// Choices by a comparison as a layer.
#pragma once

#include <array>

#include "steelyard/framework/ops/moves/choose.h"
#include "steelyard/layers/containers/graph.h"

namespace steelyard {

// choose(): of the operands x, y, a and b those that are defined in `constants` are buffers "x",
// "y", "a" and "b", which do not learn; the others are the inputs, in this order.
class Where : public JoinModule {
 public:
  static constexpr std::array kOperands{"x", "y", "a", "b"};

  // Throws std::invalid_argument where all operands are constants.
  Where(Comparison comparison, const std::array<Tensor, 4>& constants);
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return choice_layer(comparison_); }
  std::string description() const override;

 private:
  Comparison comparison_;
  std::array<Tensor, 4> constants_;
};

}  // namespace steelyard
