// FakeQuantize: a quantizer's grid, scale and zero point, switches and observer.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/autograd/state_check.h"
#include "steelyard/kernels/layout.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/observers/observer.h"
#include "steelyard/observers/qscheme.h"
#include "steelyard/qat/quantizers/fault_counter.h"
#include "steelyard/qat/quantizers/learned_scale.h"
#include "steelyard/qat/quantizers/qconfig.h"
#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::qat {

// Observation by a layer's own kernel: the kernel's inputs and outputs.
struct RangeObservation {
  kernels::RangeRule rule;
  kernels::RangeQuantizer quantizer;
  QParamTensors qparams;  // those that the pass quantizes with, written by the kernel
};

class FakeQuantize;

// A pass that quantizes came to a quantizer without a range: nothing was observed yet.
class NeverObserved : public std::logic_error {
 public:
  explicit NeverObserved(const FakeQuantize& quantizer)
      : std::logic_error(
            "[fake_quantize] cannot quantize, nothing was observed yet: run a training pass with "
            "observers on first"),
        quantizer_(&quantizer) {}
  const FakeQuantize* quantizer() const { return quantizer_; }

 private:
  const FakeQuantize* quantizer_;
};

// What the quantizers of activations (qat/quantizers/activation_quantizer.h) and of weights
// (qat/quantizers/weight_quantizer.h) have in common. Observing and quantizing are separate
// switches; both, the scale, the zero point and the observer's state are buffers, so that a
// checkpoint holds them. The switches stay on the host, which decides by them what runs; everything
// else lies where the module was moved to, and no pass waits for it.
class FakeQuantize : public Module, public StateCheck {
 public:
  std::string type_name() const override { return "FakeQuantize"; }
  std::string description() const override;
  void check_state(const std::map<std::string, Tensor>& state) const override;
  // A quantizer with the same state on the same device that shares no storage with this one. Its
  // fault counters are 0, and it has no listener.
  virtual std::shared_ptr<FakeQuantize> clone() const = 0;
  // Whether it quantizes a layer's weights: schedules and reports tell them from activations.
  virtual bool of_weights() const = 0;

  // As configured; the width may differ for a time (set_bits()).
  const QuantizerConfig& config() const { return config_; }
  // The grid in use.
  observers::QScheme scheme() const;
  // The grid that saved switches (the buffer of that name) say; nothing where they are no switches.
  std::optional<observers::QScheme> scheme_in(const Tensor& switches) const;
  kernels::CodeRange code_range() const { return scheme().code_range(); }
  // The largest allowed bit width: 8, or the configured width if that is larger.
  int most_bits() const { return std::max(8, config_.scheme.bits); }
  // Changes the width of the codes, from 2 to most_bits(), over the same range. Learned parameters
  // start again with the next values observed.
  void set_bits(int bits);
  // f32 and i32 [channels], on the module's device; they change in place.
  const Tensor& scale() const;
  const Tensor& zero_point() const;
  // Scales and zero points as numbers; waits for a GPU.
  std::vector<float> host_scale() const;
  std::vector<std::int32_t> host_zero_point() const;
  std::int64_t channels() const { return qparams_.scale.size(); }
  Device device() const { return qparams_.scale.device(); }
  // The values of the smallest and of the largest code of each channel; waits for a GPU.
  std::vector<observers::Range> float_range() const;
  // Sets one channel's parameters. Throws std::invalid_argument when there is no such channel or
  // they are not valid, std::logic_error once the scale is learned (learns()).
  void set_qparams(std::int64_t channel, float scale, std::int32_t zero_point);
  // Throws std::invalid_argument unless so many elements divide into the channels.
  kernels::ChannelLayout layout(std::int64_t size) const;

  bool observing() const { return is_on(kObserving); }
  bool quantizing() const { return is_on(kQuantizing); }
  void set_observing(bool on) { set(kObserving, on); }
  void set_quantizing(bool on) { set(kQuantizing, on); }

  // Whether a pass in this context updates the observer. A quantizer with learned scales stops
  // observing when learning begins.
  bool observes(const ForwardContext& context) const {
    return (context.training || context.calibrating) &&
           (listener_ || (observing() && !has_begun()));
  }
  // Whether a scale was ever found or set.
  bool observed() const { return is_on(kObserved); }
  // Resets the observer; the scale and zero point stay until it observes again.
  void forget() { observer_->reset(); }
  // While set, every pass that may observe gives the f32 values to `listener` instead, whatever the
  // switch says, and the observer stays as it is. An empty one ends that.
  using Listener = std::function<void(std::span<const float>)>;
  void set_listener(Listener listener) { listener_ = std::move(listener); }

  // Whether scale (and zero point) get gradients in this step: in training, from the first step
  // that quantizes on, until freezing ends what observing means.
  bool learns(const ForwardContext& context) const {
    return context.training && observing() && has_begun();
  }
  // Learned scales begin at what was observed, as the first pass in training has them begin;
  // nothing happens where nothing learns, was observed, or is quantized, or where they have begun.
  void start_learning() { begin_learning({.training = true}); }
  // While set, learned scales do not begin: where a pass quantizes several times, what it has first
  // says little of the rest.
  void postpone_learning(bool on) { learning_waits_ = on; }
  // Whether learning began, or began anew, since the last call.
  bool take_begun() { return std::exchange(begun_now_, false); }

  // Codes of f32 `x` and, when `mask` is not null, the packed straight-through mask. `counted`: the
  // NaN among them were counted when they were observed.
  Tensor quantize(const Tensor& x, const QParamTensors& qparams, Tensor* mask, bool counted) const;
  // With what the parameters are now; counts nothing.
  Tensor quantize(const Tensor& x) const;

  // The faults since the last call, in the quantizer or in the layer that owns it; each value and
  // each pass counts once. Waits for a GPU.
  Faults take_faults() { return faults_.take(); }
  // FaultCounter::any().
  bool has_faults(bool may_wait) const { return faults_.any(may_wait); }
  // Where non-finite values are counted: the first i64, on the module's device.
  const Tensor& non_finite() const { return faults_.non_finite(device()); }

 protected:
  // channels: number of scales (observers::scale_count()), each of as many consecutive elements.
  FakeQuantize(const QuantizerConfig& config, std::int64_t channels);
  void copy_state_to(FakeQuantize& copy) const;

  // Observes f32 values and updates the scale and zero point.
  QParamTensors observe(const Tensor& values);
  // Observes values that only the caller's kernel sees; nothing where the observer needs them. The
  // kernel is to be queued next.
  std::optional<RangeObservation> observe_range();
  // How a range that the observer keeps follows a step's extremes.
  kernels::RangeRule range_rule() const;
  const observers::Observer& observer() const { return *observer_; }
  observers::Observer& observer() { return *observer_; }
  // Takes the observer's range as that of the codes.
  void follow_observer();
  bool has_listener() const { return listener_ != nullptr; }
  // Whether the observer of a pass counts what is not finite.
  bool observer_counts(const ForwardContext& context) const {
    return observes(context) && !listener_;
  }
  void mark_observed() { set(kObserved, true); }
  // Throws NeverObserved.
  void require_observed() const;

  // Takes what the observer found as the start of learning; does nothing where nothing learns.
  void begin_learning(const ForwardContext& context);
  // The latents; null where nothing learns.
  const LearnedScale* latents() const { return learned_ ? &*learned_ : nullptr; }
  // Whether learning began; it may begin anew (set_bits()).
  bool has_begun() const { return is_on(kBegun); }
  // Whether they have begun, so that scale and zero point follow them.
  bool follows_latents() const { return learned_ && has_begun(); }
  // Whether a pass in this context records gradients of the latents.
  bool records_latents(const ForwardContext& context) const {
    return learns(context) && learned_ && learned_->trainable();
  }
  // Records gradients: to the input and, where the quantizer learns, to its latents.
  Variable record_use(QuantizedUse use, const ForwardContext& context) const;

  // As they are kept, whatever latents say.
  const QParamTensors& kept() const { return qparams_; }
  // Tensors to be filled with a copy of them.
  QParamTensors empty_qparams() const;
  // u8 [channels]: the range last observed was zero.
  const Tensor& zero_range() const;
  FaultCounter& faults() { return faults_; }

 private:
  enum Switch { kObserving, kQuantizing, kObserved, kBegun, kBits, kSwitches };
  // Whether each step's range is that of its values alone.
  virtual bool range_restarts() const = 0;

  bool is_on(Switch which) const { return switches_.data<std::uint8_t>()[which] != 0; }
  void set(Switch which, bool on) { switches_.data<std::uint8_t>()[which] = on; }
  void follow_latents() const;

  QuantizerConfig config_;
  std::unique_ptr<observers::Observer> observer_;
  Listener listener_;
  QParamTensors qparams_;
  Tensor switches_;  // u8 [kSwitches], on the host
  std::optional<LearnedScale> learned_;
  Tensor zero_range_;
  FaultCounter faults_;
  bool begun_now_ = false;
  bool learning_waits_ = false;
};

}  // namespace steelyard::qat
