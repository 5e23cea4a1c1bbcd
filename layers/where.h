// Choices by a comparison as a layer.
#pragma once

#include <array>
#include <optional>

#include "steelyard/framework/ops/moves/choose.h"
#include "steelyard/framework/tensor/fields.h"
#include "steelyard/layers/containers/graph.h"

namespace steelyard {

// The shapes of the operands that are constants.
struct WhereOptions {
  std::optional<Shape> x{}, y{}, a{}, b{};
  static constexpr auto fields() {
    return std::tuple(field("x_shape", &WhereOptions::x), field("y_shape", &WhereOptions::y),
                      field("a_shape", &WhereOptions::a), field("b_shape", &WhereOptions::b));
  }
};

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
