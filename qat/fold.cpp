#include "qat/fold.h"

#include <cmath>
#include <stdexcept>

namespace steelyard::qat {

FoldedWeights fold_batch_norm(const Tensor& weight, const Tensor& bias, const BatchNorm2d& norm) {
  const std::int64_t channels = weight.dim(0);
  if (norm.options().channels != channels) {
    throw std::invalid_argument("[fold_batch_norm] expected " + std::to_string(channels) +
                                " channels, got " + std::to_string(norm.options().channels));
  }
  FoldedWeights folded{Tensor::empty(weight.shape()), Tensor::empty({channels})};
  const std::int64_t inner = channels == 0 ? 0 : weight.size() / channels;
  for (std::int64_t c = 0; c < channels; ++c) {
    const double gamma = norm.weight().value().data<float>()[c];
    const double mean = norm.running_mean().data<float>()[c];
    const double variance = norm.running_var().data<float>()[c];
    const double factor = gamma / std::sqrt(variance + norm.options().eps);
    for (std::int64_t i = c * inner; i < (c + 1) * inner; ++i) {
      folded.weight.data<float>()[i] = static_cast<float>(weight.data<float>()[i] * factor);
    }
    const double b = bias.defined() ? bias.data<float>()[c] : 0.0;
    folded.bias.data<float>()[c] =
        static_cast<float>(norm.bias().value().data<float>()[c] + (b - mean) * factor);
  }
  return folded;
}

}  // namespace steelyard::qat
