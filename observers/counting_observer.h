// Base class of observers that count all observed values in a histogram per channel.
#pragma once

#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/observers/observer.h"

namespace steelyard::observers {

// Counts in bins whose width is a power of two, anchored at 0; when values outgrow them, pairs of
// bins merge and nothing is dropped. So the larger extreme lies in the outer half of its side.
// Subclasses turn histograms into ranges.
class CountingObserver : public Observer {
 public:
  static constexpr std::int64_t kBins = 2048;

  // bins: a power of two.
  explicit CountingObserver(std::int64_t channels, std::int64_t bins = kBins);

  void observe(const kernels::ChannelLayout& layout, const Tensor& values,
               const Tensor& non_finite) override;
  Extremes range() const final;
  void reset() override;
  std::vector<NamedBuffer> state() const override;

  void begin_step() override;
  std::vector<Tensor> maxima() override;
  std::vector<Tensor> counts() override;
  void end_step() override;
  void abandon_step() override { gathered_.reset(); }

 protected:
  // Counts the values of one step, whose extremes are known.
  virtual void count(const kernels::ChannelLayout& layout, const Tensor& values,
                     const Extremes& step);
  // Writes each channel's range, f64; lo > hi where nothing was counted.
  virtual void write_range(const Extremes& to) const = 0;
  kernels::ChannelHistograms histograms() const { return all_.view(); }
  Device device() const { return all_.counts.device(); }

 private:
  struct Histograms {
    Histograms(std::int64_t channels, std::int64_t bins, Device device);
    kernels::ChannelHistograms view() const;
    // Holds what a step with these extremes counts.
    void grow(const Extremes& step) const;
    void clear() const;

    Tensor counts;    // i64 [channels, bins]
    Tensor exponent;  // i32 [channels], of the bin width
    Extremes seen;    // f32, lo > hi until a finite value was seen
  };

  Histograms all_;
  std::optional<Histograms> gathered_;  // of the shards of a step
  Tensor maxima_;                       // of all of them, gathered_extremes()
};

}  // namespace steelyard::observers
