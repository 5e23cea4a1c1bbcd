#include "steelyard/layers/where.h"

#include <algorithm>
#include <stdexcept>

namespace steelyard {

Where::Where(Comparison comparison, const std::array<Tensor, 4>& constants)
    : comparison_(comparison) {
  if (std::all_of(constants.begin(), constants.end(),
                  [](const Tensor& c) { return c.defined(); })) {
    throw std::invalid_argument("[" + type_name() + "] expected an operand that is no constant");
  }
  for (std::size_t i = 0; i < constants.size(); ++i) {
    if (constants[i].defined()) constants_[i] = register_buffer(kOperands[i], constants[i]);
  }
}

Variable Where::join(const std::vector<Variable>& inputs, ForwardContext&) {
  std::array<Variable, 4> operands;
  std::size_t next = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (constants_[i].defined()) {
      operands[i] = Variable(constants_[i]);
    } else if (next++ < inputs.size()) {
      operands[i] = inputs[next - 1];
    }
  }
  if (next != inputs.size()) {
    throw std::invalid_argument("[" + type_name() + "] expected " + std::to_string(next) +
                                " inputs, got " + std::to_string(inputs.size()));
  }
  return choose(comparison_, operands[0], operands[1], operands[2], operands[3]);
}

std::string Where::description() const {
  std::string text;
  for (std::size_t i = 0; i < constants_.size(); ++i) {
    if (!constants_[i].defined()) continue;
    text += (text.empty() ? "" : ", ") + std::string(kOperands[i]) + " " +
            shape_string(constants_[i].shape());
  }
  return text.empty() ? type_name() : type_name() + "(" + text + ")";
}

}  // namespace steelyard
