// Counts faults that codes would hide, on the device where they occur: non-finite values, and
// biases that do not fit int32 with the products.
#pragma once

#include <cstdint>
#include <optional>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::qat {

// A bias whose int32 code could leave int32 together with the products that it is added to.
struct BiasOverflow {
  std::int64_t channel = 0;
  float bias = 0;
  float limit = 0;  // the largest magnitude that could not, with the same scales and weights
};

struct Faults {
  std::int64_t non_finite = 0;           // NaN and infinite values
  std::optional<BiasOverflow> overflow;  // the first channel's
};

// Counters that kernels add to. They lie on the device that a caller last named.
class FaultCounter {
 public:
  // Non-finite values: the first i64.
  const Tensor& non_finite(Device device) const { return on(device, counts_); }
  // Biases that were too large.
  std::int64_t* overflows(Device device) const {
    return on(device, counts_).data<std::int64_t>() + 1;
  }
  // f32 [outputs, 2]: such a bias and its limit; zeros where none was.
  float* overflowing_biases(std::int64_t outputs, Device device);
  // Whether there are any since the last take(). Of counters on a GPU it says so only where it may
  // wait for it.
  bool any(bool may_wait) const;
  // The faults since the last call. Waits for a GPU.
  Faults take();

 private:
  // Moved first: what is no buffer does not move with the module.
  static const Tensor& on(Device device, const Tensor& tensor) {
    tensor.move_to(device);
    return tensor;
  }

  Tensor counts_ = Tensor::zeros({2}, DType::kI64);  // non-finite values, biases too large
  Tensor biases_;                                    // undefined at first
};

}  // namespace steelyard::qat
