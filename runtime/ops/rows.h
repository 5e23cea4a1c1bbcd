// The rows of the table of deployed operations, each from the file of its name or of its family.
#pragma once

#include "steelyard/runtime/op_info.h"

namespace steelyard::deploy {

#define STEELYARD_OP(enumerator, row) OpInfo row##_op();
STEELYARD_DEPLOYED_OPS(STEELYARD_OP)
#undef STEELYARD_OP

}  // namespace steelyard::deploy
