// What modules say of the values that they are to be loaded with.
#pragma once

#include <map>
#include <string>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// A module whose parameters and buffers cannot have all values: load_into() asks it.
class StateCheck {
 public:
  virtual ~StateCheck() = default;
  // Throws std::invalid_argument where these tensors, on the CPU in the shapes and dtypes of its
  // own and by their names in it, have values that it never has: "NAME is no ...: expected ...".
  virtual void check_state(const std::map<std::string, Tensor>& state) const = 0;
};

}  // namespace steelyard
