// An observer with a fixed range that is known beforehand.
#pragma once

#include "steelyard/observers/extremes_observer.h"

namespace steelyard::observers {

// [least, limit] whatever is observed, once anything was: for outputs such as probabilities.
class FixedObserver : public ExtremesObserver {
 public:
  // limit: above 0 and within what float holds; least: the same below 0, or 0.
  FixedObserver(std::int64_t channels, double limit, double least = 0);

  std::string name() const override { return "fixed"; }

 protected:
  void update(const Extremes& step) override;

 private:
  double limit_, least_;
};

}  // namespace steelyard::observers
