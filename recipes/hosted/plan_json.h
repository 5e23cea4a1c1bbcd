// The plan of a quantization for programs.
#pragma once

#include <string>

#include "steelyard/qat/prepare/plan.h"

namespace steelyard {

// {"rows": [{"module", "tensor", "quantized", "observer", "note"}, ...], "notes": [...]}
std::string plan_json(const qat::Plan& plan);

}  // namespace steelyard
