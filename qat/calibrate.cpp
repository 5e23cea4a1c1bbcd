#include "steelyard/qat/calibrate.h"

#include <stdexcept>
#include <string>

#include "steelyard/framework/divergence.h"
#include "steelyard/qat/faults.h"
#include "steelyard/qat/quantizer_switches.h"

namespace steelyard::qat {
namespace {

// Weights always observe; activations observe or quantize.
void set_quantized(QuantizerSwitches& switches, bool weights, bool activations) {
  switches.set({.observes = true, .quantizes = weights},
               {.observes = !activations, .quantizes = activations});
}

void require_no_faults(const QuantizerSwitches& switches, std::int64_t batch) {
  if (const auto fault = take_fault(switches.quantizers())) {
    throw TrainingDiverged("calibration, batch " + std::to_string(batch + 1) + ": " + *fault);
  }
}

}  // namespace

void calibrate(Module& model, std::int64_t batches,
               const std::function<Tensor(std::int64_t)>& inputs, CalibrationWeights weights) {
  if (batches < 1) {
    throw std::invalid_argument("[calibrate] expected 1 batch or more, got " +
                                std::to_string(batches));
  }
  const NoGradGuard no_grad;
  const Device device = device_of(model);
  QuantizerSwitches switches(model);
  const auto pass = [&](std::int64_t batch) {
    ForwardContext context{.calibrating = true};
    model.forward(Variable(inputs(batch).to(device)), context).value();
    require_no_faults(switches, batch);
  };
  set_quantized(switches, weights == CalibrationWeights::kQuantized, false);
  for (std::int64_t i = 0; i < batches; ++i) pass(i);
  set_quantized(switches, true, true);
  pass(0);
}

}  // namespace steelyard::qat
