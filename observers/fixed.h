// An observer with a fixed range that is known beforehand.
#pragma once

#include "steelyard/observers/extremes_observer.h"

namespace steelyard::observers {

// [0, limit] whatever is observed, once anything was: for outputs such as probabilities.
class FixedObserver : public ExtremesObserver {
 public:
  // limit: above 0 and within what float holds.
  FixedObserver(std::int64_t channels, double limit);

  std::string name() const override { return "fixed"; }

 protected:
  void update(const Extremes& step) override;

 private:
  double limit_;
};

}  // namespace steelyard::observers
