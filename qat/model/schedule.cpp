#include "steelyard/qat/model/schedule.h"

#include <algorithm>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/qat/model/faults.h"

namespace steelyard::qat {
namespace {

std::int64_t activations_from(const QatSchedule& schedule) {
  return schedule.fake_quant_activations_from.value_or(schedule.fake_quant_from);
}

// The epoch from which on everything is quantized as it will be deployed.
std::int64_t last_change(const QatSchedule& schedule) {
  std::int64_t epoch = std::max(schedule.fake_quant_from, activations_from(schedule));
  if (!schedule.stages.empty()) epoch = std::max(epoch, schedule.stages.back().until);
  return epoch;
}

}  // namespace

ScheduleCallback::ScheduleCallback(Module& model, const QatSchedule& schedule)
    : schedule_(schedule), model_(model), quantizers_(named_quantizers(model)) {
  if (schedule.fake_quant_from < schedule.observe_from) {
    throw InputError("schedule.fake_quant.from = " + std::to_string(schedule.fake_quant_from) +
                     " is before schedule.observe.from = " + std::to_string(schedule.observe_from));
  }
  // The rules for bias scales need the input's scale, so a layer's weight scales are final only
  // once it has observed while quantizing: if they were frozen earlier, the bias of a channel whose
  // weights are all zero would be lost.
  if (schedule.freeze_observers && *schedule.freeze_observers <= last_change(schedule)) {
    throw InputError(
        "schedule.freeze_observers.epoch = " + std::to_string(*schedule.freeze_observers) +
        " leaves no epoch that observes and quantizes with the final widths: expected more than " +
        std::to_string(last_change(schedule)));
  }
}

void ScheduleCallback::on_epoch_begin(std::int64_t epoch) {
  const bool frozen =
      schedule_.keep_ranges || (schedule_.freeze_observers && epoch >= *schedule_.freeze_observers);
  for (const NamedQuantizer& entry : quantizers_) {
    FakeQuantize& quantizer = *entry.quantizer;
    const bool weights = quantizer.of_weights();
    const bool trained = schedule_.trained.contain(entry.name);
    quantizer.set_observing(epoch >= schedule_.observe_from && !frozen && trained);
    quantizer.set_quantizing(epoch >=
                             (weights ? schedule_.fake_quant_from : activations_from(schedule_)));
    int bits = quantizer.config().scheme.bits;
    for (const BitStage& stage : schedule_.stages) {
      if (epoch >= stage.until || !trained) continue;
      bits = std::max(bits, weights ? stage.weights : stage.activations);
      break;
    }
    quantizer.set_bits(bits);
  }
  const auto& freeze = schedule_.freeze_batch_norm;
  if (!freeze && schedule_.trained.everything()) return;
  for (const NamedModule& entry : model_.named_modules()) {
    if (auto* norm = dynamic_cast<BatchNorm*>(entry.module)) {
      norm->set_frozen((freeze && epoch >= *freeze) || !schedule_.trained.contain(entry.name));
    }
  }
}

std::int64_t ScheduleCallback::final_form_from() const { return last_change(schedule_); }

void ScheduleCallback::on_step_begin(std::int64_t, std::int64_t) { looks_itself_.emplace(model_); }

void ScheduleCallback::on_step_end(const StepReport& report) {
  looks_itself_.reset();
  step_ = report.step;
  const bool on_gpu = device_of(model_).kind != Device::Kind::kCpu;
  if (!on_gpu || report.step % kGpuCheckSteps == 0) require_no_faults();
}

void ScheduleCallback::on_steps_done(std::int64_t) { require_no_faults(); }

void ScheduleCallback::on_checkpoint() { require_no_faults(); }

void ScheduleCallback::require_no_faults() const {
  if (const auto fault = take_fault(quantizers_)) {
    throw TrainingDiverged("step " + std::to_string(step_) + ": " + *fault);
  }
}

}  // namespace steelyard::qat
