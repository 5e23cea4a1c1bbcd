// Running extremes of everything observed.
#pragma once

#include "steelyard/observers/extremes_observer.h"

namespace steelyard::observers {

class MinMaxObserver : public ExtremesObserver {
 public:
  using ExtremesObserver::ExtremesObserver;

  std::string name() const override { return "min_max"; }
  std::optional<RunningRange> running_range() const override { return RunningRange{kept(), 0}; }

 protected:
  void update(const Extremes& step) override;
};

}  // namespace steelyard::observers
