// Softmax and its logarithm.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// exp(x) / sum of exp(x) along the last dimension. Keeps its output for backward.
Variable softmax(const Variable& x);
// x - log(sum of exp(x)) along the last dimension, exact also where softmax() is 0. Keeps its
// output for backward.
Variable log_softmax(const Variable& x);

}  // namespace steelyard
