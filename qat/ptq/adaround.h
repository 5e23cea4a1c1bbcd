// Learned rounding of weights. Source: Nagel et al., "Up or Down? Adaptive Rounding for
// Post-Training Quantization", arXiv:2004.10568.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"

namespace steelyard::qat {

class QuantizedLayer;

struct AdaRoundOptions {
  std::int64_t samples = 256;  // that the caller gives
  std::int64_t iterations = 1000;
  std::int64_t batch_size = 32;
  double learning_rate = 0.01;   // of Adam
  double regularization = 0.01;  // lambda
  // The exponent of the regularizer, from its first to its last iteration; it begins after a part
  // `warmup` of all.
  double first_beta = 20, last_beta = 2;
  double warmup = 0.2;
  std::uint64_t seed = 1;
};

// What became of a layer.
struct LearnedRounding {
  std::string layer;
  std::int64_t weights = 0;
  std::int64_t changed = 0;  // weights with another code than the nearest
  // Mean squared differences of its output, activation included, to that in float: with the nearest
  // codes, and with those that it has now.
  double nearest_error = 0;
  double error = 0;
};

// What is minimized, in addition to the regularizer: the squared length of the difference between
// `wanted` and the layer's output of `x`, with `weight` in place of its own and its activation
// included; the mean over samples and pixels.
Variable reconstruction_error(QuantizedLayer& layer, const Variable& weight, const Tensor& x,
                              const Tensor& wanted);

// For each layer with quantized weights, in the order in which they compute: learns for each weight
// which of its two neighbouring codes it gets, so that on `inputs` the layer's output, after its
// fused activation, comes near to that of the float network, although its own input is that of the
// network quantized so far (equation 25). A weight that gets another code than the nearest is moved
// to the value of that code; all others stay. Keeps the nearest codes where the learned ones are no
// better on `inputs`. Ranges must be known (qat/ptq/calibrate.h); if weights are observed again,
// their scales may change. The result depends on the options and on how many threads compute.
// Throws TrainingDiverged for values that are not finite, std::invalid_argument for a batch_size
// below 1.
std::vector<LearnedRounding> learn_rounding(Module& model, const Tensor& inputs,
                                            const AdaRoundOptions& options);

}  // namespace steelyard::qat
