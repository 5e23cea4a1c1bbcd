// The time of a training step by layer and kind of work, compared with the least time that the
// machine allows.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/autograd/step_profile.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/tensor/device.h"
#include "steelyard/framework/train/trainer_callback.h"

namespace steelyard {

// Measured rates, a second. No layer can be faster, but for small sizes that caches hold.
struct MachineRates {
  double multiply_adds = 0;          // of a float32 matrix product
  double integer_multiply_adds = 0;  // of one of 8-bit codes
  double bytes = 0;                  // read and written by a copy that no cache holds
};
MachineRates measure_rates(Device device);

enum class WorkKind {
  kProduct,         // of the forward pass
  kQuantize,        // forward: codes from values or sums, values from codes
  kObserve,         // ranges of values, scales
  kOtherForward,    // normalization, activations, pooling, the loss ...
  kBackwardInput,   // products that give the gradient of a layer's input
  kBackwardWeight,  // ... of its weight
  kOtherBackward,
  kUpdate  // of the weights, and what is done to gradients first
};
inline constexpr std::size_t kWorkKinds = 8;
// "product", "backward input" ...
std::string_view work_kind_name(WorkKind kind);

struct Work {
  double seconds = 0;
  double kernels = 0;                      // launches: a fraction where some steps have none
  std::int64_t multiply_adds = 0;          // of floats
  std::int64_t integer_multiply_adds = 0;  // of codes
};

// Means over the steps.
struct TimedLayer {
  std::string layer;      // as LayerProfile has it
  std::string type = {};  // of the module: "Conv2d"; empty outside of all
  std::array<Work, kWorkKinds> work = {};
  std::int64_t saved_bytes = 0;
  std::int64_t forward_bytes = 0;
  std::int64_t backward_bytes = 0;
  // The least time that the machine's rates allow, of the forward and of the backward pass.
  double forward_bound = 0;
  double backward_bound = 0;

  const Work& of(WorkKind kind) const { return work[static_cast<std::size_t>(kind)]; }
  double forward_seconds() const;
  double backward_seconds() const;
  double seconds() const;
};

// What steps waited for their batches.
struct BatchWait {
  double seconds = 0;  // of the steps, waiting included
  double waited = 0;   // of these
  double making = 0;   // processor time that the batches took, in addition to the steps

  double share() const { return seconds > 0 ? waited / seconds : 0; }
};

struct StepTiming {
  std::string run = {};  // the recipe's name
  std::string device = {};
  int threads = 0;  // on the CPU
  std::int64_t batch_size = 0;
  std::int64_t first_step = 0;  // of the run, after those that warm up
  std::int64_t steps = 0;       // in every mean
  double seconds = 0;           // median of steps that were not watched, without data
  double data_seconds = 0;      // until a batch was there: median
  BatchWait batches = {};       // of all steps but those that warm up
  double watched_seconds = 0;   // mean of steps whose kernels were timed: `layers` are of these
  double page_faults = 0;       // in a step that was not watched: median
  std::int64_t peak_bytes = 0;  // of tensors, on the device
  MachineRates rates = {};
  std::vector<TimedLayer> layers = {};

  // The seconds of the watched steps outside of kernels: memory, bookkeeping.
  double outside_kernels() const;
};

// Times steps: some that warm up, then one that is watched and one that is not, in turn.
class StepWatch : public TrainerCallback {
 public:
  // Sets `stop` after the last step. `device` is the model's; all outlive the watch.
  StepWatch(Module& model, Device device, std::int64_t steps, std::atomic<bool>& stop);

  static constexpr std::int64_t kWarmUp = 5;
  // So many steps run.
  std::int64_t all_steps() const { return kWarmUp + 2 * steps_; }

  void on_step_begin(std::int64_t step, std::int64_t total_steps) override;
  void on_step_end(const StepReport& report) override;

  // Once all steps have run: everything but run, threads and batch size. `loader`: of those steps.
  StepTiming timing(const LoaderSeconds& loader) const;

 private:
  using Clock = std::chrono::steady_clock;
  bool watched() const { return done_ >= kWarmUp && (done_ - kWarmUp) % 2 == 1; }

  Module& model_;
  Device device_;
  std::int64_t steps_;
  std::atomic<bool>& stop_;
  StepProfile profile_;
  std::int64_t done_ = 0;
  std::int64_t first_step_ = 0;
  Clock::time_point begin_, end_;
  std::int64_t faults_before_ = 0;
  std::vector<double> seconds_, watched_seconds_, data_seconds_, page_faults_;
};

}  // namespace steelyard
