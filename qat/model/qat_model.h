// The whole model with the quantizer of its input.
#pragma once

#include <memory>
#include <string>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"

namespace steelyard::qat {

// The wrapped model's names are unchanged. Faults that its quantizers count are errors (faults.h).
class QatModel : public Module {
 public:
  explicit QatModel(std::shared_ptr<Module> model);
  ~QatModel() override;

  void quantize_input(const QuantizerConfig& config) {
    input_ = &register_child("input_quantizer", std::make_shared<ActivationQuantizer>(config));
  }
  Slot& model() { return model_; }
  // Lets the optimizers of today's parameters look for faults; outputs always do.
  void watch_parameters();
  // Whether they are errors, now.
  const std::shared_ptr<bool>& fault_errors() const { return fault_errors_; }

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatModel"; }

 private:
  class Check;

  Slot& model_;
  Slot* input_ = nullptr;
  std::shared_ptr<bool> fault_errors_ = std::make_shared<bool>(true);
  std::shared_ptr<Check> check_;
};

}  // namespace steelyard::qat
