#include "steelyard/framework/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>

#include <fmt/core.h>

#include "steelyard/framework/files/metadata_numbers.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/gradient_clipping.h"
#include "steelyard/framework/train/shards/replicas.h"

namespace steelyard {
namespace {

constexpr const char* kStateSeparator = "/";
constexpr const char* kLast = "last.safetensors";
constexpr const char* kBest = "best.safetensors";

// How often ranks compare what must be the same on all of them.
constexpr std::int64_t kStepsPerComparison = 50;

// A GPU's loss is read this often where nobody asks for it.
constexpr std::int64_t kStepsPerCheck = 64;

void restore_state(const std::vector<NamedBuffer>& state, const std::vector<NamedTensor>& tensors,
                   const std::string& source) {
  std::map<std::string, Tensor> saved;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name.find(kStateSeparator) != std::string::npos) saved[tensor.name] = tensor.tensor;
  }
  if (state.size() != saved.size()) {
    throw InputError(source + ": holds " + std::to_string(saved.size()) +
                     " tensors of training state, this run has " + std::to_string(state.size()));
  }
  for (const NamedBuffer& buffer : state) {
    const auto found = saved.find(buffer.name);
    if (found == saved.end() || found->second.shape() != buffer.tensor.shape() ||
        found->second.dtype() != buffer.tensor.dtype()) {
      throw InputError(source + ": training state " + buffer.name + " is missing or differs");
    }
    buffer.tensor.copy_from(found->second);
  }
}

std::vector<StepWork*> step_work_of(const std::vector<TrainerCallback*>& callbacks) {
  std::vector<StepWork*> work;
  for (TrainerCallback* callback : callbacks) {
    if (callback == nullptr) throw std::invalid_argument("[trainer] a callback is null");
    if (StepWork* own = callback->step_work()) work.push_back(own);
  }
  return work;
}

// One made before prepare() holds the variables that the model had then.
void require_own_parameters(const std::vector<NamedParameter>& model, const Optimizer& optimizer) {
  std::set<const GradNode*> own;
  bool trains = false;
  for (const NamedParameter& p : model) {
    own.insert(p.variable.node().get());
    trains = trains || p.variable.requires_grad();
  }
  const auto& held = optimizer.parameters();
  const bool fits = std::any_of(held.begin(), held.end(), [&](const NamedParameter& p) {
    return own.contains(p.variable.node().get());
  });
  if (fits || !trains) return;
  throw std::invalid_argument(
      "[trainer] expected an optimizer of the model's parameters, got one that has none of them: "
      "make it after prepare() and whatever else replaces modules");
}

// The training loss of a model that says nothing.
ConstantOutputs training_constant(const TrainerOptions& options, const Dataset& train) {
  ConstantOutputs constant = constant_outputs(options.loss, train, train);
  constant.loss = training_loss_of_constant(constant.loss, options.distillation);
  return constant;
}

}  // namespace

Trainer::Trainer(Module& model, Optimizer& optimizer, const Dataset& train,
                 const Dataset& validation, const LoaderOptions& loader_options,
                 const TrainerOptions& options, std::vector<TrainerCallback*> callbacks)
    : model_(model),
      optimizer_(optimizer),
      parameters_(model.named_parameters()),
      validation_(validation),
      loader_options_(loader_options),
      loader_(train, loader_options),
      device_(device_of(model)),
      batches_(loader_, device_),
      options_(options),
      ranks_(options.ranks != nullptr ? *options.ranks : alone_),
      callbacks_(std::move(callbacks)),
      steps_(model, optimizer, options, step_work_of(callbacks_)),
      clock_(ranks_, device_.kind == Device::Kind::kCpu ? &loader_ : nullptr),
      zeros_loss_(training_loss_of_constant(loss_of_zero_outputs(options.loss, train),
                                            options.distillation)),
      collapse_(training_constant(options, train),
                constant_outputs(plain_loss(options.loss), train, validation), validation) {
  require_own_parameters(parameters_, optimizer);
  if (validation.size() > 0) require_input_dtype(validation, "validation");
  if (options.average) average_.emplace(model, *options.average);
}

TrainResult Trainer::run(const std::atomic<bool>& stop) {
  // One that the checkpoint knows nothing of: saved just before a kill, or forgotten in restore().
  if (writes() && !best_ && position_.epoch < options_.epochs) {
    std::filesystem::remove(options_.run_dir / kBest);
  }
  while (position_.epoch < options_.epochs) {
    if (!run_epoch(stop)) {
      if (!options_.run_dir.empty()) save(kLast);
      return result(/*interrupted=*/true);
    }
  }
  if (average_) average_->enter();
  return result(/*interrupted=*/false);
}

std::int64_t Trainer::final_form_from() const {
  std::int64_t epoch = 0;
  for (const TrainerCallback* callback : callbacks_) {
    epoch = std::max(epoch, callback->final_form_from());
  }
  return std::min(epoch, options_.epochs - 1);
}

TrainResult Trainer::result(bool interrupted) const {
  return {.interrupted = interrupted,
          .step = position_.step,
          .captured_steps = steps_.captured_steps(),
          .not_captured = steps_.not_captured(),
          .best = best_};
}

bool Trainer::run_epoch(const std::atomic<bool>& stop) {
  for (TrainerCallback* callback : callbacks_) callback->on_epoch_begin(position_.epoch);
  clock_.start();
  batches_.start(position_.epoch, position_.batch);
  steps_.begin_epoch();
  for (bool stops = any_rank_stops(stop); !stops;) {
    const auto batch = batches_.next();
    if (!batch) {
      finish_epoch();
      return true;
    }
    stops = train_step(*batch, stop);
    if (saves_after_step()) {
      save(kLast);
      if (options_.keep_step_checkpoints) {
        save("step-" + std::to_string(position_.step) + ".safetensors");
      }
    }
  }
  steps_.end_epoch();  // the caller may move the model
  return false;
}

bool Trainer::saves_after_step() const {
  const std::int64_t every = options_.checkpoint_every_steps;
  return !options_.run_dir.empty() && every > 0 && position_.step % every == 0;
}

bool Trainer::any_rank_stops(const std::atomic<bool>& stop) {
  return (ranks_.max({}, stop ? comm::kStop : comm::kGoOn) & comm::kStop) != 0;
}

bool Trainer::together(const std::function<void()>& work, const std::atomic<bool>& stop) {
  if (ranks_.size() == 1) {
    work();
    return stop;
  }
  std::string own;
  try {
    work();
  } catch (const TrainingDiverged& error) {
    own = error.what();
  }
  const std::uint32_t control = ranks_.max(
      {}, (own.empty() ? comm::kGoOn : comm::kDiverged) | (stop ? comm::kStop : comm::kGoOn));
  const bool stops = (control & comm::kStop) != 0;
  if ((control & comm::kDiverged) == 0) return stops;
  for (const std::string& message : ranks_.gather(own)) {
    if (!message.empty()) throw TrainingDiverged(message);
  }
  return stops;
}

bool Trainer::train_step(const Batch& batch, const std::atomic<bool>& stop) {
  const double lr = learning_rate(options_.lr_schedule, position_.step);
  for (TrainerCallback* callback : callbacks_) {
    callback->on_step_begin(position_.step, total_steps());
  }
  const Tensor loss = steps_.run(batch, lr, position_.step);
  if (average_) average_->update();  // before callbacks that time the step
  position_.samples += batch.inputs.dim(0);
  position_.batch = batch.index + 1;
  ++position_.step;
  const StepReport report{.step = position_.step,
                          .total_steps = total_steps(),
                          .epoch = position_.epoch,
                          .batch = batch.index,
                          .loss = [&] { return steps_.finite_loss(position_.step, loss, batch); },
                          .lr = lr};
  const bool stops = together(
      [&] {
        for (TrainerCallback* callback : callbacks_) callback->on_step_end(report);
      },
      stop);
  if (stops || saves_after_step() || position_.step % kStepsPerComparison == 0) {
    compare_replicas();
  }
  if (position_.step % kStepsPerCheck == 0) steps_.finite_loss(position_.step, loss, batch);
  return stops;
}

void Trainer::finish_epoch() {
  steps_.end_epoch();  // what the next epoch begins with may be other work
  compare_replicas();
  EpochReport report{.epoch = position_.epoch, .step = position_.step};
  report.train_loss = steps_.loss_sum().item() / static_cast<double>(position_.samples);
  report.ranks = clock_.of_all_ranks();
  require_loss("the epoch's loss", report.train_loss);
  {
    const AveragedScope averaged(average_ ? &*average_ : nullptr);
    together([&] {
      for (TrainerCallback* callback : callbacks_) callback->on_steps_done(position_.epoch);
    });
    if (validation_.size() > 0) {
      report.validation = evaluate(model_, validation_, loader_options_.normalization,
                                   options_.loss, loader_options_.batch_size, ranks_);
    }
  }
  bool improved = false;
  if (report.validation) {
    require_loss("validation loss", report.validation->loss, validation_);
    if (const auto chosen = value_in(*report.validation, options_.best_metric);
        chosen && !std::isfinite(*chosen)) {
      throw TrainingDiverged(
          fmt::format("step {}: the metric {} of the validation samples, which chooses the best "
                      "epoch, is {}",
                      position_.step, options_.best_metric, *chosen));
    }
    improved = position_.epoch >= final_form_from() &&
               (!best_ || is_better(*report.validation, best_->metrics,
                                    find_metric(options_.best_metric, options_.loss)));
    if (improved) best_ = {position_.epoch, *report.validation};
  }
  for (const TrainerCallback* callback : callbacks_) {
    for (const Metric& metric : callback->metrics()) report.metrics.push_back(metric);
  }
  const std::string lost = what_was_lost(report);
  if (!options_.stops_on_collapse) report.collapse = lost;
  // Before the checkpoint: a run that is killed in between repeats the epoch and its report, the
  // other way round the report would be lost.
  for (TrainerCallback* callback : callbacks_) callback->on_epoch_end(report);
  position_ = {.epoch = position_.epoch + 1, .batch = 0, .step = position_.step};
  steps_.loss_sum().fill(0);
  if (!options_.run_dir.empty()) {
    if (improved) save(kBest);
    save(kLast);
  }
  if (lost.empty() || !options_.stops_on_collapse) return;
  throw TrainingCollapsed(lost + (options_.run_dir.empty() ? "" : "; the epoch is saved") +
                          std::string(kStoppedByCollapse));
}

std::string Trainer::what_was_lost(const EpochReport& report) {
  const std::int64_t form_from = final_form_from();
  const bool changed = form_from > 0 && report.epoch >= form_from;
  if (changed && report.epoch == form_from) collapse_.forget();
  return collapse_.after(report, options_.starts_trained || changed);
}

std::vector<NamedBuffer> Trainer::training_state() const {
  std::vector<NamedBuffer> state = optimizer_.named_state();
  const auto add = [&](const std::vector<NamedBuffer>& more) {
    state.insert(state.end(), more.begin(), more.end());
  };
  if (average_) add(average_->named_state());
  for (const TrainerCallback* callback : callbacks_) add(callback->named_state());
  return state;
}

Checkpoint Trainer::checkpoint() {
  Checkpoint result;
  result.metadata = options_.metadata;
  result.tensors = average_ ? average_->averaged() : module_state(model_);
  for (const NamedBuffer& buffer : training_state()) result.tensors.push_back(buffer);
  auto& metadata = result.metadata;
  metadata["optimizer"] = optimizer_.type_name();
  metadata["seed"] = std::to_string(options_.seed);
  metadata["epoch"] = std::to_string(position_.epoch);
  metadata["batch"] = std::to_string(position_.batch);
  metadata["step"] = std::to_string(position_.step);
  metadata["epoch_loss_sum"] = exact_text(steps_.loss_sum().item());
  metadata["epoch_samples"] = std::to_string(position_.samples);
  metadata["first_loss"] = exact_text(steps_.first_loss().item());
  collapse_.save(metadata);
  if (best_) {
    metadata["best_epoch"] = std::to_string(best_->epoch);
    metadata["best_loss"] = exact_text(best_->metrics.loss);
    if (best_->metrics.top1) metadata["best_top1"] = exact_text(*best_->metrics.top1);
    for (const Metric& metric : best_->metrics.more) {
      metadata["best_" + metric.name] = exact_text(metric.value);
    }
  }
  return result;
}

void Trainer::compare_replicas() {
  require_equal_replicas(module_state(model_), "step " + std::to_string(position_.step), ranks_);
}

void Trainer::save(const std::string& file_name) {
  together([&] {
    require_finite_state();
    for (TrainerCallback* callback : callbacks_) callback->on_checkpoint();
  });
  if (writes()) write(options_.run_dir / file_name);
  ranks_.barrier();
  if (file_name != kLast) return;
  for (TrainerCallback* callback : callbacks_) callback->on_saved(position_.step);
}

void Trainer::write(const std::filesystem::path& path) {
  try {
    save_checkpoint(path, checkpoint());
  } catch (const InputError& error) {
    throw std::runtime_error(error.what());  // the folder was good when the run began
  }
}

void Trainer::restore(const Checkpoint& checkpoint, const std::string& source) {
  const auto& metadata = checkpoint.metadata;
  const auto seed = number_in<std::uint64_t>(metadata, "seed", source);
  if (seed != options_.seed) {
    throw InputError(source + ": was trained with seed " + std::to_string(seed) +
                     ", this run has seed " + std::to_string(options_.seed));
  }
  const auto optimizer = metadata.find("optimizer");
  if (optimizer == metadata.end() || optimizer->second != optimizer_.type_name()) {
    throw InputError(source + ": was trained with another optimizer than " +
                     optimizer_.type_name());
  }
  Position position;
  position.epoch = number_in<std::int64_t>(metadata, "epoch", source);
  position.batch = number_in<std::int64_t>(metadata, "batch", source);
  position.step = number_in<std::int64_t>(metadata, "step", source);
  const auto loss_sum = number_in<double>(metadata, "epoch_loss_sum", source);
  position.samples = number_in<std::int64_t>(metadata, "epoch_samples", source);
  const std::int64_t per_epoch = loader_.batches_per_epoch();
  std::int64_t step = 0;
  if (position.epoch < 0 || position.batch < 0 || position.batch > per_epoch ||
      __builtin_mul_overflow(position.epoch, per_epoch, &step) ||
      __builtin_add_overflow(step, position.batch, &step) || position.step != step) {
    throw InputError(source + ": epoch " + std::to_string(position.epoch) + ", batch " +
                     std::to_string(position.batch) + ", step " + std::to_string(position.step) +
                     " do not fit a run of " + std::to_string(per_epoch) +
                     " steps an epoch: resume with as many samples and the same batch size");
  }
  const std::int64_t most = position.batch * loader_options_.batch_size;
  if (!std::isfinite(loss_sum) || position.samples < (position.batch > 0 ? 1 : 0) ||
      position.samples > most) {
    throw InputError(source + ": " + std::to_string(position.samples) +
                     " samples with a sum of losses of " + std::to_string(loss_sum) +
                     " are not those of " + std::to_string(position.batch) + " batches, of up to " +
                     std::to_string(most) + " samples");
  }
  load_into(model_, checkpoint.tensors, source);
  if (average_) average_->restore_averaged();
  restore_state(training_state(), checkpoint.tensors, source);
  position_ = position;
  steps_.loss_sum().fill(loss_sum);
  // Checkpoints of earlier versions do not have it.
  steps_.first_loss().fill(
      metadata.contains("first_loss") ? finite_in(metadata, "first_loss", source) : 0);
  collapse_.restore(metadata, source);
  best_.reset();
  if (metadata.contains("best_epoch")) {
    best_ = {number_in<std::int64_t>(metadata, "best_epoch", source),
             {.loss = finite_in(metadata, "best_loss", source), .top1 = std::nullopt, .more = {}}};
    if (best_->epoch < 0 || best_->epoch >= position.epoch) {
      throw InputError(source + ": the best epoch " + std::to_string(best_->epoch) +
                       " is none of the " + std::to_string(position.epoch) + " that are done");
    }
    if (metadata.contains("best_top1")) {
      best_->metrics.top1 = number_in<double>(metadata, "best_top1", source);
    }
    for (const MetricInfo* metric : metrics_of(options_.loss)) {
      const std::string key = "best_" + metric->name;
      if (!metric->value || !metadata.contains(key)) continue;
      best_->metrics.more.push_back({metric->name, number_in<double>(metadata, key, source)});
    }
    if (best_->epoch < final_form_from()) best_.reset();
  }
}

void Trainer::require_loss(const std::string& what, double loss, const Dataset& dataset) const {
  const std::string found = "step " + std::to_string(position_.step) + ": " + what + " is ";
  if (!std::isfinite(loss)) {
    const std::string where = dataset.size() == 0
                                  ? ""
                                  : first_non_finite(model_, dataset, loader_options_.normalization,
                                                     loader_options_.batch_size);
    throw TrainingDiverged(found + std::to_string(loss) +
                           (where.empty() ? "" : "; first non-finite tensor: " + where));
  }
  if (!options_.divergence_limit) return;
  const double reference = std::max(steps_.first_loss().item(), zeros_loss_);
  if (reference <= 0 || loss <= *options_.divergence_limit * reference) return;
  throw TrainingDiverged(
      found + fmt::format("{:.4g}: more than {:g} times {:.4g} (divergence_limit), which is the "
                          "larger of the first step's loss and that of outputs that are all zero",
                          loss, *options_.divergence_limit, reference));
}

void Trainer::require_finite_state() const {
  const auto require = [&](const std::string& name, const Tensor& tensor) {
    if (!has_non_finite(tensor)) return;
    throw TrainingDiverged("step " + std::to_string(position_.step) +
                           ": first non-finite tensor: " + name);
  };
  for (const NamedParameter& p : parameters_) require(p.name, p.variable.value());
  for (const NamedBuffer& buffer : optimizer_.named_state()) require(buffer.name, buffer.tensor);
  require("the epoch's loss", steps_.loss_sum());  // on a GPU nobody may have read one yet
}

}  // namespace steelyard
