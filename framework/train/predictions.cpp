#include "steelyard/framework/train/predictions.h"

#include <array>
#include <utility>
#include <vector>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/losses/losses.h"
#include "steelyard/kernels/softmax/softmax.h"

namespace steelyard {
namespace {

// From one row on.
template <typename T>
T* at_row(const Tensor& all, std::int64_t row) {
  return all.data<T>() + row * (all.size() / all.dim(0));
}

void write_losses(const Tensor& outputs, const Tensor& labels, double* losses) {
  visit_floating(outputs.dtype(), "evaluate", [&](auto zero) {
    using T = decltype(zero);
    run(outputs.device(), kernels::CrossEntropyRows<T>{.rows = outputs.dim(0),
                                                       .columns = outputs.dim(1),
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

void write_classes(const Tensor& outputs, const Tensor& labels, std::int64_t* classes,
                   std::int64_t* ranks) {
  visit_floating(outputs.dtype(), "evaluate", [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t count = outputs.dim(0), columns = outputs.dim(1);
    run(outputs.device(), kernels::ArgmaxRows<T>{.rows = count,
                                                 .columns = columns,
                                                 .logits = outputs.data<T>(),
                                                 .predictions = classes});
    run(outputs.device(), kernels::RankOfLabel<T>{.rows = count,
                                                  .columns = columns,
                                                  .logits = outputs.data<T>(),
                                                  .labels = labels.data<std::int64_t>(),
                                                  .ranks = ranks});
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
                                                .columns = frames.dim(2),
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

// Made of zeros, also where another rank has all batches: what ranks add up is the others'.
PredictionRecord::PredictionRecord(const Loss& loss, const Dataset& dataset,
                                   std::int64_t batch_size, Device device)
    : loss_(loss), dataset_(dataset), batch_size_(batch_size), device_(device) {
  const std::int64_t samples = dataset.size();
  switch (loss_info(loss).targets) {
    case TargetKind::kClass:
      all_.classes = Tensor::zeros({samples}, DType::kI64, device);
      all_.ranks = Tensor::zeros({samples}, DType::kI64, device);
      all_.losses = Tensor::zeros({samples}, DType::kF64, device);
      break;
    case TargetKind::kMarks:
      all_.scores = Tensor::zeros({samples, dataset.classes}, DType::kF32, device);
      break;
    case TargetKind::kValues:
      all_.squared_errors =
          Tensor::zeros({(samples + batch_size - 1) / batch_size, dataset.targets.size() / samples},
                        DType::kF64, device);
      break;
    case TargetKind::kText:
      break;  // the model says how many frames there are
    case TargetKind::kTokens:
      all_.losses = Tensor::zeros({samples, dataset.targets.dim(1)}, DType::kF64, device);
      break;
  }
}

void PredictionRecord::add(const Tensor& outputs, const Batch& batch, std::int64_t first_token) {
  const std::int64_t first = batch.index * batch_size_;
  switch (loss_info(loss_).targets) {
    case TargetKind::kClass:
      write_classes(outputs, batch.targets, at_row<std::int64_t>(all_.classes, first),
                    at_row<std::int64_t>(all_.ranks, first));
      write_losses(outputs, batch.targets, at_row<double>(all_.losses, first));
      break;
    case TargetKind::kMarks:
      copy_bytes(at_row<float>(all_.scores, first), device_, outputs.raw(), outputs.device(),
                 static_cast<std::size_t>(outputs.bytes()));
      break;
    case TargetKind::kValues:
      write_squared_errors(outputs, batch.targets,
                           at_row<double>(all_.squared_errors, batch.index));
      break;
    case TargetKind::kText: {
      const Tensor frames = frames_of(Variable(outputs), loss_.characters).value();
      if (!all_.characters.defined()) {
        all_.characters = Tensor::zeros({dataset_.size(), frames.dim(1)}, DType::kI64, device_);
      }
      write_characters(frames, at_row<std::int64_t>(all_.characters, first));
      break;
    }
    case TargetKind::kTokens:
      write_losses(outputs, batch.targets, at_row<double>(all_.losses, first) + first_token);
      break;
  }
}

// A rank without batches gets the number of frames from the others.
void PredictionRecord::agree_on_frames(comm::Communicator& ranks) {
  if (loss_info(loss_).targets != TargetKind::kText) return;
  Tensor& characters = all_.characters;
  std::array<float, 1> frames{characters.defined() ? static_cast<float>(characters.dim(1)) : 0};
  ranks.max(frames);
  if (characters.defined()) return;
  characters = Tensor::zeros({dataset_.size(), static_cast<std::int64_t>(frames[0])}, DType::kI64);
}

Predictions PredictionRecord::finish(comm::Communicator& ranks) {
  agree_on_frames(ranks);
  for (Tensor* all : {&all_.classes, &all_.ranks, &all_.losses, &all_.scores, &all_.squared_errors,
                      &all_.characters}) {
    if (!all->defined()) continue;
    *all = all->to(Device{});
    if (ranks.size() == 1) continue;
    if (all->dtype() == DType::kI64) {
      ranks.sum(all->span<std::int64_t>());
    } else {
      ranks.sum(std::vector<Tensor>{*all});
    }
  }
  if (all_.squared_errors.defined()) all_.squared_errors = summed(all_.squared_errors);
  return std::move(all_);
}

}  // namespace steelyard
