#include "steelyard/qat/layers/qat_softmax.h"

#include "steelyard/framework/ops/reductions/softmax.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/fixed_codes/fixed_codes.h"
#include "steelyard/kernels/softmax/softmax.h"
#include "steelyard/layers/activations.h"
#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::qat {
namespace {

// Straight through the rounding: the gradient of softmax at the probabilities of the output codes.
class SoftmaxCodesFunction : public Function {
 public:
  explicit SoftmaxCodesFunction(const QuantizedValue& y) : y_(y) { save(y.codes); }
  std::string name() const override { return "quantized_softmax"; }

  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    const Tensor shares = dequantized(y_);
    Tensor grad_x = Tensor::empty(shares.shape(), DType::kF32, shares.device());
    if (shares.size() == 0) return {grad_x};
    run(grad_x.device(), kernels::SoftmaxBackward<float>{.rows = shares.size() / shares.dim(-1),
                                                         .columns = shares.dim(-1),
                                                         .y = shares.data<float>(),
                                                         .grad_y = grad_output.data<float>(),
                                                         .grad_x = grad_x.data<float>()});
    return {grad_x};
  }

 private:
  QuantizedValue y_;  // shares the saved codes
};

void write_shares(const QuantizedValue& x, const QuantizedValue& y) {
  const Device device = x.codes.device();
  const std::int64_t columns = x.codes.dim(-1);
  if (kernels::is_fixed_point(y.rounding)) {
    return run(device, kernels::FixedSoftmaxCodes{.rows = y.codes.size() / columns,
                                                  .columns = columns,
                                                  .rounding = y.rounding,
                                                  .x = x.codes.data<std::int8_t>(),
                                                  .in_scale = x.qparams.scale.data<float>(),
                                                  .codes = y.codes.data<std::int8_t>()});
  }
  const Tensor table = Tensor::empty({256}, DType::kI32, device);
  auto* exponentials = static_cast<std::uint32_t*>(table.raw());
  run(device, kernels::SoftmaxTable{.n = 256,
                                    .columns = columns,
                                    .scale = x.qparams.scale.data<float>(),
                                    .table = exponentials});
  visit_codes(x.codes.dtype(), [&](auto* in_tag) {
    visit_codes(y.codes.dtype(), [&](auto* tag) {
      using In = CodeOf<decltype(in_tag)>;
      using Code = CodeOf<decltype(tag)>;
      run(device,
          kernels::SoftmaxCodes<In, Code>{.rows = y.codes.size() / columns,
                                          .columns = columns,
                                          .x = x.codes.data<In>(),
                                          .table = exponentials,
                                          .scale = y.qparams.scale.data<float>(),
                                          .zero_point = y.qparams.zero_point.data<std::int32_t>(),
                                          .range = y.range,
                                          .codes = y.codes.data<Code>()});
    });
  });
}

}  // namespace

Variable softmax_codes(const Variable& x, ActivationQuantizer& output, ForwardContext& context) {
  const auto in = quantized(x);
  const auto real_values = [&] { return softmax(Variable(dequantized(*in))).value(); };
  QuantizedValue y = output.empty_output(x.shape(), real_values, context);
  if (y.codes.size() > 0) write_shares(*in, y);
  const Variable result = make_variable(y);
  if (!should_record({x})) return result;
  return record(result, std::make_shared<SoftmaxCodesFunction>(y), {x});
}

QatSoftmax::QatSoftmax(const QuantizerConfig& output)
    : output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatSoftmax::forward(const Variable& x, ForwardContext& context) {
  const auto codes = quantized(x);
  const bool bytes = codes && !codes->wide() && !output_->scheme().wide();
  if (bytes && output_->quantizing()) return softmax_codes(x, *output_, context);
  return output_->forward(softmax(x), context);
}

void fix_shares(QuantizerConfig& output, double limit) {
  output.observer = {.type = "fixed", .limit = limit};
  output.learning = Learning::kNothing;
  if (kernels::is_fixed_point(output.rounding)) output.scheme.symmetric = false;
}

QuantizedForm softmax_form() {
  QuantizedForm form =
      form_of<Softmax>("Softmax", FormKind::kComputes,
                       [](const Softmax&, const FormRequest& request) -> std::shared_ptr<Module> {
                         return std::make_shared<QatSoftmax>(request.output);
                       });
  form.note = "probabilities";
  form.refusal = [](const Module&, const QuantizerConfig& output) -> std::string {
    return output.scheme.bits == 8 ? "" : "its quantized form has codes of 8 bits";
  };
  // The largest code stands for a step less than 1, so that the scale is 2^-8 or 2^-7.
  form.output = [](QuantizerConfig& output) {
    const bool half = output.scheme.is_signed && output.scheme.symmetric &&
                      !kernels::is_fixed_point(output.rounding);
    fix_shares(output, half ? 127.0 / 128 : 255.0 / 256);
  };
  return form;
}

}  // namespace steelyard::qat
