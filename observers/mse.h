// The shrunken range of least squared quantization error on a step's own values.
//
// Both extremes are multiplied by 1, 0.99, ... 0.01 and the values quantized with each; of equal
// errors the widest range wins. As the MSE observers of llm-compressor and Brevitas; the observer
// `histogram` instead estimates the error over everything seen, and moves both ends by themselves.
// On weights each step stands alone, on activations the chosen ends enter a moving average. Costs
// 100 passes over the values of each step.
#pragma once

#include <span>

#include "observers/observer.h"

namespace steelyard::observers {

// Sum of squared differences between finite values and their fake-quantization over `range`; the
// same for any number of threads.
double quantization_error(std::span<const float> values, const Range& range, const QScheme& scheme);

class MseObserver : public HostObserver {
 public:
  static constexpr int kFactors = 100;

  // averaging_constant in (0, 1]: the weight of the newest step.
  MseObserver(std::int64_t channels, const QScheme& scheme, double averaging_constant);

  std::string name() const override { return "mse"; }
  void set_bits(int bits) override { scheme_.bits = bits; }
  std::vector<Range> ranges() const override;
  void reset() override;

 protected:
  std::int64_t observe_values(const kernels::ChannelLayout& layout, const float* values) override;
  std::vector<NamedBuffer> host_state() const override;

 private:
  QScheme scheme_;
  double averaging_constant_;
  Tensor lo_;  // f32 [channels], +inf until a finite value was seen
  Tensor hi_;  // f32 [channels], -inf until then
};

}  // namespace steelyard::observers
