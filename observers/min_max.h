// Running extremes of everything observed.
#pragma once

#include "observers/observer.h"

namespace steelyard::observers {

class MinMaxObserver : public Observer {
 public:
  explicit MinMaxObserver(std::int64_t channels);

  std::string name() const override { return "min_max"; }
  std::int64_t observe(const kernels::ChannelLayout& layout, const float* values) override;
  bool needs_only_extremes() const override { return true; }
  void observe_extremes(const Extremes& extremes) override;
  std::vector<Range> ranges() const override;
  void reset() override;
  std::vector<NamedBuffer> state() const override;

 protected:
  // How the range [lo, hi] of each channel follows one step's extremes.
  virtual void update(const Extremes& step, float* lo, float* hi) const;

 private:
  Tensor min_;  // f32 [channels], +inf until a finite value was seen
  Tensor max_;  // f32 [channels], -inf until then
};

}  // namespace steelyard::observers
