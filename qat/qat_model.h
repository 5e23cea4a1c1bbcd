// The whole model with the quantizer of its input.
#pragma once

#include <memory>
#include <string>

#include "steelyard/framework/module.h"
#include "steelyard/qat/activation_quantizer.h"

namespace steelyard::qat {

// The wrapped model's names are unchanged.
class QatModel : public Module {
 public:
  explicit QatModel(std::shared_ptr<Module> model) : model_(register_child("", std::move(model))) {}

  void quantize_input(const QuantizerConfig& config) {
    input_ = &register_child("input_quantizer", std::make_shared<ActivationQuantizer>(config));
  }
  Slot& model() { return model_; }

  Variable forward(const Variable& x, ForwardContext& context) override {
    return model_(input_ != nullptr ? (*input_)(x, context) : x, context);
  }
  std::string type_name() const override { return "QatModel"; }

 private:
  Slot& model_;
  Slot* input_ = nullptr;
};

}  // namespace steelyard::qat
