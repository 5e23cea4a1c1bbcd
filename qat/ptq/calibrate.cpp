#include "steelyard/qat/ptq/calibrate.h"
#include "steelyard/qat/model/named_quantizers.h"

#include <stdexcept>
#include <string>

#include "steelyard/framework/train/divergence.h"
#include "steelyard/qat/model/faults.h"
#include "steelyard/qat/model/quantizer_switches.h"

namespace steelyard::qat {
namespace {

void require_no_faults(const QuantizerSwitches& switches, std::int64_t batch) {
  if (const auto fault = take_fault(switches.quantizers())) {
    throw TrainingDiverged("calibration, batch " + std::to_string(batch + 1) + ": " + *fault);
  }
}

// Passes with observers of activations, then one with everything quantized.
void measure(Module& model, QuantizerSwitches& switches, std::int64_t batches,
             const std::function<Tensor(std::int64_t)>& inputs, CalibrationWeights weights,
             WeightScales scales) {
  if (!inputs) throw std::invalid_argument("[calibrate] expected a function of inputs, got none");
  const NoGradGuard no_grad;
  const Device device = device_of(model);
  const auto pass = [&](std::int64_t batch) {
    ForwardContext context{.calibrating = true};
    model.forward(Variable(inputs(batch).to(device)), context).value();
    require_no_faults(switches, batch);
  };
  const bool follow = scales == WeightScales::kFollow;
  switches.set({.observes = follow, .quantizes = weights == CalibrationWeights::kQuantized},
               {.observes = true});
  for (std::int64_t i = 0; i < batches; ++i) pass(i);
  switches.set({.observes = follow, .quantizes = true}, {.quantizes = true});
  pass(0);
}

}  // namespace

void calibrate(Module& model, std::int64_t batches,
               const std::function<Tensor(std::int64_t)>& inputs, CalibrationWeights weights) {
  if (batches < 1) {
    throw std::invalid_argument("[calibrate] expected 1 batch or more, got " +
                                std::to_string(batches));
  }
  QuantizerSwitches switches(model);
  measure(model, switches, batches, inputs, weights, WeightScales::kFollow);
}

bool measure_again(Module& model, std::int64_t batches,
                   const std::function<Tensor(std::int64_t)>& inputs, WeightScales scales) {
  QuantizerSwitches switches(model);
  bool any = false;
  for (const NamedQuantizer& entry : switches.quantizers()) {
    if (entry.quantizer->of_weights() || !entry.quantizer->observed()) continue;
    entry.quantizer->forget();
    any = true;
  }
  if (any) measure(model, switches, batches, inputs, CalibrationWeights::kQuantized, scales);
  return any;
}

}  // namespace steelyard::qat
