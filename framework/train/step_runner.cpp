#include "steelyard/framework/train/step_runner.h"

#include <algorithm>
#include <cmath>

#include "steelyard/framework/autograd/step_profile.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/framework/train/gradient_clipping.h"

namespace steelyard {
namespace {

// Streams of one seed are told apart by their upper 16 bits (framework/data/streams.h); the lower
// ones hold the step.
constexpr std::uint64_t kForwardStream = std::uint64_t{0xF0} << 48;
// Above 2^36 steps: the shard.
constexpr int kShardShift = 36;

// What a step allocates and starts once is done before it is captured.
constexpr std::int64_t kStepsBeforeCapture = 2;
constexpr const char* kTooFewSteps = "the epoch has too few steps";

}  // namespace

StepRunner::StepRunner(Module& model, Optimizer& optimizer, const StepOptions& options,
                       std::vector<StepWork*> work)
    : model_(model),
      optimizer_(optimizer),
      parameters_(distinct(model.named_parameters())),
      options_(options),
      work_(std::move(work)),
      device_(device_of(model)),
      device_step_(Tensor::zeros({}, DType::kI64, device_)),
      loss_sum_(Tensor::zeros({}, DType::kF64, device_)),
      first_loss_(Tensor::zeros({}, DType::kF64, device_)) {
  options_.loss = on_device(std::move(options_.loss), device_);
  comm::Communicator& ranks = options.ranks != nullptr ? *options.ranks : alone_;
  if (options.shards > 1 || ranks.size() > 1 || options.delayed_ranges) {
    sharded_.emplace(model, options.shards, ranks);
  }
}

void StepRunner::begin_epoch() {
  steps_of_epoch_ = 0;
  may_capture_ = options_.cuda_graph && device_.kind == Device::Kind::kCuda;
  not_captured_ = may_capture_ ? kTooFewSteps : "";
  if (sharded_) capture_no_steps("steps are made of shards");
}

Tensor StepRunner::run(const Batch& batch, double lr, std::int64_t step) {
  device_step_.fill(static_cast<double>(step));
  Tensor loss;
  if (run_captured(batch, lr, step)) {
    loss = captured_->loss;
  } else {
    loss = compute_gradients(batch, step);
    optimizer_.prepare(lr);
    const ProfiledUpdate profiled;
    update_parameters(loss, batch, step);
  }
  ++steps_of_epoch_;
  return loss;
}

bool StepRunner::run_captured(const Batch& batch, double lr, std::int64_t step) {
  if (!may_capture_ || steps_of_epoch_ < kStepsBeforeCapture) return false;
  if (captured_ && batch.inputs.shape() != captured_->batch.inputs.shape()) {
    captured_.reset();  // the epoch's last batch: its step may need the memory
    may_capture_ = false;
    return false;
  }
  if (!work_repeats()) {
    captured_.reset();
    if (!not_captured_.empty()) not_captured_ = "a callback's part in the step does not repeat";
    return false;
  }
  if (!captured_) {
    CapturedStep captured{{batch.inputs.clone(), batch.targets.clone()}, {}, nullptr};
    try {
      captured.work = std::make_unique<CapturedWork>(device_, [&] {
        captured.loss = compute_gradients(captured.batch, step);
        update_parameters(captured.loss, captured.batch, step);
      });
    } catch (const std::exception& error) {
      capture_no_steps(error.what());  // something in it needs the host
      return false;
    }
    captured_.emplace(std::move(captured));
  }
  captured_->batch.inputs.copy_from(batch.inputs);
  captured_->batch.targets.copy_from(batch.targets);
  optimizer_.prepare(lr);
  captured_->work->run();
  ++captured_steps_;
  not_captured_.clear();
  return true;
}

bool StepRunner::work_repeats() const {
  return std::all_of(work_.begin(), work_.end(),
                     [](const StepWork* work) { return work->repeats_last_step(); });
}

void StepRunner::capture_no_steps(const std::string& reason) {
  if (may_capture_ && !not_captured_.empty()) not_captured_ = reason;
  may_capture_ = false;
}

Tensor StepRunner::compute_sharded_gradients(const Batch& batch, std::int64_t step) {
  const LossPart whole = whole_batch(options_.loss, batch.targets);
  const auto shard_loss = [&](const Batch& rows, std::int64_t shard) {
    LossPart part = whole;
    part.rows = static_cast<double>(batch.inputs.dim(0)) / static_cast<double>(rows.inputs.dim(0));
    const std::uint64_t stream =
        kForwardStream + (static_cast<std::uint64_t>(shard) << kShardShift);
    Rng rng(options_.seed, stream, step, device_step_);
    ForwardContext context{.training = true, .rng = &rng};
    return training_loss(model_, options_.loss, options_.distillation, rows, context, part);
  };
  Tensor loss = sharded_->run(batch, shard_loss);
  if (device_.kind == Device::Kind::kCpu) finite_loss(step + 1, loss, batch);
  const ProfiledUpdate profiled;
  for (StepWork* work : work_) work->on_gradients();
  return loss;
}

Tensor StepRunner::compute_gradients(const Batch& batch, std::int64_t step) {
  if (sharded_) return compute_sharded_gradients(batch, step);
  Rng rng(options_.seed, kForwardStream, step, device_step_);
  ForwardContext context{.training = true, .rng = &rng};
  for (NamedParameter& p : parameters_) p.variable.clear_grad();
  const Variable loss = training_loss(model_, options_.loss, options_.distillation, batch, context);
  if (device_.kind == Device::Kind::kCpu) finite_loss(step + 1, loss.value(), batch);
  loss.backward();
  if (rng.drew_fixed_numbers()) capture_no_steps("a step draws random numbers on the host");
  const ProfiledUpdate profiled;
  for (StepWork* work : work_) work->on_gradients();
  return loss.value();
}

void StepRunner::update_parameters(const Tensor& loss, const Batch& batch, std::int64_t step) {
  if (options_.clip_grad_norm) {
    const Tensor norm = clip_grad_norm(parameters_, *options_.clip_grad_norm);
    if (device_.kind == Device::Kind::kCpu && !std::isfinite(norm.item())) {
      diverged(step + 1, "gradient norm is " + std::to_string(norm.item()), batch);
    }
  }
  optimizer_.apply();
  for (StepWork* work : work_) work->on_update();
  add_weighted(loss, static_cast<double>(batch.inputs.dim(0)), loss_sum_);
  if (step == 0) add_weighted(loss, 1, first_loss_);  // never in a captured step
}

double StepRunner::finite_loss(std::int64_t step, const Tensor& loss, const Batch& batch) const {
  const double value = loss.item();
  if (std::isfinite(value)) return value;
  const bool impossible = options_.loss.type == Loss::Type::kCtc && std::isinf(value);
  diverged(
      step,
      "loss is " + std::to_string(value) +
          (impossible ? ", as of a text that needs more frames than the outputs have: one for each "
                        "character and one between equal ones (train.zero_infinity counts it as 0)"
                      : ""),
      batch);
}

void StepRunner::diverged(std::int64_t step, const std::string& what, const Batch& batch) const {
  throw_diverged(step, what, parameters_,
                 options_.distillation ? options_.distillation->teacher.get() : nullptr, batch,
                 [&] {
                   Rng rng(options_.seed, kForwardStream, step - 1, device_step_);
                   ForwardContext context{.training = true, .rng = &rng};
                   model_(Variable(batch.inputs), context);
                 });
}

}  // namespace steelyard
