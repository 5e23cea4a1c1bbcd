// Validation of the quantizer states in a checkpoint.
#pragma once

#include <string>

#include "steelyard/framework/files/checkpoint.h"

namespace steelyard::qat {

// Throws InputError that starts with `source` where a tensor of this model's quantizers, also of
// the second set of framework/train/weight_average.h, has a value that check_quantizer_state()
// (qat/quantizers/quantizer_state.h) refuses. Names, shapes and dtypes are
// load_into()'s to check.
void require_quantizer_state(Module& model, const Checkpoint& checkpoint,
                             const std::string& source);

}  // namespace steelyard::qat
