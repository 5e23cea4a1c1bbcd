// A callback of the trainer that follows the codes of weights, damps their oscillations and freezes
// weights that do not settle. Source: Nagel et al., arXiv:2203.11086.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/train/trainer.h"
#include "steelyard/kernels/oscillation/oscillation.h"
#include "steelyard/qat/forms/quantized_layer.h"

namespace steelyard::qat {

// Half a cosine from `start` in the first step of a run to `end` after the last.
struct CosineSchedule {
  double start = 0;
  double end = 0;
  double at(std::int64_t step, std::int64_t total_steps) const;
};

struct OscillationOptions {
  double momentum = 0.01;                 // of the new step in the averages
  std::optional<CosineSchedule> damping;  // lambda, at least 0; absent: none
  // Weights with a higher frequency of oscillation are frozen; absent: never.
  std::optional<CosineSchedule> freeze_threshold;
};

// In every step that quantizes, of every quantized weight that is trained: follows the codes that
// the forward pass used, adds the gradient of lambda * sum (quantized - clipped weight)^2 (which
// leaves the scale alone), and holds frozen weights at scale * code, with gradient 0. Its state
// lies where the weights are when it is made.
class OscillationCallback : public TrainerCallback, public StepWork {
 public:
  // Weights above this frequency count as oscillating in metrics(); the paper's threshold.
  static constexpr float kOscillating = 0.005F;

  // Follows the weights that require a gradient now. Throws InputError when none of them is
  // quantized, or when the layer of one folds its batch norm in every step (its weight is not what
  // is quantized).
  OscillationCallback(Module& model, const OscillationOptions& options);

  // Sends the step's lambda and threshold to where the weights are.
  void on_step_begin(std::int64_t step, std::int64_t total_steps) override;
  StepWork* step_work() override { return this; }
  void on_gradients() override;
  void on_update() override;
  // Once every weight that is quantized is followed with its present width.
  bool repeats_last_step() const override;
  void on_step_end(const StepReport& report) override;
  // "<weight>/code", ".../direction", ".../frequency", ".../mean_code", ".../frozen" and
  // ".../tracked": the steps so far and the width of the codes, with which all begins anew.
  std::vector<NamedBuffer> named_state() const override;
  // "oscillating_weights_percent" and "frozen_weights_percent" of all tracked weights.
  std::vector<Metric> metrics() const override;

 private:
  enum class Work { kNone, kBegin, kTrack };
  struct Tracked {
    std::string name;  // of the weight
    QuantizedLayer* layer;
    Tensor code, direction, frequency, mean_code, frozen;
    Tensor tracked;           // i64 [2], on the host
    Work work = Work::kNone;  // in the last step

    kernels::OscillationState state() const;
    std::int64_t size() const { return code.size(); }
    std::int64_t& steps() const { return tracked.data<std::int64_t>()[0]; }
    std::int64_t& bits() const { return tracked.data<std::int64_t>()[1]; }
  };

  // What a step does with the weight, by what the last one left.
  static Work work_of(const Tracked& weight);

  OscillationOptions options_;
  std::vector<Tracked> weights_;
  Tensor lambda_;        // f64, rank 0, on the weights' device: of the step
  Tensor freeze_above_;  // f32, as above
};

}  // namespace steelyard::qat
