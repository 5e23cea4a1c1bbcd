// The clipping after which the quantized distribution diverges least from the original one
// (kernels/histogram_ranges/clipping_divergence.h).
#pragma once

#include "steelyard/observers/counting_observer.h"

namespace steelyard::observers {

class EntropyObserver : public CountingObserver {
 public:
  // Each side then has at least the 2,048 bins of the source.
  static constexpr std::int64_t kEntropyBins = 8192;

  EntropyObserver(std::int64_t channels, const QScheme& scheme)
      : CountingObserver(channels, kEntropyBins), scheme_(scheme) {}

  std::string name() const override { return "entropy"; }
  void set_bits(int bits) override { scheme_.bits = bits; }

 protected:
  void write_range(const Extremes& to) const override;

 private:
  QScheme scheme_;
};

}  // namespace steelyard::observers
