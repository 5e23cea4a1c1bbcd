// The clipping after which the quantized distribution diverges least from the original one.
//
// Migacz, "8-bit Inference with TensorRT", GTC 2017, as NVIDIA's pytorch-quantization implements
// it, for any number of codes. For each threshold t at the outer edge of a bin, the values within
// [-t, t] are spread over the codes and back over those bins that hold any; its Kullback-Leibler
// divergence from the values clipped to [-t, t] decides, and of equal ones the widest t. Symmetric
// schemes look at |x| and the codes 0 ... qmax; affine ones at x, all codes, and the part of
// [-t, t] between the extremes, so that one-sided values get every code. The bin at 0 counts no
// more than its fuller neighbour: 0 has a code of its own, so zeros, of which a ReLU makes many,
// lose nothing. Bins without values are not smoothed: the quantized distribution is 0 where the
// original is, except in an empty last bin that clipped values would fall into; the divergence is
// infinite there and that t is passed over.
#pragma once

#include "observers/counting_observer.h"

namespace steelyard::observers {

// The range of least divergence; the extremes where fewer bins than codes hold the values.
Range least_divergence_range(const HistogramView& histogram, const QScheme& scheme);

class EntropyObserver : public CountingObserver {
 public:
  // Each side then has at least the 2,048 bins of the source.
  static constexpr std::int64_t kEntropyBins = 8192;

  EntropyObserver(std::int64_t channels, const QScheme& scheme)
      : CountingObserver(channels, kEntropyBins), scheme_(scheme) {}

  std::string name() const override { return "entropy"; }
  void set_bits(int bits) override { scheme_.bits = bits; }

 protected:
  Range range_of(const HistogramView& histogram) const override {
    return least_divergence_range(histogram, scheme_);
  }

 private:
  QScheme scheme_;
};

}  // namespace steelyard::observers
