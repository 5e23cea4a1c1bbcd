// The quantizer of a layer's weights, with the rules of the bias that is added to their product.
#pragma once

#include <memory>
#include <optional>

#include "steelyard/framework/train/step_statistics.h"
#include "steelyard/kernels/weight_codes/weight_codes.h"
#include "steelyard/qat/quantizers/fake_quantize.h"

namespace steelyard::qat {

// The bias that a layer adds to the product of its weights and the codes of its input.
struct WeightBias {
  QParamTensors input;  // [1] each
  kernels::CodeRange input_codes;
  Tensor values;    // f32 [outputs], undefined for none
  Tensor deployed;  // the bias that scales are fitted to, likewise
};

// All weights are visible in every step, so an observer that never forgets is reset in each step: a
// running extreme would never follow weights that shrink. The shards of a step
// (framework/train/step_statistics.h) have the same weights, so only the first one observes them.
class WeightQuantizer : public FakeQuantize, public StepStatistics {
 public:
  // channels: number of scales (observers::scale_count()), each of as many consecutive weights.
  // Throws std::invalid_argument for what validate_weights() refuses.
  explicit WeightQuantizer(const QuantizerConfig& config, std::int64_t channels = 1);

  // Weights that carry their codes, where no product needs their bias: those of
  // quantize_weights(), with a straight-through gradient (the weights themselves while quantizing
  // is off).
  Variable forward(const Variable& weight, ForwardContext& context) override;
  std::shared_ptr<FakeQuantize> clone() const override;
  bool of_weights() const override { return true; }

  // Codes of a layer's f32 weights [outputs, ...] in a pass, which observes, lets learning begin
  // and, where a bias follows, makes the scales suit it by the rules of docs/numerics.md: a channel
  // without weights takes its scale from the bias while it follows its weights; every scale is
  // large enough that the bias fits int32 and that s_x * s_w is a normal float, in evaluation for
  // the pass alone. A bias that int32 cannot hold with its products is cut to what it can hold
  // and is a fault. Throws std::logic_error when nothing was observed.
  WeightCodes quantize_weights(const Tensor& weight, const WeightBias* bias, bool recorded,
                               const ForwardContext& context);
  // The variable that gets the gradient of the weights from a product of their codes: `weight`, or
  // where the quantizer learns a variable through which gradients reach the latents too, and which
  // takes the mask from the codes.
  Variable learn_weight(const Variable& weight, WeightCodes& codes,
                        const ForwardContext& context) const;

  void begin_step() override { observes_once_ = true; }
  void end_step() override { abandon_step(); }
  void abandon_step() override { observes_once_ = observed_in_step_ = false; }

 private:
  bool range_restarts() const override { return !observer().forgets(); }
  void observe_in_pass(const Tensor& weight, kernels::WeightQuantization& op);
  // `output`: of the weights in float, or with codes.
  QuantizedUse use_of(Variable output, const Variable& weight, QParamTensors qparams,
                      Tensor mask) const;
  QParamTensors parameters(const WeightCodes& codes) const;
  kernels::WeightQuantization operation_on(const Tensor& weight, const WeightBias* bias,
                                           const ForwardContext& context) const;
  WeightCodes empty_codes(const Tensor& weight, const WeightBias* bias, bool recorded) const;
  kernels::WeightQuantizerArrays state(std::int64_t outputs, bool with_bias);

  bool observes_once_ = false;  // between begin_step() and end_step()
  bool observed_in_step_ = false;
};

}  // namespace steelyard::qat
