// The normalization of inputs.
#pragma once

#include <vector>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// y = (x - mean) / stddev per channel (the last dimension of a sample); u8 inputs are scaled by
// 1/255 first. Empty vectors mean no normalization.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> stddev;

  bool operator==(const Normalization& other) const = default;
};

// f32 inputs [N, ..., C] of u8 or f32 ones, normalized as a batch is. Throws InputError on another
// dtype or number of channels.
Tensor normalized(const Tensor& inputs, const Normalization& normalization);

}  // namespace steelyard
