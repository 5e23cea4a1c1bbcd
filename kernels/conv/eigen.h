// Convolutions by Eigen: the reference, and what computes those that oneDNN does not.
#pragma once

#include "steelyard/kernels/conv/conv.h"

namespace steelyard::kernels::eigen {

// As in conv.h, for non-empty shapes; the bias's gradient is left to others. T is float or double.
template <typename T>
void compute(const Conv2d<T>& k);
template <typename T>
void compute(const Conv2dBackwardInput<T>& k);
template <typename T>
void compute(const Conv2dBackwardWeight<T>& k);

}  // namespace steelyard::kernels::eigen
