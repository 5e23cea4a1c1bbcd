#include "steelyard/layers/dropout.h"

#include <stdexcept>

#include "steelyard/framework/ops/elementwise/dropout.h"
#include "steelyard/framework/ops/op_support.h"

namespace steelyard {

Dropout::Dropout(double p) : p_(p) {
  if (!(p >= 0.0 && p < 1.0)) {
    throw std::invalid_argument("[Dropout] expected p in [0, 1), got " + std::to_string(p));
  }
}

Variable Dropout::forward(const Variable& x, ForwardContext& context) {
  if (!context.training) return x;
  if (context.rng == nullptr) {
    throw std::invalid_argument("[Dropout] expected a random generator in training, got none");
  }
  return dropout(x, p_, *context.rng);
}

std::string Dropout::description() const { return "Dropout(" + ops::number_text(p_) + ")"; }

}  // namespace steelyard
