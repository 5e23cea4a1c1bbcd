// Running extremes of everything observed.
#pragma once

#include "steelyard/observers/observer.h"

namespace steelyard::observers {

class MinMaxObserver : public Observer {
 public:
  explicit MinMaxObserver(std::int64_t channels);

  std::string name() const override { return "min_max"; }
  void observe(const kernels::ChannelLayout& layout, const Tensor& values,
               const Tensor& non_finite) override;
  std::optional<RunningRange> running_range() const override { return RunningRange{state_, 0}; }
  Extremes range() const override { return state_; }
  void reset() override;
  std::vector<NamedBuffer> state() const override;

 private:
  Extremes state_;  // f32, lo > hi until a finite value was seen
};

}  // namespace steelyard::observers
