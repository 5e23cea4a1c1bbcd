// Scales and zero points where they live.
#pragma once

#include "steelyard/framework/tensor.h"

namespace steelyard::observers {

// Of one or more channels, groups or rows, each of equally many consecutive elements. They need not
// be on the host: kernels choose and use them without it.
struct QParamTensors {
  Tensor scale = {};       // f32 [sets]
  Tensor zero_point = {};  // i32 [sets]; of weights undefined where all are 0
};

}  // namespace steelyard::observers
