#include "steelyard/layers/weighted/linear.h"

#include <stdexcept>

#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/layers/init.h"

namespace steelyard {

Linear::Linear(const LinearOptions& options, Rng& rng) : options_(options) {
  const std::int64_t in = options.in_features;
  const std::int64_t out = options.out_features;
  if (in < 1 || out < 1) {
    throw std::invalid_argument(
        "[Linear] expected in_features and out_features of at least 1, got " + std::to_string(in) +
        " and " + std::to_string(out));
  }
  weight_ = register_parameter("weight", fan_in_uniform({out, in}, in, rng));
  if (options.bias) bias_ = register_parameter("bias", fan_in_uniform({out}, in, rng));
}

Variable Linear::forward(const Variable& x, ForwardContext&) { return linear(x, weight_, bias_); }

std::string Linear::description() const {
  return "Linear(" + std::to_string(options_.in_features) + ", " +
         std::to_string(options_.out_features) + (options_.bias ? ")" : ", no bias)");
}

}  // namespace steelyard
