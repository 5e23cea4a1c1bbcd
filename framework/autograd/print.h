// Tensors, variables, devices and modules as text, for people.
#pragma once

#include <iosfwd>
#include <string>

#include "steelyard/framework/autograd/module.h"

namespace steelyard {

// The values in nested brackets below "f32 [2, 3] on cpu"; of an axis longer than 8 the first and
// the last three. Copies the elements from a GPU, and waits for it.
std::string to_string(const Tensor& tensor);
// A line for each module, children below their parent: "fc: Linear(8, 3)".
std::string to_string(const Module& module);

std::ostream& operator<<(std::ostream& stream, Device device);
std::ostream& operator<<(std::ostream& stream, const Tensor& tensor);
std::ostream& operator<<(std::ostream& stream, const Variable& variable);
std::ostream& operator<<(std::ostream& stream, const Module& module);

}  // namespace steelyard
