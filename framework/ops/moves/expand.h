// Repeated elements.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// x repeated along the axes where it has size 1, or none, to that shape. Throws
// std::invalid_argument where it does not broadcast to it.
Variable expand(const Variable& x, const Shape& shape);

}  // namespace steelyard
