// The kernels of every family.
#pragma once

#include "kernels/elementwise/elementwise.h"
#include "kernels/transpose/transpose.h"

namespace steelyard::kernels {

using AllKernels = JoinedKernels<ElementwiseKernels, TransposeKernels>;

}  // namespace steelyard::kernels
