#include "steelyard/qat/model/qat_model.h"

#include "steelyard/framework/autograd/fault_check.h"
#include "steelyard/framework/tensor/captured_work.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/qat/model/faults.h"

namespace steelyard::qat {
namespace {

// Without names, because every step asks.
bool any_fault(const Module& module, bool may_wait) {
  if (const auto* quantizer = dynamic_cast<const FakeQuantize*>(&module)) {
    return quantizer->has_faults(may_wait);
  }
  for (const auto& child : module.children()) {
    if (any_fault(**child, may_wait)) return true;
  }
  return false;
}

}  // namespace

// Nodes of the tape and of parameters may outlive the model.
class QatModel::Check : public FaultCheck {
 public:
  explicit Check(QatModel& model) : model_(&model) {}
  void forget_model() { model_ = nullptr; }

  void after_backward() override { look("backward", /*may_wait=*/false); }
  void before_step() override { look("optimizer step", ++steps_ % kGpuCheckSteps == 0); }
  void after_evaluation() { look("evaluation", !is_recording_work()); }

 private:
  void look(const char* place, bool may_wait) {
    if (model_ == nullptr || !*model_->fault_errors_ || !any_fault(*model_, may_wait)) return;
    const std::vector<NamedQuantizer> quantizers = named_quantizers(*model_);
    const auto first = take_fault(quantizers);
    for (const NamedQuantizer& entry : quantizers) entry.quantizer->take_faults();
    if (first) throw TrainingDiverged(std::string(place) + ": " + *first);
  }

  QatModel* model_;
  std::int64_t steps_ = 0;
};

QatModel::QatModel(std::shared_ptr<Module> model)
    : model_(register_child("", std::move(model))), check_(std::make_shared<Check>(*this)) {}

QatModel::~QatModel() { check_->forget_model(); }

void QatModel::watch_parameters() {
  for (const NamedParameter& p : named_parameters()) p.variable.node()->check = check_;
}

Variable QatModel::forward(const Variable& x, ForwardContext& context) {
  const Variable y = model_(input_ != nullptr ? (*input_)(x, context) : x, context);
  y.node()->check = check_;
  if (!context.training && !context.calibrating) check_->after_evaluation();
  return y;
}

}  // namespace steelyard::qat
