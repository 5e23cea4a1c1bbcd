#include "steelyard/observers/fixed.h"

#include <limits>
#include <stdexcept>

namespace steelyard::observers {

FixedObserver::FixedObserver(std::int64_t channels, double limit)
    : ExtremesObserver(channels), limit_(limit) {
  if (!(limit > 0 && limit <= std::numeric_limits<float>::max())) {
    throw std::invalid_argument("[fixed] expected a finite limit above 0, got " +
                                std::to_string(limit));
  }
}

void FixedObserver::update(const Extremes& /*step*/) {
  kept().lo.fill(0);
  kept().hi.fill(limit_);
}

}  // namespace steelyard::observers
