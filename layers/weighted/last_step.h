// What recurrent layers give where only their last output is asked for.
#pragma once

#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/moves/slice.h"

namespace steelyard {

// Of the outputs of all steps [N, L, units] those of the last one computed, [N, units].
inline Variable last_step(const Variable& outputs, bool reverse) {
  const std::int64_t samples = outputs.dim(0), units = outputs.dim(2);
  const std::int64_t last = reverse ? 0 : outputs.dim(1) - 1;
  return reshape(slice(outputs, {{0, samples, 1}, {last, 1, 1}, {0, units, 1}}), {samples, units});
}

}  // namespace steelyard
