// Normalization by the root mean square.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

struct RmsNormOptions {
  std::int64_t features = 0;
  double eps = 1e-5;
  static constexpr auto fields() {
    return std::tuple(field("features", &RmsNormOptions::features),
                      field("eps", &RmsNormOptions::eps));
  }
};

// Divides every `features` values of the last dimension, which may hold several heads, by their
// root mean square. Parameter weight [features].
class RMSNorm : public Module {
 public:
  // Throws std::invalid_argument on features < 1 or eps <= 0.
  explicit RMSNorm(const RmsNormOptions& options);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "RMSNorm"; }
  std::string description() const override;

 private:
  RmsNormOptions options_;
  Variable weight_;
};

}  // namespace steelyard
