#include "steelyard/framework/predictions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "steelyard/framework/on_device.h"
#include "steelyard/framework/ops/losses.h"
#include "steelyard/kernels/losses/losses.h"
#include "steelyard/kernels/softmax/softmax.h"

namespace steelyard {
namespace {

// From one row on.
template <typename T>
T* at_row(const Tensor& all, std::int64_t row) {
  return all.data<T>() + row * (all.size() / all.dim(0));
}

void write_classes(const Tensor& outputs, const Tensor& labels, std::int64_t* classes,
                   std::int64_t* ranks, double* losses) {
  visit_floating(outputs.dtype(), "evaluate", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t count = outputs.dim(0), columns = outputs.dim(1);
    run(outputs.device(), kernels::ArgmaxRows<T>{.rows = count,
                                                 .classes = columns,
                                                 .logits = outputs.data<T>(),
                                                 .predictions = classes});
    run(outputs.device(), kernels::RankOfLabel<T>{.n = count,
                                                  .classes = columns,
                                                  .logits = outputs.data<T>(),
                                                  .labels = labels.data<std::int64_t>(),
                                                  .ranks = ranks});
    run(outputs.device(), kernels::CrossEntropyRows<T>{.n = count,
                                                       .classes = columns,
                                                       .logits = outputs.data<T>(),
                                                       .labels = labels.data<std::int64_t>(),
                                                       .targets = nullptr,
                                                       .class_weights = nullptr,
                                                       .label_smoothing = 0,
                                                       .total = nullptr,
                                                       .factor = 1,
                                                       .losses = losses,
                                                       .grad = nullptr});
  });
}

void write_squared_errors(const Tensor& outputs, const Tensor& targets, double* sums) {
  visit_floating(outputs.dtype(), "evaluate", [&](auto zero) {
    using T = decltype(zero);
    run(outputs.device(), kernels::SquaredErrors<T>{.rows = outputs.dim(0),
                                                    .channels = outputs.size() / outputs.dim(0),
                                                    .x = outputs.data<T>(),
                                                    .y = targets.data<T>(),
                                                    .sums = sums});
  });
}

void write_characters(const Tensor& frames, std::int64_t* characters) {
  visit_floating(frames.dtype(), "evaluate", [&](auto zero) {
    using T = decltype(zero);
    run(frames.device(), kernels::ArgmaxRows<T>{.rows = frames.dim(0) * frames.dim(1),
                                                .classes = frames.dim(2),
                                                .logits = frames.data<T>(),
                                                .predictions = characters});
  });
}

// The sums of the batches, in their order.
Tensor summed(const Tensor& batches) {
  Tensor sums = Tensor::zeros({batches.dim(1)}, DType::kF64);
  for (std::int64_t b = 0; b < batches.dim(0); ++b) {
    const double* row = at_row<double>(batches, b);
    for (std::int64_t c = 0; c < sums.size(); ++c) sums.data<double>()[c] += row[c];
  }
  return sums;
}

}  // namespace

PredictionRecord::PredictionRecord(const Loss& loss, const Dataset& dataset,
                                   std::int64_t batch_size, Device device)
    : loss_(loss), dataset_(dataset), batch_size_(batch_size), device_(device) {}

// `all`, made of zeros the first time: what other ranks add up is theirs.
Tensor& PredictionRecord::rows(Tensor& all, Shape shape_of_row, DType dtype) const {
  if (all.defined()) return all;
  shape_of_row.insert(shape_of_row.begin(), dataset_.size());
  all = Tensor::zeros(std::move(shape_of_row), dtype, device_);
  return all;
}

void PredictionRecord::add(const Tensor& outputs, const Batch& batch) {
  const std::int64_t first = batch.index * batch_size_;
  switch (loss_info(loss_.type).targets) {
    case TargetKind::kClass:
      write_classes(outputs, batch.targets,
                    at_row<std::int64_t>(rows(all_.classes, {}, DType::kI64), first),
                    at_row<std::int64_t>(rows(all_.ranks, {}, DType::kI64), first),
                    at_row<double>(rows(all_.losses, {}, DType::kF64), first));
      break;
    case TargetKind::kMarks: {
      const Tensor& scores = rows(all_.scores, {outputs.dim(1)}, DType::kF32);
      copy_bytes(at_row<float>(scores, first), device_, outputs.raw(), outputs.device(),
                 static_cast<std::size_t>(outputs.bytes()));
      break;
    }
    case TargetKind::kValues: {
      const std::int64_t batches = (dataset_.size() + batch_size_ - 1) / batch_size_;
      Tensor& sums = all_.squared_errors;
      if (!sums.defined()) {
        sums = Tensor::zeros({batches, outputs.size() / outputs.dim(0)}, DType::kF64, device_);
      }
      write_squared_errors(outputs, batch.targets, at_row<double>(sums, batch.index));
      break;
    }
    case TargetKind::kText: {
      const Tensor frames = frames_of(Variable(outputs), loss_.characters).value();
      write_characters(
          frames, at_row<std::int64_t>(rows(all_.characters, {frames.dim(1)}, DType::kI64), first));
      break;
    }
  }
}

std::array<std::pair<Tensor*, DType>, 6> PredictionRecord::parts() {
  return {{{&all_.classes, DType::kI64},
           {&all_.ranks, DType::kI64},
           {&all_.losses, DType::kF64},
           {&all_.scores, DType::kF32},
           {&all_.squared_errors, DType::kF64},
           {&all_.characters, DType::kI64}}};
}

// Makes the tensors of the first rank, which always has a batch: zeros where this one has none.
void PredictionRecord::complete(comm::Communicator& ranks) {
  for (const auto& [all, dtype] : parts()) {
    const std::int64_t rank = all->defined() ? all->rank() : 0;
    std::vector<std::int64_t> shape{rank, rank > 0 ? all->dim(0) : 0, rank > 1 ? all->dim(1) : 0};
    if (ranks.rank() > 0) std::fill(shape.begin(), shape.end(), 0);
    ranks.sum(shape);
    if (shape[0] == 0 || all->defined()) continue;
    *all = Tensor::zeros(Shape(shape.begin() + 1, shape.begin() + 1 + shape[0]), dtype, device_);
  }
}

Predictions PredictionRecord::finish(comm::Communicator& ranks) {
  if (ranks.size() > 1) complete(ranks);
  for (const auto& [all, dtype] : parts()) {
    if (!all->defined()) continue;
    *all = all->to(Device{});
    if (ranks.size() == 1) continue;
    if (dtype == DType::kI64) {
      ranks.sum(all->span<std::int64_t>());
    } else {
      ranks.sum(std::vector<Tensor>{*all});
    }
  }
  if (all_.squared_errors.defined()) all_.squared_errors = summed(all_.squared_errors);
  return std::move(all_);
}

}  // namespace steelyard
