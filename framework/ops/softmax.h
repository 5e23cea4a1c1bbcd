// Softmax.
#pragma once

#include "steelyard/framework/autograd.h"

namespace steelyard {

// exp(x) / sum of exp(x) along the last dimension. Keeps its output for backward.
Variable softmax(const Variable& x);

}  // namespace steelyard
