// The gate of a feed-forward layer.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// silu(gate) * up, of one shape. Keeps both for backward. Source: Shazeer, arXiv:2002.05202.
Variable swiglu(const Variable& gate, const Variable& up);

}  // namespace steelyard
