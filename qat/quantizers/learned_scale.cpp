#include "steelyard/qat/quantizers/learned_scale.h"

#include <stdexcept>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"
#include "steelyard/qat/quantizers/plan_run.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

// The quantizer of one recorded use, as it was in the forward pass.
struct LearnedUse {
  observers::QScheme scheme;
  QParamTensors qparams;
  Tensor initial;          // f32 [channels]: s0
  Tensor offset;           // f32 [channels], undefined where it does not learn
  std::int64_t per_scale;  // elements that share a scale, the batch not counted
  bool only_clipping;      // PACT: only clipped values move the scale
};

struct Gradients {
  Tensor values;      // straight-through
  Tensor scale;       // f32 [channels]
  Tensor zero_point;  // f32 [channels], where an offset learns
};

// With this factor, a step on the scale moves the clipping value as a step on the clipping value
// itself would. That value is the scale times a number of intervals between codes, by which
// the gradient and the step are both divided.
double clipping_gradient_factor(kernels::CodeRange range, bool symmetric) {
  const double intervals = symmetric ? range.qmax : range.qmax - range.qmin;
  return 1 / (intervals * intervals);
}

// grad_output where the quantizer clips, else 0.
Tensor clipped_gradient(const LearnedUse& use, const Tensor& values, const Tensor& grad_output) {
  const std::int64_t channels = use.qparams.scale.size();
  Tensor grad = Tensor::empty(values.shape(), DType::kF32, values.device());
  run(grad.device(),
      kernels::ClippedGradient<float>{.layout = {1, channels, values.size() / channels},
                                      .range = use.scheme.code_range(),
                                      .x = values.data<float>(),
                                      .scale = use.qparams.scale.data<float>(),
                                      .zero_point = use.qparams.zero_point.data<std::int32_t>(),
                                      .grad_y = grad_output.data<float>(),
                                      .grad_x = grad.data<float>()});
  return grad;
}

double gradient_factor(const LearnedUse& use) {
  const kernels::CodeRange range = use.scheme.code_range();
  return use.only_clipping
             ? clipping_gradient_factor(range, use.scheme.symmetric)
             : kernels::lsq_gradient_factor(use.per_scale, range, use.scheme.symmetric);
}

// For wide codes (one scale), which QuantPlan does not support.
Gradients wide_gradients(const LearnedUse& use, const Tensor& values, const Tensor& grad_output) {
  const Device device = values.device();
  const kernels::CodeRange range = use.scheme.code_range();
  const Tensor grad_y =
      use.only_clipping ? clipped_gradient(use, values, grad_output) : grad_output;
  Gradients gradients{Tensor::empty(values.shape(), DType::kF32, device),
                      Tensor::empty({1}, DType::kF32, device), Tensor()};
  run(device, kernels::PassInside{.n = values.size(),
                                  .range = range,
                                  .x = values.data<float>(),
                                  .scale = use.qparams.scale.data<float>(),
                                  .zero_point = use.qparams.zero_point.data<std::int32_t>(),
                                  .grad_y = grad_y.data<float>(),
                                  .grad_x = gradients.values.data<float>()});
  const auto sum = [&](auto kernel, const Tensor& gradient) {
    kernel.n = values.size();
    kernel.range = range;
    kernel.factor = gradient_factor(use);
    kernel.x = values.data<float>();
    kernel.scale = use.qparams.scale.data<float>();
    kernel.zero_point = use.qparams.zero_point.data<std::int32_t>();
    kernel.grad_y = grad_y.data<float>();
    kernel.gradient = gradient.data<float>();
    run(device, kernel);
  };
  sum(kernels::ScaleGradientSum{}, gradients.scale);
  if (use.offset.defined()) {
    gradients.zero_point = Tensor::empty({1}, DType::kF32, device);
    sum(kernels::ZeroPointGradientSum{}, gradients.zero_point);
  }
  return gradients;
}

Gradients gradients_of(const LearnedUse& use, const Tensor& values, const Tensor& grad_output) {
  if (use.scheme.wide()) return wide_gradients(use, values, grad_output);
  const bool with_zero_point = use.offset.defined();
  const Device device = values.device();
  const std::int64_t channels = use.qparams.scale.size();
  const kernels::QuantDescriptor descriptor{
      .spec = {.direction = kernels::QuantDirection::kBackward,
               .code_type = use.scheme.is_signed ? kernels::CodeType::kS8 : kernels::CodeType::kU8,
               .range = use.scheme.code_range(),
               .symmetric = use.scheme.symmetric,
               .parameter_gradients = true,
               .gradient_factor = gradient_factor(use)},
      .granularity = channels > 1 ? kernels::Granularity::kChannel : kernels::Granularity::kTensor,
      .options = {.axis = 0},
      .shape = {channels, values.size() / channels}};
  Gradients gradients{Tensor::empty(values.shape(), DType::kF32, device),
                      Tensor::empty({channels}, DType::kF32, device), Tensor()};
  if (with_zero_point) gradients.zero_point = Tensor::empty({channels}, DType::kF32, device);
  const Tensor grad_y =
      use.only_clipping ? clipped_gradient(use, values, grad_output) : grad_output;
  run_plan(descriptor, device,
           {.x = array_of<float>(values),
            .grad_y = array_of<float>(grad_y),
            .grad_x = array_of<float>(gradients.values),
            .scale = array_of<float>(use.qparams.scale),
            .zero_point = array_of<std::int32_t>(use.qparams.zero_point),
            .grad_scale = array_of<float>(gradients.scale),
            .grad_zero_point = array_of<float>(gradients.zero_point)});
  return gradients;
}

class LearnedQuantizerFunction : public Function {
 public:
  LearnedQuantizerFunction(Tensor mask, RealValues values, LearnedUse use)
      : values_(std::move(values.compute)), use_(std::move(use)) {
    save(std::move(mask));
    for (Tensor& tensor : values.from) save(std::move(tensor));
  }
  std::string name() const override { return "learned_quantizer"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    std::vector<Tensor> grads(inputs().size());
    const Tensor& mask = saved()[0];
    if (needs_grad(0)) grads[0] = grad_output;
    if (grad_output.size() == 0) return grads;
    Gradients own = gradients_of(use_, values_(), grad_output);
    if (needs_grad(0) && mask.defined()) {
      // The gradients of PACT were computed from the clipped part of grad_output only.
      grads[0] = use_.only_clipping ? masked_gradient(grad_output, mask) : own.values;
    }
    const bool shifts = use_.offset.defined();
    run(own.scale.device(), kernels::ChainLatentGradients{
                                .n = own.scale.size(),
                                .range = use_.scheme.code_range(),
                                .scale = use_.qparams.scale.data<float>(),
                                .initial = use_.initial.data<float>(),
                                .zero_point = use_.qparams.zero_point.data<std::int32_t>(),
                                .offset = shifts ? use_.offset.data<float>() : nullptr,
                                .grad_scale = own.scale.data<float>(),
                                .grad_offset = shifts ? own.zero_point.data<float>() : nullptr});
    grads[1] = std::move(own.scale);
    if (shifts) grads[2] = std::move(own.zero_point);
    return grads;
  }

 private:
  std::function<Tensor()> values_;
  LearnedUse use_;
};

}  // namespace

void LearnedScale::require_size(std::int64_t count) const {
  for (const Tensor& latent : {scale(), offset()}) {
    if (!latent.defined() || latent.shape() == Shape{count}) continue;
    throw std::invalid_argument("[learned_scale] expected " + shape_string({count}) + ", got " +
                                shape_string(latent.shape()));
  }
}

void LearnedScale::begin(kernels::CodeRange range, const QParamTensors& from) const {
  require_size(from.scale.size());
  const Tensor offsets = offset();
  run(from.scale.device(), kernels::BeginLatents{.n = from.scale.size(),
                                                 .range = range,
                                                 .scale = from.scale.data<float>(),
                                                 .zero_point = from.zero_point.data<std::int32_t>(),
                                                 .initial = latents_.initial.data<float>(),
                                                 .latent = scale().data<float>(),
                                                 .offset = data_or_null<float>(offsets)});
}

void LearnedScale::follow(kernels::CodeRange range, const QParamTensors& to,
                          const QParamTensors& copies, const Tensor& non_finite) const {
  require_size(to.scale.size());
  const Tensor offsets = offset();
  const bool copied = copies.scale.defined();
  run(to.scale.device(),
      kernels::FollowLatents{
          .n = to.scale.size(),
          .range = range,
          .latent = scale().data<float>(),
          .initial = latents_.initial.data<float>(),
          .floor = latents_.floor.data<float>(),
          .offset = data_or_null<float>(offsets),
          .scale = to.scale.data<float>(),
          .zero_point = to.zero_point.data<std::int32_t>(),
          .non_finite = non_finite.data<std::int64_t>(),
          .pass_scale = copied ? copies.scale.data<float>() : nullptr,
          .pass_zero_point = copied ? copies.zero_point.data<std::int32_t>() : nullptr});
}

Variable LearnedScale::record_use(QuantizedUse use, const observers::QScheme& scheme) const {
  LearnedUse learned{.scheme = scheme,
                     .qparams = std::move(use.qparams),
                     .initial = latents_.initial,
                     .offset = offset(),
                     .per_scale = use.per_scale,
                     .only_clipping = learning_ == Learning::kClipping};
  return record(std::move(use.output),
                std::make_shared<LearnedQuantizerFunction>(
                    std::move(use.mask), std::move(use.values), std::move(learned)),
                {use.input, latents_.scale, latents_.offset});
}

bool is_latent(std::string_view name) {
  return name.ends_with(kLearnedScale) || name.ends_with(kLearnedOffset);
}

}  // namespace steelyard::qat
