// Validation of the quantizer states in a checkpoint.
#pragma once

#include <string>

#include "steelyard/framework/checkpoint.h"

namespace steelyard::qat {

// Throws InputError that starts with `source` where a tensor of this model's quantizers has a value
// that no quantizer ever has: a width without codes, a scale that is not a normal float, a zero
// point beyond the codes, a range or histogram that counts nothing. Names, shapes and dtypes are
// load_into()'s to check.
void require_quantizer_state(Module& model, const Checkpoint& checkpoint,
                             const std::string& source);

}  // namespace steelyard::qat
