#include "steelyard/observers/fixed.h"

#include <limits>
#include <stdexcept>

namespace steelyard::observers {

FixedObserver::FixedObserver(std::int64_t channels, double limit, double least)
    : ExtremesObserver(channels), limit_(limit), least_(least) {
  if (!(limit > 0 && limit <= std::numeric_limits<float>::max())) {
    throw std::invalid_argument("[fixed] expected a finite limit above 0, got " +
                                std::to_string(limit));
  }
  if (!(least <= 0 && least >= -std::numeric_limits<float>::max())) {
    throw std::invalid_argument("[fixed] expected a finite least of at most 0, got " +
                                std::to_string(least));
  }
}

void FixedObserver::update(const Extremes& /*step*/) {
  kept().lo.fill(least_);
  kept().hi.fill(limit_);
}

}  // namespace steelyard::observers
