// The rows of the table of what records and exports operations, each from the file of its name or
// of its family.
#pragma once

#include "steelyard/export/op_form.h"

namespace steelyard::deploy {

#define STEELYARD_OP(enumerator, row) OpForm row##_form();
STEELYARD_DEPLOYED_OPS(STEELYARD_OP)
#undef STEELYARD_OP

}  // namespace steelyard::deploy
