// Elementwise sum.
#pragma once

#include "steelyard/framework/autograd.h"

namespace steelyard {

// a + b for equal shapes and dtypes (f32 or f64); there is no broadcasting.
Variable add(const Variable& a, const Variable& b);

}  // namespace steelyard
