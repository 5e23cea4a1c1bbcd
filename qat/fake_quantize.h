// FakeQuantize: an observer, its scale and zero point, and the quantizer they define.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "steelyard/framework/module.h"
#include "steelyard/kernels/layout.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/observers/observer.h"
#include "steelyard/observers/qparams.h"
#include "steelyard/qat/qconfig.h"
#include "steelyard/qat/quantized_value.h"

namespace steelyard::qat {

// Weights are wholly visible in every step: an observer that never forgets starts anew each time,
// since a running extreme would never follow weights that shrink.
enum class QuantizerRole { kActivation, kWeight };

// What one step quantizes with; nothing changes them before its backward pass is over.
struct StepParameters {
  Tensor scale;       // f32 [channels]
  Tensor zero_point;  // i32 [channels]
};

// What a layer adds to the product of its weights and the codes of its input.
struct WeightBias {
  Tensor input_scale;       // f32 [1]
  Tensor input_zero_point;  // i32 [1]
  kernels::CodeRange input_codes;
  Tensor bias;      // f32 [outputs], undefined for none
  Tensor deployed;  // the bias that scales are fitted to, likewise
};

// A bias whose int32 code could leave int32 together with the products that it is added to.
struct BiasOverflow {
  std::int64_t channel = 0;
  float bias = 0;
  float limit = 0;  // the largest magnitude that could not, with the same scales and weights
};

// What passes met that codes would hide.
struct Faults {
  std::int64_t non_finite = 0;           // NaN and infinite values
  std::optional<BiasOverflow> overflow;  // the first channel's
};

// A pass that observes in a kernel of its own: what the kernel is given and what it writes.
struct RangeObservation {
  kernels::RangeRule rule;
  kernels::RangeQuantizer quantizer;
  StepParameters step;
};

// Quantizes one tensor. Observing and quantizing are separate switches; both, the scale, the zero
// point and the observer's state are buffers, so that a checkpoint holds them. The switches stay on
// the host, which decides by them what runs; everything else lies where the module was moved to,
// and no pass waits for it (observers that look at values on the CPU do: observers/observer.h).
class FakeQuantize : public Module {
 public:
  // channels: number of scales (observers::scale_count()), each of as many consecutive elements.
  FakeQuantize(const QuantizerConfig& config, QuantizerRole role, std::int64_t channels = 1);

  // Observes x in training and calibration, and gives its straight-through fake-quantization with
  // codes attached (x itself while quantizing is off). x is f32. Throws std::logic_error when asked
  // to quantize before anything was observed.
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "FakeQuantize"; }
  std::string description() const override;
  // A quantizer with the same state on the same device that shares nothing with this one. It has
  // met no faults and has no listener.
  std::shared_ptr<FakeQuantize> clone() const;

  // As configured; the width may differ for a time (set_bits()).
  const QuantizerConfig& config() const { return config_; }
  QuantizerRole role() const { return role_; }
  // The grid in use.
  observers::QScheme scheme() const;
  // The grid that saved switches (the buffer of that name) say; nothing where they are no switches.
  std::optional<observers::QScheme> scheme_in(const Tensor& switches) const;
  kernels::CodeRange code_range() const { return scheme().code_range(); }
  // Changes the width of the codes, 2 to 8 bits, over the same range. What learns begins anew with
  // the next values observed.
  void set_bits(int bits);
  // f32 and i32 [channels], on the module's device; they change in place.
  const Tensor& scale() const;
  const Tensor& zero_point() const;
  // Their numbers; waits for a GPU.
  std::vector<float> host_scale() const;
  std::vector<std::int32_t> host_zero_point() const;
  std::int64_t channels() const { return scale_.size(); }
  Device device() const { return scale_.device(); }
  // The codes with the one scale and zero point that they were made with.
  QuantizedValue value_of(Tensor codes, const StepParameters& step) const;
  // Of each channel, the values of the smallest and of the largest code; waits for a GPU.
  std::vector<observers::Range> float_range() const;
  // Sets one channel's parameters. Throws std::invalid_argument when there is no such channel or
  // they are not valid, std::logic_error once the scale is learned (learns()).
  void set_qparams(std::int64_t channel, float scale, std::int32_t zero_point);

  bool observing() const { return switches_.data<std::uint8_t>()[kObserving] != 0; }
  bool quantizing() const { return switches_.data<std::uint8_t>()[kQuantizing] != 0; }
  void set_observing(bool on) { switches_.data<std::uint8_t>()[kObserving] = on; }
  void set_quantizing(bool on) { switches_.data<std::uint8_t>()[kQuantizing] = on; }

  // Whether a pass in this context teaches the observer. A quantizer that learns stops to observe
  // when it begins.
  bool observes(const ForwardContext& context) const {
    return (context.training || context.calibrating) &&
           (listener_ || (observing() && !has_begun()));
  }
  // While set, every pass that may observe gives the f32 values to `listener` instead, whatever the
  // switch says: nothing is learned. An empty one ends that.
  using Listener = std::function<void(std::span<const float>)>;
  void set_listener(Listener listener) { listener_ = std::move(listener); }
  // Whether scale (and zero point) get gradients in this step: in training, from the first step
  // that quantizes on, until freezing ends what observing means.
  bool learns(const ForwardContext& context) const {
    return context.training && observing() && has_begun();
  }
  // Whether learning began, or began anew, since the last call.
  bool take_begun() { return std::exchange(begun_now_, false); }
  // `output` is the quantized form of `input` in this step, from the real values that `values`
  // computes again in backward: where the quantizer learns, gradients reach its parameters. The
  // input's gradient is the output's where the packed mask has a one; all of it without a mask.
  // Elsewhere the plain straight-through estimator, or `output` itself without a mask.
  Variable learn(Variable output, const Variable& input, Tensor mask,
                 std::function<Tensor()> values, const StepParameters& step,
                 const ForwardContext& context) const;
  // The same for `y`, recorded codes of this quantizer whose straight-through gradient is done.
  Variable learn_output(const Variable& y, std::function<Tensor()> values,
                        const ForwardContext& context) const;

  // Learns from f32 values and updates the scale and zero point. What producers call that quantize
  // in their own epilogue, with parameters().
  StepParameters observe(const Tensor& values);
  // The same from values that only the producer's kernel sees; nothing where the observer needs
  // them. The kernel is to be queued next.
  std::optional<RangeObservation> observe_range();
  // What a pass quantizes with whose observing gave `observed`, if it did. Learning begins here.
  // Throws std::logic_error when nothing was observed.
  StepParameters parameters(const StepParameters& observed, const ForwardContext& context);
  // What these weights were quantized with, by quantize_weights().
  StepParameters parameters(const WeightCodes& weight) const {
    return {weight.scales, weight.zero_points.defined() ? weight.zero_points : zero_point_};
  }
  // Forgets what the observer has seen; the scale and zero point stay until it observes again.
  void forget() { observer_->reset(); }

  // Codes of f32 `x` and, when `mask` is not null, the packed straight-through mask. `counted`: the
  // NaN among them were counted when they were observed.
  Tensor quantize(const Tensor& x, const StepParameters& step, Tensor* mask, bool counted) const;
  // With what the parameters are now; counts nothing.
  Tensor quantize(const Tensor& x) const;
  // Codes of a layer's f32 weights [outputs, ...] in a pass, which observes, lets learning begin
  // and, where a bias follows, makes the scales suit it by the rules of docs/numerics.md: a channel
  // without weights takes its scale from the bias while it follows its weights; every scale is
  // large enough that the bias fits int32 and that s_x * s_w is a normal float, in evaluation for
  // the pass alone. A bias that int32 cannot hold beside its products is cut to what it can hold
  // and is a fault. Throws std::logic_error when nothing was observed.
  WeightCodes quantize_weights(const Tensor& weight, const WeightBias* behind, bool recorded,
                               const ForwardContext& context);
  // Throws std::invalid_argument unless so many elements divide into the channels.
  kernels::ChannelLayout layout(std::int64_t size) const;
  bool observed() const { return switches_.data<std::uint8_t>()[kObserved] != 0; }
  void require_observed() const;

  // What was met since the last call, here or by the layer that owns the quantizer; each value and
  // each pass counts once. Waits for a GPU.
  Faults take_faults();
  // Where non-finite values are counted: the first i64, on the module's device.
  const Tensor& non_finite() const { return with_scale(faults_); }

 private:
  // Takes what the observer found as the start of learning; does nothing where nothing learns.
  void begin_learning(const ForwardContext& context);
  enum Switch { kObserving, kQuantizing, kObserved, kBegun, kBits, kSwitches };
  bool has_begun() const { return switches_.data<std::uint8_t>()[kBegun] != 0; }
  bool range_restarts() const;
  // Whether the observer of a pass counts what is not finite.
  bool observer_counts(const ForwardContext& context) const {
    return observes(context) && !listener_;
  }
  float* too_large_biases(std::int64_t outputs);
  void update_qparams();
  void follow_latents(const StepParameters& step) const;
  StepParameters empty_step() const;
  // The tensor, moved to where the scale is: what is no buffer does not move with the module.
  const Tensor& with_scale(const Tensor& tensor) const;

  QuantizerConfig config_;
  QuantizerRole role_;
  std::unique_ptr<observers::Observer> observer_;
  Listener listener_;
  Tensor scale_;             // f32 [channels]
  Tensor zero_point_;        // i32 [channels]
  Tensor switches_;          // u8 [kSwitches], on the host
  Variable learned_scale_;   // latent f32 [channels]; undefined where nothing learns
  Variable learned_offset_;  // f32 [channels]; undefined where it does not learn
  Tensor initial_scale_;     // f32 [channels]
  Tensor scale_floor_;       // f32 [channels]
  Tensor zero_range_;        // u8 [channels]: the range last observed was zero
  Tensor faults_;            // i64 [2]: non-finite values, biases too large
  Tensor too_large_bias_;    // f32 [outputs, 2]: of kernels::WeightQuantizer; undefined at first
  bool begun_now_ = false;
};

// The straight-through estimator: makes `output` the quantized form of `input`, whose gradient
// passes where the packed mask has a one. Source: Bengio et al. 2013, arXiv:1308.3432.
Variable straight_through(Variable output, Tensor mask, const Variable& input);

// grad_output where the packed mask has a one, else 0.
Tensor masked_gradient(const Tensor& grad_output, const Tensor& mask);

// A packed mask of so many elements, to be filled.
Tensor empty_mask(std::int64_t elements, Device device);

}  // namespace steelyard::qat
