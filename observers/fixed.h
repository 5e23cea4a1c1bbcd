// A range that is known beforehand.
#pragma once

#include "steelyard/observers/observer.h"

namespace steelyard::observers {

// [0, limit] whatever is seen, once something was: of outputs that are shares of a whole.
class FixedObserver : public Observer {
 public:
  FixedObserver(std::int64_t channels, double limit);

  std::string name() const override { return "fixed"; }
  void observe(const kernels::ChannelLayout& layout, const Tensor& values,
               const Tensor& non_finite) override;
  Extremes range() const override { return state_; }
  void reset() override;
  std::vector<NamedBuffer> state() const override;

 private:
  double limit_;
  Extremes state_;  // f32, lo > hi until values were seen
};

}  // namespace steelyard::observers
