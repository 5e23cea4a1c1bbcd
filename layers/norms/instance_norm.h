// Instance normalization.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

struct InstanceNormOptions {
  std::int64_t channels = 0;  // the last dimension
  double eps = 1e-5;
  static constexpr auto fields() {
    return std::tuple(field("channels", &InstanceNormOptions::channels),
                      field("eps", &InstanceNormOptions::eps));
  }
};

// Normalizes each channel of each sample by its own mean and variance over all dimensions between
// the batch and the channels, in training and evaluation alike. Parameters weight and bias [C].
// Source: Ulyanov et al., arXiv:1607.08022.
class InstanceNorm : public Module {
 public:
  // Throws std::invalid_argument on channels < 1 or eps <= 0.
  explicit InstanceNorm(const InstanceNormOptions& options);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "InstanceNorm"; }
  std::string description() const override;

 private:
  InstanceNormOptions options_;
  Variable weight_;
  Variable bias_;
};

}  // namespace steelyard
