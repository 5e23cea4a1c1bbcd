// Running extremes of everything observed.
#pragma once

#include "observers/observer.h"

namespace steelyard::observers {

class MinMaxObserver : public Observer {
 public:
  explicit MinMaxObserver(std::int64_t channels);

  std::string name() const override { return "min_max"; }
  void observe(const kernels::ChannelLayout& layout, const Tensor& values,
               const Tensor& non_finite) override;
  bool needs_only_extremes() const override { return true; }
  void observe_extremes(const Extremes& extremes) override;
  Extremes range() const override { return state_; }
  void reset() override;
  std::vector<NamedBuffer> state() const override;

 protected:
  // How the channels' extremes follow those of one step.
  virtual void update(const Extremes& state, const Extremes& step) const;

 private:
  Extremes state_;  // f32, lo > hi until a finite value was seen
};

}  // namespace steelyard::observers
