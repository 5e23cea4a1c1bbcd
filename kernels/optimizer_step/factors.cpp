#include <cmath>

#include "steelyard/kernels/optimizer_step/optimizer_step.h"

namespace steelyard::kernels {

void adamw_factors(const AdamWStep& step, double lr, double weight_decay, std::int64_t count,
                   double* factors) {
  const auto exponent = static_cast<double>(count);
  factors[0] = 1 - lr * weight_decay;
  factors[1] = lr / (1 - std::pow(step.beta1, exponent));
  factors[2] = std::sqrt(1 - std::pow(step.beta2, exponent));
}

}  // namespace steelyard::kernels
