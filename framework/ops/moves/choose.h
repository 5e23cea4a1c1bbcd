// Choices by a comparison.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

enum class Comparison { kGreater, kGreaterEqual, kEqual };

// The type of its layer: "WhereGreater", "WhereGreaterEqual" or "WhereEqual".
const char* choice_layer(Comparison comparison);

// a where x compares so to y, else b, also where x or y is NaN; shapes broadcast. A gradient
// reaches the operand that was chosen, x and y have none. Unlike where()
// (framework/ops/elementwise/arithmetic.h) the tape records the comparison: an exported network
// computes it. Throws std::invalid_argument, naming the operation and both shapes, where operands
// do not fit together.
Variable choose(Comparison comparison, const Variable& x, const Variable& y, const Variable& a,
                const Variable& b);

}  // namespace steelyard
