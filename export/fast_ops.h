// The operations on codes that have an exact integer kernel.
#pragma once

#include "steelyard/export/reference_ops.h"

namespace steelyard::deploy {

// Fills the output as run_reference() would, faster; false where there is no kernel for the node.
bool run_fast(const Operands& operands);

}  // namespace steelyard::deploy
