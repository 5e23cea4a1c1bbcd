// The functions of activations.
#pragma once

#include <array>
#include <cmath>
#include <functional>
#include <numbers>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

using Formula = std::function<double(double)>;
using ActivationTable = std::array<float, 256>;

// Of tanh_gelu, x * sigmoid(2 * kGeluFactor * (x + 0.044715 x^3)).
inline const double kGeluFactor = std::sqrt(2 / std::numbers::pi);

// The function of a node that is an activation.
Formula formula_of(const Node& node);
// The real value that a byte stands for as a code.
float real_of(const Quantization& q, int byte);
// The function's value for every byte, rounded once from double.
ActivationTable table_of(const Quantization& in, const Formula& formula);

}  // namespace steelyard::deploy
