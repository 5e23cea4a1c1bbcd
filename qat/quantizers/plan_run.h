// Plans of the kernels on tensors.
#pragma once

#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/kernels/quant_plan/quant_plan.h"

namespace steelyard::qat {

// The tensor's memory as an argument of a plan; absent where it is undefined.
template <typename T>
kernels::QuantArray array_of(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data<T>(), tensor.size()};
}
// Codes of any type of one byte.
kernels::QuantArray array_of_codes(const Tensor& codes);

// Runs a plan once, in the order of the device's work, with a workspace of its own.
void run_plan(const kernels::QuantDescriptor& descriptor, Device device,
              const kernels::QuantArrays& arrays);

}  // namespace steelyard::qat
