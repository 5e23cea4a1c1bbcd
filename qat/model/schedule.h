// A callback of the trainer that decides when quantizers observe, quantize and freeze.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "steelyard/framework/train/trainer.h"
#include "steelyard/qat/model/faults.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/model/trained_parts.h"

namespace steelyard::qat {

// Before the epoch `until`, codes have at least these widths.
struct BitStage {
  std::int64_t until = 0;
  int weights = 2;
  int activations = 2;
};

// Epochs count from 0.
struct QatSchedule {
  std::int64_t observe_from = 0;
  std::int64_t fake_quant_from = 0;  // not before observe_from
  // fake_quant_from of activations, when they start later than weights.
  std::optional<std::int64_t> fake_quant_activations_from{};
  std::vector<BitStage> stages{};  // in order
  std::optional<std::int64_t> freeze_observers{};
  std::optional<std::int64_t> freeze_batch_norm{};
  bool keep_ranges = false;  // observers never follow: ranges are those of a calibration
  TrainedParts trained{};    // quantizers and batch norms of the rest never follow
};

// Sets the switches of every quantizer and batch norm in `model` at the start of each epoch, and
// stops a run whose quantizers met NaN or infinite values (their codes would hide it) or biases
// that int32 cannot hold with their products: after the step, on a GPU after every
// kGpuCheckSteps, at the epoch's end and before every checkpoint, since asking waits for it.
class ScheduleCallback : public TrainerCallback {
 public:
  // Throws InputError when quantizing starts before observing, or when observers freeze before an
  // epoch that observes and quantizes with the final widths.
  ScheduleCallback(Module& model, const QatSchedule& schedule);

  void on_epoch_begin(std::int64_t epoch) override;
  // Where everything is quantized, with the final widths.
  std::int64_t final_form_from() const override;
  void on_step_begin(std::int64_t step, std::int64_t total_steps) override;
  void on_step_end(const StepReport& report) override;
  void on_steps_done(std::int64_t epoch) override;
  void on_checkpoint() override;

 private:
  void require_no_faults() const;

  QatSchedule schedule_;
  Module& model_;
  std::vector<NamedQuantizer> quantizers_;
  std::optional<FaultErrorsOff> looks_itself_;  // during a step
  std::int64_t step_ = 0;
};

}  // namespace steelyard::qat
