// Gated recurrent unit layer.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/ops/products/gru.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

struct GruLayerOptions {
  std::int64_t inputs = 0;
  std::int64_t units = 0;
  GruOptions pass = {};
  // Whether the outputs of all steps are given, [N, L, units], or those of the last one computed,
  // [N, units].
  bool return_sequences = true;
  static constexpr auto fields() {
    return std::tuple_cat(std::tuple(field("inputs", &GruLayerOptions::inputs),
                                     field("units", &GruLayerOptions::units)),
                          fields_within(&GruLayerOptions::pass),
                          std::tuple(field("return_sequences", &GruLayerOptions::return_sequences,
                                           /*optional=*/true)));
  }
};

// gru() (framework/ops/products/gru.h) of x [N, L, inputs] in one direction. Parameters weight
// [3 units, inputs], recurrent_weight [3 units, units], bias [3 units] and recurrent_bias [units],
// uniform in [-1, 1] / sqrt(units) as in PyTorch, gates in the order update, reset, new. The buffer
// first_output [units], zero, is the output before the first step.
class GRU : public Module {
 public:
  // Throws std::invalid_argument on sizes below 1.
  GRU(const GruLayerOptions& options, Rng& rng);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "GRU"; }
  std::string description() const override;

 private:
  GruLayerOptions options_;
  GruParameters parameters_;  // without the output before the first step
  Tensor first_output_;
};

}  // namespace steelyard
