// Validation of one quantizer's state.
#pragma once

#include <map>
#include <string>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::qat {

class FakeQuantize;

// StateCheck::check_state() of a quantizer: refuses a width without codes, a scale that is not a
// normal float, a zero point beyond the codes, a range or histogram that counts nothing. `suffix`
// follows the tensors' names in messages.
void check_quantizer_state(const FakeQuantize& quantizer,
                           const std::map<std::string, Tensor>& state,
                           const std::string& suffix = "");

}  // namespace steelyard::qat
