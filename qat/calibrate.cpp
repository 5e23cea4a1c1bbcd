#include "steelyard/qat/calibrate.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "steelyard/framework/divergence.h"
#include "steelyard/qat/faults.h"

namespace steelyard::qat {
namespace {

// The switches of every quantizer; the destructor restores them.
class Calibrating {
 public:
  explicit Calibrating(Module& model) : quantizers_(named_quantizers(model)) {
    for (const NamedQuantizer& entry : quantizers_) {
      switches_.push_back({entry.quantizer, entry.quantizer->observing(),
                           entry.quantizer->quantizing(), entry.quantizer->of_weights()});
    }
  }
  ~Calibrating() {
    for (const Switches& s : switches_) {
      s.quantizer->set_observing(s.observing);
      s.quantizer->set_quantizing(s.quantizing);
    }
  }
  Calibrating(const Calibrating&) = delete;
  Calibrating& operator=(const Calibrating&) = delete;

  // Weights always observe; activations observe or quantize.
  void set_quantized(bool weights, bool activations) {
    for (const Switches& s : switches_) {
      s.quantizer->set_observing(s.weights || !activations);
      s.quantizer->set_quantizing(s.weights ? weights : activations);
    }
  }

  void require_no_faults(std::int64_t batch) const {
    if (const auto fault = take_fault(quantizers_)) {
      throw TrainingDiverged("calibration, batch " + std::to_string(batch + 1) + ": " + *fault);
    }
  }

 private:
  struct Switches {
    FakeQuantize* quantizer;
    bool observing, quantizing;
    bool weights;
  };
  std::vector<NamedQuantizer> quantizers_;
  std::vector<Switches> switches_;
};

}  // namespace

void calibrate(Module& model, std::int64_t batches,
               const std::function<Tensor(std::int64_t)>& inputs, CalibrationWeights weights) {
  if (batches < 1) {
    throw std::invalid_argument("[calibrate] expected 1 batch or more, got " +
                                std::to_string(batches));
  }
  const NoGradGuard no_grad;
  const Device device = device_of(model);
  Calibrating calibrating(model);
  const auto pass = [&](std::int64_t batch) {
    ForwardContext context{.calibrating = true};
    model.forward(Variable(inputs(batch).to(device)), context).value();
    calibrating.require_no_faults(batch);
  };
  calibrating.set_quantized(weights == CalibrationWeights::kQuantized, false);
  for (std::int64_t i = 0; i < batches; ++i) pass(i);
  calibrating.set_quantized(true, true);
  pass(0);
}

}  // namespace steelyard::qat
