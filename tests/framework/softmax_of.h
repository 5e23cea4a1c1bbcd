// What tests of losses compare with.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::testing {

// softmax(row / temperature) of logits [..., classes] in double.
inline std::vector<double> softmax_of(const Tensor& logits, std::int64_t row,
                                      double temperature = 1) {
  const std::int64_t classes = logits.dim(-1);
  std::vector<double> p;
  double sum = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    p.push_back(std::exp(logits.data<double>()[row * classes + c] / temperature));
    sum += p.back();
  }
  for (double& value : p) value /= sum;
  return p;
}

}  // namespace steelyard::testing
