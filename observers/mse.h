// The shrunken range of least squared quantization error on a step's own values.
//
// Both extremes are multiplied by 1, 0.99, ... 0.01 and the values quantized with each; of equal
// errors the widest range wins. As the MSE observers of llm-compressor and Brevitas; the observer
// `histogram` instead estimates the error over everything seen, and moves both ends by themselves.
// On weights each step stands alone, on activations the chosen ends enter a moving average. Costs
// 100 passes over the values of each step (kernels/shrunken_range/shrunken_range.h).
#pragma once

#include "steelyard/observers/observer.h"

namespace steelyard::observers {

class MseObserver : public Observer {
 public:
  // averaging_constant in (0, 1]: the weight of the newest step.
  MseObserver(std::int64_t channels, const QScheme& scheme, double averaging_constant);

  std::string name() const override { return "mse"; }
  void set_bits(int bits) override { scheme_.bits = bits; }
  void observe(const kernels::ChannelLayout& layout, const Tensor& values,
               const Tensor& non_finite) override;
  Extremes range() const override { return state_; }
  void reset() override;
  std::vector<NamedBuffer> state() const override;

 private:
  QScheme scheme_;
  double averaging_constant_;
  Extremes state_;  // f32, lo > hi until a finite value was seen
  Tensor steps_;    // i64
};

}  // namespace steelyard::observers
