#include "qat/schedule.h"

#include "framework/error.h"
#include "layers/batch_norm2d.h"

namespace steelyard::qat {

ScheduleCallback::ScheduleCallback(Module& model, const QatSchedule& schedule)
    : schedule_(schedule), model_(model), quantizers_(named_quantizers(model)) {
  if (schedule.fake_quant_from < schedule.observe_from) {
    throw InputError("schedule.fake_quant.from = " + std::to_string(schedule.fake_quant_from) +
                     " is before schedule.observe.from = " + std::to_string(schedule.observe_from));
  }
  // The rules for bias scales need the input's scale, so a layer's weight scales are final only
  // once it has observed while quantizing: frozen earlier, the bias of a dead channel would vanish.
  if (schedule.freeze_observers && *schedule.freeze_observers <= schedule.fake_quant_from) {
    throw InputError(
        "schedule.freeze_observers.epoch = " + std::to_string(*schedule.freeze_observers) +
        " leaves no epoch that observes and quantizes: expected more than "
        "schedule.fake_quant.from = " +
        std::to_string(schedule.fake_quant_from));
  }
}

void ScheduleCallback::on_epoch_begin(std::int64_t epoch) {
  const bool frozen =
      schedule_.keep_ranges || (schedule_.freeze_observers && epoch >= *schedule_.freeze_observers);
  for (const NamedQuantizer& entry : quantizers_) {
    const bool trained = schedule_.trained.contain(entry.name);
    entry.quantizer->set_observing(epoch >= schedule_.observe_from && !frozen && trained);
    entry.quantizer->set_quantizing(epoch >= schedule_.fake_quant_from);
  }
  const auto& freeze = schedule_.freeze_batch_norm;
  if (!freeze && schedule_.trained.everything()) return;
  for (const NamedModule& entry : model_.named_modules()) {
    if (auto* norm = dynamic_cast<BatchNorm2d*>(entry.module)) {
      norm->set_frozen((freeze && epoch >= *freeze) || !schedule_.trained.contain(entry.name));
    }
  }
}

void ScheduleCallback::on_step_end(const StepReport& report) {
  for (const NamedQuantizer& entry : quantizers_) {
    const std::int64_t bad = entry.quantizer->take_non_finite_count();
    if (bad > 0) {
      throw TrainingDiverged("step " + std::to_string(report.step) + ": " + std::to_string(bad) +
                             " non-finite values reached the quantizer " + entry.name);
    }
  }
}

}  // namespace steelyard::qat
