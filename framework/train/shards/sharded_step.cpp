#include "steelyard/framework/train/shards/sharded_step.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <utility>

#include "steelyard/framework/autograd/backward.h"
#include "steelyard/framework/tensor/storage.h"
#include "steelyard/framework/train/evaluate.h"

namespace steelyard {
namespace {

// A copy of the rows [begin, end).
Tensor rows_of(const Tensor& all, std::int64_t begin, std::int64_t end) {
  Shape shape = all.shape();
  const std::int64_t row_bytes = all.bytes() / shape[0];
  shape[0] = end - begin;
  Tensor rows = Tensor::empty(std::move(shape), all.dtype(), all.device());
  copy_bytes(rows.raw(), rows.device(),
             static_cast<const std::byte*>(all.raw()) + begin * row_bytes, all.device(),
             static_cast<std::size_t>(rows.bytes()));
  return rows;
}

Batch rows_of(const Batch& batch, std::int64_t begin, std::int64_t end) {
  return {rows_of(batch.inputs, begin, end), rows_of(batch.targets, begin, end), batch.index};
}

// Gathering until the end of the scope, whatever ends it.
class Gathering {
 public:
  explicit Gathering(const std::vector<StepStatistics*>& modules) : modules_(modules) {
    for (StepStatistics* statistics : modules_) statistics->begin_step();
  }
  ~Gathering() {
    for (StepStatistics* statistics : modules_) statistics->abandon_step();
  }
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

 private:
  const std::vector<StepStatistics*>& modules_;
};

// While it exists, the output of every such module is its input, and its statistics are gathered.
class FirstPass {
 public:
  explicit FirstPass(const std::vector<StepStatistics*>& modules) : modules_(modules) {
    for (StepStatistics* statistics : modules_) statistics->begin_first_pass();
  }
  ~FirstPass() {
    for (StepStatistics* statistics : modules_) statistics->end_first_pass();
  }
  FirstPass(const FirstPass&) = delete;
  FirstPass& operator=(const FirstPass&) = delete;

 private:
  const std::vector<StepStatistics*>& modules_;
};

template <typename T>
std::vector<T> packed(const std::vector<Tensor>& tensors) {
  std::vector<T> values;
  for (const Tensor& tensor : tensors) {
    const Tensor host = tensor.to(Device{});
    values.insert(values.end(), host.span<T>().begin(), host.span<T>().end());
  }
  return values;
}

template <typename T>
void unpack(std::span<const T> values, const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) {
    const auto size = static_cast<std::size_t>(tensor.size());
    tensor.copy_from(Tensor::from(values.first(size), tensor.shape()));
    values = values.subspan(size);
  }
}

}  // namespace

struct ShardedStep::Sums {
  std::vector<comm::ShardSum> gradients;   // of trained_
  GradientBuckets buckets;                 // sums of `gradients`
  std::vector<bool> taken;                 // of trained_: the shard's gradient was
  std::vector<float> has_gradient;         // of trained_: 1 where a shard gave one
  std::vector<comm::ShardSum> statistics;  // of every sums() in statistics_
  comm::ShardSum loss;                     // times rows
};

ShardedStep::ShardedStep(Module& model, std::int64_t shards, comm::Communicator& ranks,
                         std::size_t bucket_bytes)
    : all_(distinct(model.named_parameters())),
      statistics_(step_statistics(model)),
      shards_(shards),
      ranks_(ranks),
      own_(comm::shards_of_rank(ranks.rank(), ranks.size(), shards)),
      bucket_bytes_(bucket_bytes),
      device_(device_of(model)) {}

Tensor ShardedStep::run(const Batch& batch, const ShardLoss& loss) {
  first_pass(batch, loss);
  take_trained();
  const Gathering gathering(statistics_);
  Sums sums{std::vector<comm::ShardSum>(trained_.size()),
            GradientBuckets(ranks_, trained_, bucket_bytes_),
            std::vector<bool>(trained_.size()),
            std::vector<float>(trained_.size()),
            {},
            {}};
  run_shards(batch, loss, sums);

  std::vector<Tensor> totals;
  for (comm::ShardSum& sum : sums.statistics) totals.push_back(sum.take());
  totals.push_back(sums.loss.take());
  ranks_.sum(totals);
  auto total = totals.begin();
  for (StepStatistics* statistics : statistics_) {
    for (const Tensor& sum : statistics->sums()) sum.copy_from(*total++);
  }
  update_statistics(statistics_, sums.has_gradient);
  std::vector<Tensor> gradients = sums.buckets.wait();
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    if (sums.has_gradient[i] != 0) {
      trained_[i].variable.set_grad(std::move(gradients[i]));
    } else {
      trained_[i].variable.clear_grad();
    }
  }
  const Tensor mean = Tensor::zeros(Shape{}, DType::kF64, device_);
  add_weighted(*total, 1.0 / static_cast<double>(batch.inputs.dim(0)), mean);
  return mean;
}

void ShardedStep::take_trained() {
  trained_.clear();
  for (NamedParameter& p : all_) {
    p.variable.clear_grad();
    if (p.variable.requires_grad()) trained_.push_back(p);
  }
}

void ShardedStep::run_shards(const Batch& batch, const ShardLoss& loss, Sums& sums) {
  if (!has_rows(batch)) idle_pass(batch, loss);
  const std::int64_t rows = batch.inputs.dim(0);
  std::vector<Tensor> statistics;
  for (StepStatistics* module : statistics_) {
    for (Tensor& sum : module->sums()) statistics.push_back(sum);
  }
  sums.statistics.resize(statistics.size());
  for (std::int64_t shard = own_.begin; shard < own_.end; ++shard) {
    const auto [begin, end] = rows_of_shard(batch, shard);
    const Tensor loss_sum = Tensor::zeros(Shape{}, DType::kF64, device_);
    const bool last = shard + 1 == own_.end;
    std::fill(sums.taken.begin(), sums.taken.end(), false);
    if (begin < end) {
      const Variable mean = loss(rows_of(batch, begin, end), shard);
      const auto own = static_cast<double>(end - begin);
      add_weighted(mean.value(), own, loss_sum);
      const double part = own / static_cast<double>(rows);
      run_backward(mean, Tensor::full(Shape{}, part, mean.dtype(), device_), last, sums);
    }
    sums.loss.add(loss_sum);
    for (std::size_t i = trained_.size(); i-- > 0;) take_gradient(i, last, sums);
    for (std::size_t i = 0; i < statistics.size(); ++i) {
      sums.statistics[i].add(statistics[i].clone());
      statistics[i].fill(0);
    }
  }
}

void ShardedStep::run_backward(const Variable& loss, const Tensor& grad_output, bool last,
                               Sums& sums) const {
  if (!last || ranks_.size() == 1) return loss.backward(grad_output);
  std::unordered_map<const GradNode*, std::size_t> index;
  for (std::size_t i = 0; i < trained_.size(); ++i) index[trained_[i].variable.node().get()] = i;
  // Buckets are in order: what backward does not come to must not keep the others waiting.
  auto elsewhere = index;
  for (const auto& function : tape_of(loss)) {
    for (const auto& input : function->inputs()) {
      if (input->requires_grad) elsewhere.erase(input.get());
    }
  }
  for (const auto& [node, i] : elsewhere) take_gradient(i, last, sums);
  backward(loss, grad_output, [&](GradNode& leaf) {
    const auto found = index.find(&leaf);
    if (found != index.end()) take_gradient(found->second, last, sums);
  });
}

void ShardedStep::take_gradient(std::size_t i, bool last, Sums& sums) const {
  if (sums.taken[i]) return;
  sums.taken[i] = true;
  Variable parameter = trained_[i].variable;
  Tensor gradient = parameter.grad();
  parameter.clear_grad();
  if (gradient.defined()) {
    sums.has_gradient[i] = 1;
  } else {
    gradient = Tensor::zeros(parameter.shape(), parameter.dtype(), device_);
  }
  sums.gradients[i].add(std::move(gradient));
  if (last) sums.buckets.add(i, sums.gradients[i].take());
}

void ShardedStep::first_pass(const Batch& batch, const ShardLoss& loss) {
  std::vector<StepStatistics*> waiting;
  std::copy_if(statistics_.begin(), statistics_.end(), std::back_inserter(waiting),
               [](const StepStatistics* module) { return module->needs_first_pass(); });
  if (waiting.empty()) return;
  const Gathering gathering(statistics_);
  const FirstPass pass(waiting);
  const NoGradGuard no_grad;
  if (!has_rows(batch)) idle_pass(batch, loss);
  for (std::int64_t shard = own_.begin; shard < own_.end; ++shard) {
    const auto [begin, end] = rows_of_shard(batch, shard);
    if (begin < end) loss(rows_of(batch, begin, end), shard);
  }
  update_statistics(waiting);
}

std::pair<std::int64_t, std::int64_t> ShardedStep::rows_of_shard(const Batch& batch,
                                                                 std::int64_t shard) const {
  const std::int64_t rows = batch.inputs.dim(0);
  return {shard * rows / shards_, (shard + 1) * rows / shards_};
}

bool ShardedStep::has_rows(const Batch& batch) const {
  return rows_of_shard(batch, own_.begin).first < rows_of_shard(batch, own_.end).first;
}

// What modules do in every step whatever the values are this rank does too when a small batch has
// no rows for it. What it gathers is dropped.
void ShardedStep::idle_pass(const Batch& batch, const ShardLoss& loss) {
  const NoGradGuard no_grad;
  loss(rows_of(batch, 0, 1), own_.begin);
  for (StepStatistics* statistics : statistics_) statistics->begin_step();
}

// Maxima before counts: a histogram's bins follow from the range that all shards saw.
void ShardedStep::update_statistics(const std::vector<StepStatistics*>& modules,
                                    std::span<float> flags) {
  const auto listed = [&](auto list) {
    std::vector<Tensor> tensors;
    for (StepStatistics* statistics : modules) {
      for (Tensor& tensor : (statistics->*list)()) tensors.push_back(tensor);
    }
    return tensors;
  };
  const std::vector<Tensor> maxima = listed(&StepStatistics::maxima);
  if (ranks_.size() > 1) {
    std::vector<float> largest = packed<float>(maxima);
    const auto own_flags = static_cast<std::ptrdiff_t>(largest.size());
    largest.insert(largest.end(), flags.begin(), flags.end());
    if (!largest.empty()) ranks_.max(largest);
    std::copy(largest.begin() + own_flags, largest.end(), flags.begin());
    unpack<float>(largest, maxima);
  }
  const std::vector<Tensor> counts = listed(&StepStatistics::counts);
  if (ranks_.size() > 1 && !counts.empty()) {
    std::vector<std::int64_t> sums = packed<std::int64_t>(counts);
    ranks_.sum(sums);
    unpack<std::int64_t>(sums, counts);
  }
  for (StepStatistics* statistics : modules) statistics->end_step();
}

}  // namespace steelyard
