// Images of other sizes.
#pragma once

#include <vector>

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// How one dimension is resized: each output is a weighted sum of inputs.
struct ResizedAxis {
  std::int64_t repeats = 0;  // each input so often, of any number; 0: by the weights
  std::int64_t inputs = 0;   // sizes, of weights
  std::int64_t outputs = 0;
  std::vector<double> weights{};  // [outputs, inputs]
};

// x [N, H, W, C] of any dtype with every row and column so often, once or more.
Tensor repeated(const Tensor& x, std::int64_t rows, std::int64_t columns);
// The gradient of that: sums of what came from one pixel.
Tensor repeated_gradient(const Tensor& grad, std::int64_t rows, std::int64_t columns);

// y[N, OH, OW, C] of x[N, H, W, C]. Throws std::invalid_argument where x has other sizes than the
// weights, and for negative repeats.
Variable resize(const Variable& x, const ResizedAxis& height, const ResizedAxis& width);

}  // namespace steelyard
