// A tensor with its name, as files and modules have it.
#pragma once

#include <string>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

struct NamedTensor {
  std::string name;
  Tensor tensor;
  bool on_host = false;  // of a module's buffer: stays on the CPU when its module moves
};

}  // namespace steelyard
