#include "steelyard/recipes/runs/memory_estimate.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <vector>

#include "steelyard/framework/tensor/storage.h"

namespace steelyard {
namespace {

// Samples of the smaller batch that is measured; the larger one has twice as many. So few that they
// take less than a training step, and where they take little, so many that the rounding of block
// sizes is small beside them. A batch norm needs two values.
constexpr std::int64_t kFewSamples = 2;
constexpr std::int64_t kMoreSamples = 16;
constexpr std::int64_t kLittleBytes = 1 << 20;

// A quantity with a part that grows with the batch and a constant part (weight codes, gradients).
struct Growth {
  double constant = 0;
  double per_sample = 0;

  std::int64_t at(std::int64_t samples) const {
    return static_cast<std::int64_t>(constant + per_sample * static_cast<double>(samples));
  }
};

// A quantity at two sizes of batches.
struct Measured {
  std::int64_t samples;
  std::int64_t bytes;
};

Growth through(Measured small, Measured larger) {
  if (larger.samples == small.samples) {
    return {0, static_cast<double>(small.bytes) / static_cast<double>(small.samples)};
  }
  const double per_sample = static_cast<double>(larger.bytes - small.bytes) /
                            static_cast<double>(larger.samples - small.samples);
  return {static_cast<double>(small.bytes) - per_sample * static_cast<double>(small.samples),
          per_sample};
}

std::int64_t held_bytes(Device device) {
  const AllocatorStats stats = allocator_stats(device);
  return stats.in_use_bytes + stats.cached_bytes;
}

std::int64_t state_bytes(const Module& module) {
  std::int64_t bytes = 0;
  for (const NamedTensor& t : module_state(module)) bytes += t.tensor.bytes();
  return bytes;
}

std::int64_t resident_bytes() {
  std::int64_t all = 0;
  std::int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

struct StepMemory {
  std::int64_t samples = 0;
  std::int64_t saved = 0;    // for backward
  std::int64_t step = 0;     // blocks that forward and backward took, gradients too
  std::int64_t forward = 0;  // blocks that a forward pass of an evaluation takes
};

Batch first_batch(const Experiment& experiment, const LoaderOptions& options, Device device) {
  const Batch batch = make_batch(experiment.train(), options, /*epoch=*/0, /*index=*/0);
  return {batch.inputs.to(device), batch.targets.to(device), batch.index};
}

StepMemory measure(Experiment& experiment, Device device, std::int64_t samples,
                   const std::optional<Distillation>& distillation,
                   const std::vector<Tensor>& parameters) {
  LoaderOptions options = experiment.loader_options();
  options.batch_size = samples;
  StepMemory memory{.samples = samples};
  Rng rng(0);
  ForwardContext context{.training = true, .rng = &rng};
  release_cached_memory(device);
  std::int64_t before = held_bytes(device);
  {
    const Batch batch = first_batch(experiment, options, device);
    const Variable loss = training_loss(experiment.model(), on_device(experiment.loss(), device),
                                        distillation, batch, context);
    memory.saved = saved_bytes(loss, parameters);
    loss.backward();
  }
  memory.step = held_bytes(device) - before;
  clear_gradients(experiment.model());
  release_cached_memory(device);
  before = held_bytes(device);
  {
    const NoGradGuard no_grad;
    context.training = false;
    const Batch batch = first_batch(experiment, options, device);
    experiment.model()(Variable(batch.inputs), context);
  }
  memory.forward = held_bytes(device) - before;
  return memory;
}

}  // namespace

MemoryEstimate estimate_memory(Experiment& experiment, Device device) {
  experiment.move_to(device);
  MemoryEstimate estimate;
  for (const Dataset* dataset : {&experiment.train(), &experiment.validation(), &experiment.test()})
    estimate.dataset_bytes += dataset->held_bytes();
  std::vector<Tensor> parameters;
  for (const NamedParameter& p : distinct(experiment.model().named_parameters())) {
    parameters.push_back(p.variable.value());
    estimate.parameters_bytes += parameters.back().bytes();
    if (p.variable.requires_grad()) estimate.gradients_bytes += parameters.back().bytes();
  }
  const auto optimizer = experiment.make_optimizer();
  for (const NamedBuffer& state : optimizer->named_state()) {
    estimate.optimizer_bytes += state.tensor.bytes();
  }
  const TrainerOptions options = experiment.trainer_options();
  const std::optional<Distillation>& distillation = options.distillation;
  if (distillation) estimate.teacher_bytes = state_bytes(*distillation->teacher);
  if (const auto oscillations = experiment.make_oscillations()) {
    for (const NamedBuffer& state : oscillations->named_state()) {
      estimate.oscillations_bytes += state.tensor.bytes();
    }
  }
  if (options.average) estimate.averages_bytes = state_bytes(experiment.model());
  const std::int64_t samples = experiment.train().size();
  const std::int64_t batch = std::min(experiment.loader_options().batch_size, samples);
  const std::int64_t shards = options.shards;
  const std::int64_t rows = (batch + shards - 1) / shards;  // of a step's passes
  const auto measured = [&](std::int64_t count) {
    return measure(experiment, device, std::min(count, rows), distillation, parameters);
  };
  StepMemory small = measured(kFewSamples);
  if (small.step < kLittleBytes) {
    small = measured(std::clamp((rows + 1) / 2, kFewSamples, kMoreSamples));
  }
  const StepMemory larger = measured(2 * small.samples);
  const auto growth = [&](std::int64_t StepMemory::*bytes) {
    return through({small.samples, small.*bytes}, {larger.samples, larger.*bytes});
  };
  estimate.program_bytes = std::max<std::int64_t>(0, resident_bytes() - held_bytes(Device{}));

  const Growth step = growth(&StepMemory::step);
  const Growth forward = growth(&StepMemory::forward);
  estimate.saved_activations_bytes = growth(&StepMemory::saved).at(rows);
  const std::int64_t rests =
      experiment.validation().size() % batch + experiment.test().size() % batch;
  double blocks = static_cast<double>(step.at(rows)) +
                  step.per_sample * static_cast<double>(samples % batch / shards) +
                  forward.per_sample * static_cast<double>(rests);
  // Evaluation takes whole batches, which are of another size than shards.
  if (shards > 1) blocks += static_cast<double>(forward.at(batch));
  estimate.temporaries_bytes =
      std::max<std::int64_t>(0, static_cast<std::int64_t>(blocks) - estimate.gradients_bytes -
                                    estimate.saved_activations_bytes);
  // The shard's own, and those of the sums of 1, 2, 4 ... shards (comm::ShardSum).
  estimate.gradients_bytes *= std::bit_width(static_cast<std::uint64_t>(shards));
  LoaderOptions one_sample = experiment.loader_options();
  one_sample.batch_size = 1;
  const Batch one = make_batch(experiment.train(), one_sample, /*epoch=*/0, /*index=*/0);
  const std::int64_t batch_bytes = batch * (one.inputs.bytes() + one.targets.bytes());
  constexpr std::int64_t kMadeAhead = 3;  // two are ready, one is under way
  constexpr std::int64_t kStaged = 2;     // one is in use, one is being copied
  estimate.batches_bytes = kMadeAhead * batch_bytes;
  if (device.kind == Device::Kind::kCuda) {
    estimate.batches_bytes += kStaged * batch_bytes;  // pinned
    estimate.staged_batches_bytes = kStaged * batch_bytes;
  }
  return estimate;
}

}  // namespace steelyard
