// Ranges of weights that were set rather than trained.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::qat {

// Lets the observers of weights in `model` start anew on the weights as they are, with what the
// rules for bias scales ask of inputs' scales. Everything else stays: ranges of activations, scales
// that learn, ranges that are frozen, switches. Does nothing before the first training step (no
// range is known then). `sample` is the shape of one input, batch included.
void observe_weights(Module& model, const Shape& sample);

}  // namespace steelyard::qat
