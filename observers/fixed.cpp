#include "steelyard/observers/fixed.h"

namespace steelyard::observers {

void FixedObserver::update(const Extremes& /*step*/) {
  kept().lo.fill(0);
  kept().hi.fill(limit_);
}

}  // namespace steelyard::observers
