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

// One step's values as their extremes per channel: lo > hi for a channel without finite values.
struct Extremes {
  std::vector<float> lo;
  std::vector<float> hi;
  std::int64_t non_finite = 0;
};

// Extremes of f32 `values` under the layout.
Extremes extremes_of(const kernels::ChannelLayout& layout, const float* values);

class Observer {
 public:
  virtual ~Observer() = default;

  virtual std::string name() const = 0;
  // Learns from one step's f32 values; layout.channels equals the observer's channels. Returns the
  // number of non-finite values skipped.
  virtual std::int64_t observe(const kernels::ChannelLayout& layout, const float* values) = 0;
  // True when observe_extremes() serves as well as observe(): producers that know their extremes
  // then need not materialise the values.
  virtual bool needs_only_extremes() const { return false; }
  virtual void observe_extremes(const Extremes& extremes);
  // True when past steps fade by themselves and shall on weights too; other observers start anew
  // where the whole tensor is visible in each step (weights).
  virtual bool forgets() const { return false; }
  // The range of each channel.
  virtual std::vector<Range> ranges() const = 0;
  // The quantizer's codes change their width: what looks at rounding errors takes notice.
  virtual void set_bits(int /*bits*/) {}
  // Forgets everything.
  virtual void reset() = 0;
  // Named tensors that are the whole state.
  virtual std::vector<NamedBuffer> state() const = 0;
};

}  // namespace steelyard::observers
