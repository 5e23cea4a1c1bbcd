// Validation of the quantizer states in a checkpoint.
#pragma once

#include <map>
#include <string>

#include "steelyard/framework/checkpoint.h"

namespace steelyard::qat {

class FakeQuantize;

// StateCheck::check_state() of a quantizer: refuses a width without codes, a scale that is not a
// normal float, a zero point beyond the codes, a range or histogram that counts nothing. `suffix`
// follows the tensors' names in messages.
void check_quantizer_state(const FakeQuantize& quantizer,
                           const std::map<std::string, Tensor>& state,
                           const std::string& suffix = "");

// Throws InputError that starts with `source` where a tensor of this model's quantizers, also of
// the second set of framework/weight_average.h, has such a value. Names, shapes and dtypes are
// load_into()'s to check.
void require_quantizer_state(Module& model, const Checkpoint& checkpoint,
                             const std::string& source);

}  // namespace steelyard::qat
