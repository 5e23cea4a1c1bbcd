// Images to rows.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// [N, H, W, C] -> [N, C*H*W] in NCHW order, so that a following linear layer takes PyTorch's
// weights; [N, L, C] -> [N, C*L] likewise; a rank-2 input is returned as it is. No copy is made
// when H*W = 1 or C = 1.
Variable flatten(const Variable& x);

}  // namespace steelyard
