// The quantizer of an activation: one scale, whose range follows the values that pass through it.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "steelyard/framework/train/step_statistics.h"
#include "steelyard/qat/quantizers/fake_quantize.h"

namespace steelyard::qat {

// A layer whose own kernel writes codes calls empty_output(), fills the codes, and ends with
// learn_output().
//
// In a step of several shards (framework/train/step_statistics.h) each shard is quantized with the
// range that the previous steps left, and the range is updated once, at the end.
class ActivationQuantizer : public FakeQuantize, public StepStatistics {
 public:
  // Throws std::invalid_argument for what validate_activations() refuses, and for dynamic scales.
  explicit ActivationQuantizer(const QuantizerConfig& config);

  // Observes x in training and calibration, and gives its straight-through fake-quantization with
  // codes attached (x itself while quantizing is off). x is f32. Throws std::logic_error when asked
  // to quantize before anything was observed.
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::shared_ptr<FakeQuantize> clone() const override;
  bool of_weights() const override { return false; }

  // Observes f32 values and updates the scale and zero point; between begin_step() and end_step()
  // it only gathers.
  QParamTensors observe(const Tensor& values);
  // Observes values that only the layer's kernel computes; nothing if the observer needs the values
  // themselves. The kernel must be queued next.
  std::optional<RangeObservation> observe_range();
  // The parameters of a pass, whose observation (if there was one) gave `observed`; they stay
  // unchanged until its backward pass is over. Learning begins here. Throws std::logic_error if
  // nothing was observed.
  QParamTensors parameters(const QParamTensors& observed, const ForwardContext& context);
  // Codes with parameters(), to be filled.
  QuantizedValue empty_output(Shape shape, const QParamTensors& observed,
                              const ForwardContext& context);
  // Codes to be filled, having observed the real f32 `values()` where that is due.
  QuantizedValue empty_output(Shape shape, const std::function<Tensor()>& values,
                              const ForwardContext& context);
  // The codes with the one scale and zero point that they were made with.
  QuantizedValue value_of(Tensor codes, QParamTensors qparams) const;

  // `y`, recorded codes of this quantizer whose straight-through gradient is done: where the
  // quantizer learns, gradients reach its latents as well.
  Variable learn_output(const Variable& y, RealValues values, const ForwardContext& context) const;

  bool needs_first_pass() const override { return observing() && quantizing() && !observed(); }
  void begin_first_pass() override { set_quantizing(false); }
  void end_first_pass() override { set_quantizing(true); }
  void begin_step() override;
  std::vector<Tensor> maxima() override {
    return gathers_ ? observer().maxima() : std::vector<Tensor>();
  }
  std::vector<Tensor> counts() override {
    return gathers_ ? observer().counts() : std::vector<Tensor>();
  }
  void end_step() override;
  void abandon_step() override;

 private:
  bool range_restarts() const override { return false; }

  bool gathers_ = false;
  bool gathered_any_ = false;
};

}  // namespace steelyard::qat
