// Several tensors of a sample as one row of values.
#pragma once

#include <vector>

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// For tensors [N, ...], at least one and of one dtype, the values of each sample one tensor after
// another, each in row-major order: [N, total]. Throws std::invalid_argument where the batches
// differ.
Variable output_parts(const std::vector<Variable>& outputs);

}  // namespace steelyard
