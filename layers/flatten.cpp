#include "steelyard/layers/flatten.h"

#include "steelyard/framework/ops/moves/flatten.h"

namespace steelyard {

Variable Flatten::forward(const Variable& x, ForwardContext&) { return flatten(x); }

}  // namespace steelyard
