// Switches of all quantizers of a model, for passes that measure.
#pragma once

#include <vector>

#include "steelyard/qat/model/faults.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/quantizers/fake_quantize.h"

namespace steelyard::qat {

// Holds the switches of every quantizer; the destructor restores them. The owner looks for faults.
class QuantizerSwitches {
 public:
  explicit QuantizerSwitches(Module& model)
      : quantizers_(named_quantizers(model)), looks_itself_(model) {
    for (const NamedQuantizer& entry : quantizers_) {
      switches_.push_back({entry.quantizer, entry.quantizer->observing(),
                           entry.quantizer->quantizing(), entry.quantizer->of_weights()});
    }
  }
  ~QuantizerSwitches() {
    for (const Switches& s : switches_) {
      s.quantizer->set_observing(s.observing);
      s.quantizer->set_quantizing(s.quantizing);
    }
  }
  QuantizerSwitches(const QuantizerSwitches&) = delete;
  QuantizerSwitches& operator=(const QuantizerSwitches&) = delete;

  const std::vector<NamedQuantizer>& quantizers() const { return quantizers_; }

  struct Side {
    bool observes = false;
    bool quantizes = false;
  };
  void set(const Side& weights, const Side& activations) {
    for (const Switches& s : switches_) {
      const Side& side = s.weights ? weights : activations;
      s.quantizer->set_observing(side.observes);
      s.quantizer->set_quantizing(side.quantizes);
    }
  }

 private:
  struct Switches {
    FakeQuantize* quantizer;
    bool observing, quantizing;
    bool weights;
  };
  std::vector<NamedQuantizer> quantizers_;
  FaultErrorsOff looks_itself_;
  std::vector<Switches> switches_;
};

}  // namespace steelyard::qat
