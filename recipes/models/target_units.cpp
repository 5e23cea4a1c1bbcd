#include "steelyard/recipes/models/target_units.h"

#include <utility>

#include "steelyard/framework/ops/elementwise/arithmetic.h"

namespace steelyard {
namespace {

// Paths below the model are its own.
class InUnitsOfTargets : public Module {
 public:
  InUnitsOfTargets(std::shared_ptr<Module> model, const Normalization& normalization)
      : model_(register_child("", std::move(model))),
        mean_(Tensor::from(normalization.mean, {std::ssize(normalization.mean)})),
        stddev_(Tensor::from(normalization.stddev, {std::ssize(normalization.stddev)})) {}

  Variable forward(const Variable& x, ForwardContext& context) override {
    const Variable outputs = model_(x, context);
    const Device device = outputs.value().device();
    return outputs * Variable(stddev_.to(device)) + Variable(mean_.to(device));
  }
  std::string type_name() const override { return "InUnitsOfTargets"; }

 private:
  Slot& model_;
  Tensor mean_, stddev_;  // f32 [columns]
};

}  // namespace

std::shared_ptr<Module> in_units_of_targets(std::shared_ptr<Module> model,
                                            const Normalization& normalization) {
  if (normalization.mean.empty()) return model;
  return std::make_shared<InUnitsOfTargets>(std::move(model), normalization);
}

}  // namespace steelyard
