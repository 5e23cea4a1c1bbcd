// The backward pass that tells which gradients are final while it computes the others.
#pragma once

#include <functional>

#include "steelyard/framework/autograd.h"

namespace steelyard {

// Called with a leaf whose gradient nothing that is still to come changes.
using LeafReady = std::function<void(GradNode&)>;

// What output.backward(grad_output) does. `ready`, where it is given, is called once for every leaf
// on the tape that requires a gradient, whether or not one has reached it.
void backward(const Variable& output, const Tensor& grad_output, const LeafReady& ready);

}  // namespace steelyard
