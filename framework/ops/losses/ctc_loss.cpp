#include "steelyard/framework/ops/losses/ctc_loss.h"

#include "steelyard/framework/ops/losses/loss_support.h"
#include "steelyard/framework/ops/op_support.h"
#include "steelyard/kernels/losses/losses.h"

namespace steelyard {
namespace {

constexpr const char* kCtcLoss = "ctc_loss";

std::string text_of(const Tensor& tensor) {
  return std::string(dtype_name(tensor.dtype())) + " " + shape_string(tensor.shape());
}

void require_characters(const Tensor& targets, std::int64_t classes, std::int64_t blank) {
  if (targets.device().kind != Device::Kind::kCpu) return;  // the kernel marks them
  const std::int64_t length = targets.dim(1);
  for (std::int64_t i = 0; i < targets.dim(0); ++i) {
    const std::int64_t* target = targets.data<std::int64_t>() + i * length;
    for (std::int64_t k = 0; k < length && target[k] != -1; ++k) {
      if (target[k] >= 0 && target[k] < classes && target[k] != blank) continue;
      throw std::out_of_range("[ctc_loss] expected targets in [0, " + std::to_string(classes) +
                              ") other than the blank " + std::to_string(blank) + ", got " +
                              std::to_string(target[k]) + " in sample " + std::to_string(i));
    }
  }
}

void require_ctc(const Variable& logits, const Tensor& targets, const CtcOptions& options) {
  ops::require_defined(kCtcLoss, "logits", logits);
  if (logits.shape().size() != 3 || logits.value().size() < 1) {
    ops::fail(kCtcLoss, "logits [N, T, C], none of them 0", shape_string(logits.shape()));
  }
  ops::require_defined(kCtcLoss, "targets", targets);
  const std::int64_t samples = logits.dim(0), classes = logits.dim(2);
  if (targets.dtype() != DType::kI64 || targets.rank() != 2 || targets.dim(0) != samples) {
    ops::fail(kCtcLoss, "i64 targets [" + std::to_string(samples) + ", length]", text_of(targets));
  }
  if (options.blank < 0 || options.blank >= classes) {
    ops::fail(kCtcLoss, "a blank in [0, " + std::to_string(classes) + ")",
              std::to_string(options.blank));
  }
  const Tensor& frames = options.frames;
  if (frames.defined() && (frames.dtype() != DType::kI64 || frames.shape() != Shape{samples})) {
    ops::fail(kCtcLoss, "i64 frames [" + std::to_string(samples) + "]", text_of(frames));
  }
  if (frames.defined()) {
    const Tensor counts = frames.to(Device{});
    for (const std::int64_t count : counts.span<std::int64_t>()) {
      if (count >= 0 && count <= logits.dim(1)) continue;
      ops::fail(kCtcLoss, "from 0 to " + std::to_string(logits.dim(1)) + " frames",
                std::to_string(count));
    }
  }
  require_characters(targets, classes, options.blank);
}

}  // namespace

Variable ctc_loss(const Variable& logits, const Tensor& targets, const CtcOptions& options) {
  require_ctc(logits, targets, options);
  const Device device = logits.value().device();
  const Tensor grad = ops::gradient_buffer(logits);
  Tensor loss = Tensor::empty(Shape{}, logits.dtype(), device);
  const std::int64_t samples = logits.dim(0);
  const double factor = 1.0 / static_cast<double>(samples);
  const Tensor losses = Tensor::empty({samples}, DType::kF64, device);
  visit_floating(logits.dtype(), kCtcLoss, [&](auto zero) {
    using T = decltype(zero);
    kernels::CtcRows<T> rows{
        .n = samples,
        .frames = logits.dim(1),
        .classes = logits.dim(2),
        .length = targets.dim(1),
        .logits = logits.value().data<T>(),
        .targets = targets.data<std::int64_t>(),
        .frames_of = options.frames.defined() ? options.frames.data<std::int64_t>() : nullptr,
        .blank = options.blank,
        .zero_infinity = options.zero_infinity,
        .factor = factor,
        .workspace = nullptr,
        .losses = losses.data<double>(),
        .grad = grad.defined() ? grad.data<T>() : nullptr};
    const Tensor workspace = Tensor::empty({samples, rows.workspace_size()}, DType::kF64, device);
    rows.workspace = workspace.data<double>();
    run(device, rows);
    run(device, kernels::SumOfRows<T>{.n = samples,
                                      .values = losses.data<double>(),
                                      .total = nullptr,
                                      .factor = factor,
                                      .result = loss.data<T>()});
  });
  if (!grad.defined()) return Variable(loss);
  return record(loss, std::make_shared<ops::LossFunction>(kCtcLoss, grad), {logits});
}

}  // namespace steelyard
