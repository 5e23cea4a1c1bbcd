// Observers watch a tensor step by step and say which range its quantizer must represent.
//
// Non-finite values are skipped and counted; no range follows them. State lives in tensors, so that
// a checkpoint holds it. To add an observer: one pair of files and one row in registry.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/framework/train/step_statistics.h"
#include "steelyard/kernels/layout.h"
#include "steelyard/observers/qparam_tensors.h"
#include "steelyard/observers/qscheme.h"

namespace steelyard::observers {

// Ends of a range per channel, [channels]: lo > hi for a channel without finite values.
struct Extremes {
  Tensor lo;
  Tensor hi;
};

// Extremes of f32 `values` under the layout, f32. The number of non-finite ones is added to
// `non_finite` (i64 [1], where the values are).
Extremes extremes_of(const kernels::ChannelLayout& layout, const Tensor& values,
                     const Tensor& non_finite);

// Extremes of the parts of a step, merged: f32 [2, channels] of -lo and hi, so that the largest of
// each is the extreme of all parts. At first those of nothing, on the device of `like` [channels].
Tensor no_extremes(const Tensor& like);
void gather_extremes(const Extremes& part, const Tensor& gathered);
Extremes gathered_extremes(const Tensor& gathered);

// A range that follows each step's extremes, which is what range() gives.
struct RunningRange {
  Extremes state;        // f32
  double averaging = 0;  // the newest step's weight in a moving average; 0: extremes of all steps
  Tensor steps = {};     // i64 [channels], of an average: kernels::UpdateExtremes
};

// The name of a moving average's count of the steps that weigh alike at its start, i64 [channels].
// Absent from checkpoints of averages that counted none, which load as 0.
inline constexpr const char* kAveragedSteps = "num_batches_tracked";

// Between begin_step() and end_step() observe() gathers: range() and state() stay as they are, and
// maxima() and counts() lie where the state does. Only where merges_over_shards() (registry.h): the
// others throw std::logic_error.
class Observer : public StepStatistics {
 public:
  virtual std::string name() const = 0;
  // Measures one step's f32 values, which lie where the state does; layout.channels equals the
  // observer's channels. Adds the number of non-finite values, which are skipped, to `non_finite`
  // (i64 [1], there too). Never waits for a GPU.
  virtual void observe(const kernels::ChannelLayout& layout, const Tensor& values,
                       const Tensor& non_finite) = 0;
  // The range, if it is one of all steps' extremes or a moving average of them: then the kernels
  // that know the extremes update it themselves, and the values need not be in memory. Else
  // nothing.
  virtual std::optional<RunningRange> running_range() const { return std::nullopt; }
  // True if the influence of past steps decays by itself, and should do so on weights too. Other
  // observers are reset in each step if the whole tensor is visible there (weights).
  virtual bool forgets() const { return false; }
  // The range that each channel needs, both ends f32 or f64, where the state is; never waits for a
  // GPU.
  virtual Extremes range() const = 0;
  // The ranges of the channels as numbers; waits for a GPU.
  std::vector<Range> ranges() const;
  // Scale and zero point of every channel's range, as choose_qparams(), in place. zero_range (u8
  // [channels]): 1 where the range was [0, 0] or empty. Throws std::invalid_argument for ranges of
  // other channels and, on the CPU, for those that are not finite.
  void write_qparams(const QScheme& scheme, const QParamTensors& to,
                     const Tensor& zero_range) const;
  // The width of the quantizer's codes, called before observe(): for observers whose range depends
  // on the number of codes.
  virtual void set_bits(int /*bits*/) {}
  // Forgets everything.
  virtual void reset() = 0;
  // Named tensors that are the whole state, on the CPU at first: moving them (Tensor::move_to)
  // moves the observer.
  virtual std::vector<NamedBuffer> state() const = 0;

  void begin_step() override;
  void end_step() override {}
  void abandon_step() override {}
};

}  // namespace steelyard::observers
