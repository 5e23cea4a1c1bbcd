#include "steelyard/layers/input_part.h"

namespace steelyard {

Variable InputPart::forward(const Variable& x, ForwardContext&) { return input_part(x, part_); }

std::string InputPart::description() const {
  return "InputPart(" + shape_string(part_.shape) + " from value " + std::to_string(part_.first) +
         " on)";
}

}  // namespace steelyard
