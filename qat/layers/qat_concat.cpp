#include "steelyard/qat/layers/qat_concat.h"

#include <algorithm>

#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/fixed_codes/fixed_codes.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

class ConcatCodesFunction : public Function {
 public:
  explicit ConcatCodesFunction(Tensor mask) { save(std::move(mask)); }
  std::string name() const override { return "quantized_concat"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    std::vector<std::int64_t> widths;
    for (const auto& input : inputs()) widths.push_back(input->shape.back());
    std::vector<Tensor> grads = split(masked_gradient(grad_output, saved()[0]), widths);
    for (std::size_t i = 0; i < grads.size(); ++i) {
      if (!needs_grad(i)) grads[i] = Tensor();
    }
    return grads;
  }
};

// The unclamped codes that x has on another grid, in fixed point.
Variable rescaled(const QuantizedValue& x, const QParamTensors& to, kernels::Rounding rounding) {
  constexpr std::int64_t kBytes = 256;
  const Device device = x.codes.device();
  const Tensor table = Tensor::empty({kBytes}, DType::kF32, device);
  run(device, kernels::FixedRescaleTable{.n = kBytes,
                                         .rounding = rounding,
                                         .in_scale = x.qparams.scale.data<float>(),
                                         .in_zero_point = x.qparams.zero_point.data<std::int32_t>(),
                                         .scale = to.scale.data<float>(),
                                         .zero_point = to.zero_point.data<std::int32_t>(),
                                         .codes = table.data<float>()});
  Tensor codes = Tensor::empty(x.codes.shape(), DType::kF32, device);
  run(device, kernels::MapToFloats{.n = codes.size(),
                                   .x = static_cast<const std::uint8_t*>(x.codes.raw()),
                                   .table = table.data<float>(),
                                   .factor = nullptr,
                                   .y = codes.data<float>()});
  return Variable(codes);
}

// The codes of the joined parts in fixed point, and their mask unless it is null.
Tensor fixed_join(const std::vector<std::shared_ptr<const QuantizedValue>>& parts,
                  const ActivationQuantizer& output, const QParamTensors& qparams, Tensor* mask) {
  const NoGradGuard no_grad;
  std::vector<Variable> unclamped;
  for (const auto& part : parts) {
    unclamped.push_back(rescaled(*part, qparams, output.config().rounding));
  }
  return output.quantize(concat(unclamped).value(),
                         {Tensor::full({1}, 1, DType::kF32, qparams.scale.device()),
                          Tensor::full({1}, 0, DType::kI32, qparams.scale.device())},
                         mask, /*counted=*/true);
}

}  // namespace

Variable concat_codes(const std::vector<Variable>& inputs, ActivationQuantizer& output,
                      ForwardContext& context) {
  std::vector<std::shared_ptr<const QuantizedValue>> parts;
  for (const Variable& x : inputs) parts.push_back(quantized(x));
  const auto values = [parts] {
    std::vector<Variable> reals;
    for (const auto& part : parts) reals.emplace_back(dequantized(*part));
    return concat(reals).value();
  };
  const Tensor joined = values();
  const QParamTensors qparams = output.parameters(
      output.observes(context) ? output.observe(joined) : QParamTensors(), context);
  const bool recorded = should_record(inputs);
  Tensor mask;
  Tensor* const wanted = recorded ? &mask : nullptr;
  Tensor codes = kernels::is_fixed_point(output.config().rounding)
                     ? fixed_join(parts, output, qparams, wanted)
                     : output.quantize(joined, qparams, wanted, /*counted=*/true);
  Variable y = make_variable(output.value_of(std::move(codes), qparams));
  if (!recorded) return y;
  y = record(std::move(y), std::make_shared<ConcatCodesFunction>(std::move(mask)), inputs);
  RealValues real{values, {}};
  for (const auto& part : parts) real.from.push_back(part->codes);
  return output.learn_output(y, std::move(real), context);
}

QatCat::QatCat(const QuantizerConfig& output)
    : output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatCat::join(const std::vector<Variable>& inputs, ForwardContext& context) {
  const bool codes =
      !inputs.empty() && std::all_of(inputs.begin(), inputs.end(),
                                     [](const Variable& x) { return quantized(x) != nullptr; });
  if (codes && output_->quantizing()) return concat_codes(inputs, *output_, context);
  return output_->forward(concat(inputs), context);
}

QuantizedForm cat_form() {
  QuantizedForm form =
      form_of<Cat>("Cat", FormKind::kJoins,
                   [](const Cat&, const FormRequest& request) -> std::shared_ptr<Module> {
                     return std::make_shared<QatCat>(request.output);
                   });
  form.note = "of the joined branches";
  form.float_operands = SIZE_MAX;
  form.reader = "a concat reads it";
  return form;
}

}  // namespace steelyard::qat
