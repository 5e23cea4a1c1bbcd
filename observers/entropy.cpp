#include "observers/entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace steelyard::observers {
namespace {

double n_log_n(double n) { return n > 0 ? n * std::log(n) : 0; }

// Sums over bins [0, b) that give the divergence of any window in as many steps as it has codes.
class Sums {
 public:
  explicit Sums(const std::vector<double>& counts)
      : count_(counts.size() + 1), used_(counts.size() + 1), n_log_n_(counts.size() + 1) {
    for (std::size_t b = 0; b < counts.size(); ++b) {
      count_[b + 1] = count_[b] + counts[b];
      used_[b + 1] = used_[b] + (counts[b] > 0 ? 1 : 0);
      n_log_n_[b + 1] = n_log_n_[b] + n_log_n(counts[b]);
    }
  }

  // Sum of p * log(p / q) over bins [first, last) with p the counts, those clipped at either end
  // added to the outermost bin, and q the counts within spread over `codes` chunks; both
  // normalised.
  double divergence(std::size_t first, std::size_t last, std::size_t codes) const {
    const double total = count_.back();
    const double inside = count_[last] - count_[first];
    const double below = count_[first];
    const double above = total - count_[last];
    const bool lost = (below > 0 && count(first) == 0) || (above > 0 && count(last - 1) == 0);
    if (inside <= 0 || lost) return std::numeric_limits<double>::infinity();
    double sum = n_log_n_[last] - n_log_n_[first];
    const std::size_t bins = last - first;
    for (std::size_t code = 0; code < codes; ++code) {
      const std::size_t begin = first + (code * bins + codes - 1) / codes;
      const std::size_t end = first + ((code + 1) * bins + codes - 1) / codes;
      const double n = count_[end] - count_[begin];
      if (n <= 0) continue;
      const double log_q = std::log(n / (used_[end] - used_[begin]));
      sum -= n * log_q;
      if (begin == first) sum += clipped(count(first), below, log_q);
      if (end == last) sum += clipped(count(last - 1), above, log_q);
    }
    return sum / total + std::log(inside / total);
  }

 private:
  double count(std::size_t bin) const { return count_[bin + 1] - count_[bin]; }

  // What `more` values add to a bin's term.
  static double clipped(double n, double more, double log_q) {
    if (more <= 0) return 0;
    return n_log_n(n + more) - n_log_n(n) - more * log_q;
  }

  std::vector<double> count_, used_, n_log_n_;
};

// The outermost bins that hold values, at and beyond zero: magnitudes for a symmetric scheme.
struct Window {
  std::vector<double> counts;
  std::size_t zero = 0;  // values below 0 lie before this bin
};

Window window_of(const HistogramView& h, bool symmetric) {
  const auto half = static_cast<std::size_t>(h.bins / 2);
  const double lowest = std::max(-h.extremes.lo, 0.0) / h.bin_width;
  const double highest = std::max(h.extremes.hi, 0.0) / h.bin_width;
  const auto below = static_cast<std::size_t>(std::ceil(lowest));
  const std::size_t above = highest > 0 ? static_cast<std::size_t>(std::floor(highest)) + 1 : 0;
  const auto at = [&](std::size_t bin) { return static_cast<double>(h.counts[bin]); };
  Window window;
  if (symmetric) {
    window.counts.resize(std::max(below, above));
    for (std::size_t b = 0; b < window.counts.size(); ++b) {
      window.counts[b] = at(half + b) + at(half - 1 - b);
    }
  } else {
    for (std::size_t b = half - below; b < half + above; ++b) window.counts.push_back(at(b));
    window.zero = below;
  }
  return window;
}

// Zeros lie in the first bin at or above 0; without bins there, nothing counts them.
void limit_zeros(Window& window) {
  std::vector<double>& counts = window.counts;
  if (window.zero >= counts.size()) return;
  double neighbour = window.zero > 0 ? counts[window.zero - 1] : 0;
  if (window.zero + 1 < counts.size()) neighbour = std::max(neighbour, counts[window.zero + 1]);
  counts[window.zero] = std::min(counts[window.zero], neighbour);
}

}  // namespace

Range least_divergence_range(const HistogramView& h, const QScheme& scheme) {
  Window window = window_of(h, scheme.symmetric);
  limit_zeros(window);
  const kernels::CodeRange range = scheme.code_range();
  const auto codes =
      static_cast<std::size_t>(scheme.symmetric ? range.qmax + 1 : range.qmax - range.qmin + 1);
  const Sums sums(window.counts);
  const std::size_t below = window.zero;
  const std::size_t above = window.counts.size() - window.zero;
  double least = std::numeric_limits<double>::infinity();
  std::size_t best = std::max(below, above);
  for (std::size_t reach = best; reach >= 1; --reach) {
    const std::size_t first = below - std::min(below, reach);
    const std::size_t last = below + std::min(above, reach);
    if (last - first < codes) break;
    const double divergence = sums.divergence(first, last, codes);
    if (divergence < least) {
      least = divergence;
      best = reach;
    }
  }
  const double end = static_cast<double>(best) * h.bin_width;
  if (scheme.symmetric) {
    const double t = std::min(end, std::max(-h.extremes.lo, h.extremes.hi));
    return {-t, t};
  }
  return {std::max(h.extremes.lo, -end), std::min(h.extremes.hi, end)};
}

}  // namespace steelyard::observers
