// Scales and zero points as tensors on a device.
#pragma once

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::observers {

// Scales and zero points of one or more channels, groups or rows, each of equally many consecutive
// elements. They need not be on the host: kernels compute and use them there.
struct QParamTensors {
  Tensor scale = {};       // f32 [sets]
  Tensor zero_point = {};  // i32 [sets]; of weights undefined where all are 0
};

}  // namespace steelyard::observers
