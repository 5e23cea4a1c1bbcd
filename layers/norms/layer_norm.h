// Layer normalization.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

struct LayerNormOptions {
  std::int64_t features = 0;  // the last dimension
  double eps = 1e-5;
  static constexpr auto fields() {
    return std::tuple(field("features", &LayerNormOptions::features),
                      field("eps", &LayerNormOptions::eps));
  }
};

// Normalizes each row of the last dimension by its own moments. Parameters weight and bias [C].
class LayerNorm : public Module {
 public:
  // Throws std::invalid_argument on features < 1 or eps <= 0.
  explicit LayerNorm(const LayerNormOptions& options);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "LayerNorm"; }
  std::string description() const override;

 private:
  LayerNormOptions options_;
  Variable weight_;
  Variable bias_;
};

}  // namespace steelyard
