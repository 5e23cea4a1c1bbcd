// The backward pass that tells which gradients are final while it computes the others.
#pragma once

#include <functional>

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// Called with a leaf whose gradient is final.
using LeafReady = std::function<void(GradNode&)>;

// The implementation of output.backward(grad_output). `ready`, if given, is called once for every
// leaf on the tape that requires a gradient, whether or not a gradient has reached it.
void backward(const Variable& output, const Tensor& grad_output, const LeafReady& ready);

}  // namespace steelyard
