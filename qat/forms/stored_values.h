// Linear layers that compute with the values of their weights' codes.
#pragma once

#include "steelyard/framework/autograd/module.h"

namespace steelyard::qat {

// Replaces linear layers below a module whose weights alone are quantized by float ones with the
// values of the codes: these are computed once instead of in every pass. For evaluation.
void store_weight_values(Module& model);

}  // namespace steelyard::qat
