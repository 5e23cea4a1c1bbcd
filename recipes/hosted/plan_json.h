// The plan of a quantization for programs.
#pragma once

#include <string>

#include "steelyard/qat/prepare/plan.h"

namespace steelyard {

// {"rows": [{"module", "tensor", "quantized", "observer", "note"}, ...], "notes": [...]}; rows of
// tensors that have a quantizer have its "scheme", too: {"num_bits", "symmetric", "strategy",
// "dynamic"}, as recipes call them.
std::string plan_json(const qat::Plan& plan);

}  // namespace steelyard
