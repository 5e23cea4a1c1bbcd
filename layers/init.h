// Initial values of parameters.
#pragma once

#include <cstdint>

#include "framework/rng.h"
#include "framework/tensor.h"

namespace steelyard {

// An f32 tensor, uniform in [-b, b) with b = 1 / sqrt(fan_in): PyTorch's default for the weights
// and biases of Linear and Conv2d (He et al., ICCV 2015, with a = sqrt(5)). fan_in > 0.
Tensor fan_in_uniform(Shape shape, std::int64_t fan_in, Rng& rng);

}  // namespace steelyard
