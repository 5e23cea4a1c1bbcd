// Observers watch a tensor step by step and say which range its quantizer must represent.
//
// Non-finite values are skipped and counted, never learned from. State lives in tensors, so that a
// checkpoint holds it. To add an observer: one pair of files and one row in registry.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/module.h"
#include "framework/tensor.h"
#include "kernels/layout.h"
#include "observers/qparams.h"

namespace steelyard::observers {

// One step's values as their extremes per channel, f32 [channels]: lo > hi for a channel without
// finite values.
struct Extremes {
  Tensor lo;
  Tensor hi;
};

// Extremes of f32 `values` under the layout. The number of non-finite ones is added to `non_finite`
// (i64 [1], where the values are).
Extremes extremes_of(const kernels::ChannelLayout& layout, const Tensor& values,
                     const Tensor& non_finite);

// Where a quantizer keeps what it quantizes with.
struct QParamTensors {
  Tensor scale;       // f32 [channels]
  Tensor zero_point;  // i32 [channels]
  Tensor zero_range;  // u8 [channels]: 1 where the range was [0, 0] or empty
};

class Observer {
 public:
  virtual ~Observer() = default;

  virtual std::string name() const = 0;
  // Learns from one step's f32 values, on any device; layout.channels equals the observer's
  // channels. Adds the number of non-finite values, which are skipped, to `non_finite` (i64 [1],
  // where the values are).
  virtual void observe(const kernels::ChannelLayout& layout, const Tensor& values,
                       const Tensor& non_finite) = 0;
  // True when observe_extremes() serves as well as observe(): producers that know their extremes
  // then need not materialise the values.
  virtual bool needs_only_extremes() const { return false; }
  virtual void observe_extremes(const Extremes& extremes);
  // True when past steps fade by themselves and shall on weights too; other observers start anew
  // where the whole tensor is visible in each step (weights).
  virtual bool forgets() const { return false; }
  // The range of each channel, on the CPU.
  virtual std::vector<Range> ranges() const = 0;
  // Scale and zero point of every channel's range, as choose_qparams().
  virtual void write_qparams(const QScheme& scheme, const QParamTensors& to) const = 0;
  // The quantizer's codes change their width: what looks at rounding errors takes notice.
  virtual void set_bits(int /*bits*/) {}
  // Forgets everything.
  virtual void reset() = 0;
  // Named tensors that are the whole state; those of the host stay on the CPU.
  virtual std::vector<NamedBuffer> state() const = 0;
};

// What observers share that look at values on the CPU. Those of a GPU are copied there in every
// step, which waits for the GPU: slow, and meant for calibration.
class HostObserver : public Observer {
 public:
  void observe(const kernels::ChannelLayout& layout, const Tensor& values,
               const Tensor& non_finite) override;
  void write_qparams(const QScheme& scheme, const QParamTensors& to) const override;
  std::vector<NamedBuffer> state() const final;

 protected:
  // Learns from values on the CPU; returns the number of non-finite ones skipped.
  virtual std::int64_t observe_values(const kernels::ChannelLayout& layout,
                                      const float* values) = 0;
  virtual std::vector<NamedBuffer> host_state() const = 0;
};

// Extremes of values on the CPU, as numbers.
struct HostExtremes {
  std::vector<float> lo;
  std::vector<float> hi;
  std::int64_t non_finite = 0;
};
HostExtremes host_extremes_of(const kernels::ChannelLayout& layout, const float* values);

}  // namespace steelyard::observers
