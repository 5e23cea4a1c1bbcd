#include "steelyard/layers/dropout.h"

#include <stdexcept>

#include "steelyard/framework/ops/op_support.h"

namespace steelyard {

Dropout::Dropout(const DropoutOptions& options) : options_(options) {
  if (!(options.p >= 0.0 && options.p < 1.0)) {
    throw std::invalid_argument("[Dropout] expected p in [0, 1), got " + std::to_string(options.p));
  }
}

Variable Dropout::forward(const Variable& x, ForwardContext& context) {
  if (!context.training) return x;
  if (context.rng == nullptr) {
    throw std::invalid_argument("[Dropout] expected a random generator in training, got none");
  }
  return dropout(x, options_, *context.rng);
}

std::string Dropout::description() const {
  const std::string unit =
      options_.unit == DropoutUnit::kElement ? "" : ", " + word_of(options_.unit);
  return "Dropout(" + ops::number_text(options_.p) + unit + ")";
}

}  // namespace steelyard
