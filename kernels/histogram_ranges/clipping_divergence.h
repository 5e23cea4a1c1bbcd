// Which clipping of a histogram diverges least from it
// (kernels/histogram_ranges/histogram_ranges.h), host and device.
//
// Migacz, "8-bit Inference with TensorRT", GTC 2017, as NVIDIA's pytorch-quantization implements
// it, for any number of codes. For each threshold t at the outer edge of a bin, the values within
// [-t, t] are spread over the codes and back over those bins that hold any; its divergence from the
// values clipped to [-t, t] decides, and of equal ones the widest t. Clipped values are missing in
// the quantized distribution, which is not scaled up to make up for them: of such distributions the
// divergence is sum(p * log(p / q) - p + q) (Csiszar, "I-divergence geometry", 1975), which for few
// clipped values is the Kullback-Leibler divergence of the slides. Scaled up, a t with one bin of
// values in use would have the divergence 0, whatever it clips. Symmetric
// schemes look at |x| and the codes 0 ... qmax; affine ones at x, all codes, and the part of
// [-t, t] between the extremes, so that one-sided values get every code. The bin at 0 counts no
// more than its fuller neighbour: 0 has a code of its own, so zeros, of which a ReLU makes many,
// lose nothing. Bins without values are not smoothed: the quantized distribution is 0 where the
// original is, except in an empty last bin that clipped values would fall into; the divergence is
// infinite there and that t is passed over.
#pragma once

#include <cmath>
#include <cstdint>

#include "steelyard/kernels/exponential.h"
#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/quant_plan/range_choice.h"

namespace steelyard::kernels {

STEELYARD_HOST_DEVICE inline double n_log_n(double n) { return n > 0 ? n * natural_log(n) : 0; }

// Sums over the first bins of a window that give the divergence of any part of it in as many steps
// as it has codes: of the counts, of 1 for a bin in use, and of n * log(n).
class Divergences {
 public:
  // The three rows lie `row` doubles from each other.
  STEELYARD_HOST_DEVICE Divergences(const double* sums, std::int64_t row)
      : count_(sums), used_(sums + row), n_log_n_(sums + 2 * row) {}

  // What a bin of n values adds to each of them.
  STEELYARD_HOST_DEVICE static double term(double n, int row) {
    return row == 0 ? n : row == 1 ? (n > 0 ? 1.0 : 0.0) : kernels::n_log_n(n);
  }

  // Sum of p * log(p / q) - p + q over bins [first, last) of `bins` with p the counts, those
  // clipped at either end added to the outermost bin, and q the counts within spread over `codes`
  // chunks; both divided by the sum of p.
  STEELYARD_HOST_DEVICE double of(std::int32_t first, std::int32_t last, std::int32_t bins,
                                  std::int32_t codes) const {
    const double total = count_[bins];
    const double inside = count_[last] - count_[first];
    const double below = count_[first];
    const double above = total - count_[last];
    const bool lost = (below > 0 && count(first) == 0) || (above > 0 && count(last - 1) == 0);
    if (inside <= 0 || lost) return INFINITY;
    double sum = n_log_n_[last] - n_log_n_[first];
    // Code k spreads over the bins from first + size * k / codes, rounded up; `ahead` is how far
    // that was rounded, in parts of `codes`. A few codes at a time, so that their logarithms
    // overlap.
    constexpr std::int32_t kTogether = 8;
    const std::int32_t each = (last - first) / codes;
    const std::int32_t rest = (last - first) - each * codes;
    std::int32_t ahead = 0;
    std::int32_t begin = first;
    double log_of_first = 0;
    double log_of_last = 0;
    for (std::int32_t code = 0; code < codes; code += kTogether) {
      double n[kTogether];
      double log_q[kTogether];
      for (std::int32_t i = 0; i < kTogether; ++i) {
        std::int32_t end = begin;
        if (code + i < codes) {
          ahead -= rest;
          const std::int32_t more = ahead < 0 ? 1 : 0;
          ahead += more * codes;
          end += each + more;
        }
        n[i] = count_[end] - count_[begin];
        log_q[i] = n[i] > 0 ? n[i] / (used_[end] - used_[begin]) : 1;
        begin = end;
      }
      for (std::int32_t i = 0; i < kTogether; ++i) log_q[i] = natural_log(log_q[i]);
      for (std::int32_t i = 0; i < kTogether; ++i) {
        sum -= n[i] * log_q[i];
        log_of_last = code + i == codes - 1 ? log_q[i] : log_of_last;
      }
      if (code == 0) log_of_first = log_q[0];
    }
    sum += clipped(count(first), below, log_of_first);
    sum += clipped(count(last - 1), above, log_of_last);
    return (sum - (below + above)) / total;
  }

 private:
  STEELYARD_HOST_DEVICE double count(std::int32_t bin) const {
    return count_[bin + 1] - count_[bin];
  }

  // What `more` values add to a bin's term.
  STEELYARD_HOST_DEVICE static double clipped(double n, double more, double log_q) {
    if (more <= 0) return 0;
    return kernels::n_log_n(n + more) - kernels::n_log_n(n) - more * log_q;
  }

  const double* count_;
  const double* used_;
  const double* n_log_n_;
};

// The outermost bins of a channel that hold values, at and beyond zero: magnitudes for a symmetric
// scheme. A threshold reaches 1 ... widest() bins.
class DivergenceWindow {
 public:
  STEELYARD_HOST_DEVICE DivergenceWindow(const ChannelHistograms& h, std::int64_t c,
                                         CodeRange range, bool symmetric)
      : at_zero_(h.counts + c * h.bins + h.bins / 2),
        bin_width_(std::ldexp(1.0, h.exponent[c])),
        lo_(h.lo[c]),
        hi_(h.hi[c]),
        symmetric_(symmetric),
        codes_(range.qmax - (symmetric ? 0 : range.qmin) + 1) {
    const double lowest = (lo_ < 0 ? -lo_ : 0) / bin_width_;
    const double highest = (hi_ > 0 ? hi_ : 0) / bin_width_;
    below_ = static_cast<std::int32_t>(std::ceil(lowest));
    above_ = highest > 0 ? static_cast<std::int32_t>(std::floor(highest)) + 1 : 0;
    if (symmetric) {
      above_ = widest();
      below_ = 0;
    }
    limit_ = INFINITY;
    if (above_ == 0) return;  // nothing counts zeros
    double neighbour = below_ > 0 ? count(below_ - 1) : 0;
    if (above_ > 1 && count(below_ + 1) > neighbour) neighbour = count(below_ + 1);
    limit_ = neighbour;
  }

  STEELYARD_HOST_DEVICE std::int32_t bins() const { return below_ + above_; }
  STEELYARD_HOST_DEVICE std::int32_t widest() const { return below_ > above_ ? below_ : above_; }
  // The reach of candidate i: the widest comes first, so that it wins of equal ones.
  STEELYARD_HOST_DEVICE std::int32_t reach(std::int32_t i) const { return widest() - i; }

  // What a bin counts. Zeros lie in the first one at or above 0.
  STEELYARD_HOST_DEVICE double count(std::int32_t bin) const {
    const std::int64_t from_zero = bin - below_;
    double n = static_cast<double>(at_zero_[from_zero]);
    if (symmetric_) n += static_cast<double>(at_zero_[-1 - from_zero]);
    return from_zero == 0 && n > limit_ ? limit_ : n;
  }

  // The divergence of candidate i, from the sums over this window; infinite where it has fewer bins
  // than codes.
  STEELYARD_HOST_DEVICE double divergence(const Divergences& divergences, std::int32_t i) const {
    const std::int32_t first = below_ - (below_ < reach(i) ? below_ : reach(i));
    const std::int32_t last = below_ + (above_ < reach(i) ? above_ : reach(i));
    return last - first < codes_ ? INFINITY : divergences.of(first, last, bins(), codes_);
  }

  STEELYARD_HOST_DEVICE RangeEnds range_of(std::int32_t reach) const {
    const double end = reach * bin_width_;
    if (!symmetric_) return {lo_ < -end ? -end : lo_, end < hi_ ? end : hi_};
    const double most = -lo_ > hi_ ? -lo_ : hi_;
    const double t = end < most ? end : most;
    return {-t, t};
  }

 private:
  const std::int64_t* at_zero_;
  double bin_width_;
  double lo_, hi_;
  bool symmetric_;
  std::int32_t codes_;
  std::int32_t below_;  // bins
  std::int32_t above_;
  double limit_;  // of the zeros
};

}  // namespace steelyard::kernels
