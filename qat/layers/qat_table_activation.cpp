#include "steelyard/qat/layers/qat_table_activation.h"

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/fixed_codes/fixed_codes.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/elementwise.h"
#include "steelyard/observers/fixed.h"
#include "steelyard/observers/registry.h"
#include "steelyard/qat/layers/qat_softmax.h"
#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::qat {
namespace {

using kernels::ActivationFunction;

constexpr std::int64_t kBytes = 256;

const std::uint8_t* bytes_of(const Tensor& codes) {
  return static_cast<const std::uint8_t*>(codes.raw());
}

// The table's entry for each code, times the factor if there is one.
Tensor mapped(const Tensor& codes, const Tensor& table, const Tensor& factor = {}) {
  Tensor y = Tensor::empty(codes.shape(), DType::kF32, codes.device());
  run(codes.device(),
      kernels::MapToFloats{.n = codes.size(),
                           .x = bytes_of(codes),
                           .table = table.data<float>(),
                           .factor = factor.defined() ? factor.data<float>() : nullptr,
                           .y = y.data<float>()});
  return y;
}

const OpNames<ActivationFunction>& names_of(ActivationFunction activation) {
  return row_in(kActivationNames, activation);
}

class TableActivationCodesFunction : public Function, public Describes<kernels::Ramp> {
 public:
  TableActivationCodesFunction(ActivationFunction activation, const kernels::Ramp& ramp,
                               Tensor codes, Tensor slopes)
      : activation_(activation), ramp_(ramp) {
    save(std::move(codes));
    save(std::move(slopes));
  }
  std::string name() const override {
    return std::string("quantized_") + names_of(activation_).operation;
  }
  kernels::Ramp described() const override { return ramp_; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {mapped(saved()[0], saved()[1], grad_output)};
  }

 private:
  ActivationFunction activation_;
  kernels::Ramp ramp_;
};

template <typename Layer>
kernels::Ramp ramp_of(const Layer&) {
  return {};
}
kernels::Ramp ramp_of(const HardSigmoid& layer) { return {layer.slope(), layer.offset()}; }
kernels::Ramp ramp_of(const Affine& layer) { return {layer.slope(), layer.offset()}; }
kernels::Ramp ramp_of(const Elementwise&) { return {}; }
// In float the product has a float's slope.
kernels::Ramp ramp_of(const LeakyReLU& layer) {
  return {.slope = static_cast<double>(static_cast<float>(layer.slope()))};
}

template <typename Layer, ActivationFunction activation>
QuantizedForm table_form() {
  QuantizedForm form = form_of<Layer>(
      names_of(activation).layer, FormKind::kComputes,
      [](const Layer& layer, const FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatTableActivation>(activation, request.output, ramp_of(layer));
      });
  form.note = "by a table of codes";
  if (!kernels::has_fixed_form(activation)) return form;
  form.profiles = FormProfiles::kAll;
  form.refusal = [](const Module& module, const QuantizerConfig& output) -> std::string {
    const bool fixed = kernels::is_fixed_point(output.rounding);
    const bool falls = fixed && ramp_of(dynamic_cast<const Layer&>(module)).slope < 0;
    return falls ? "its slope is negative" : "";
  };
  if (activation == ActivationFunction::kSigmoid) {
    form.output = [](QuantizerConfig& output) {
      if (kernels::is_fixed_point(output.rounding)) fix_shares(output, 255.0 / 256);
    };
  }
  return form;
}

// From -1 to a step less than 1, so that the scale is 2^-7.
void fix_signed_shares(QuantizerConfig& output) {
  static const auto kRow = std::make_shared<const observers::ObserverRow>(observers::ObserverRow{
      .name = "fixed",
      .make = [](const observers::ObserverOptions&, const observers::QScheme&,
                 std::int64_t channels) -> std::unique_ptr<observers::Observer> {
        return std::make_unique<observers::FixedObserver>(channels, 127.0 / 128, -1);
      }});
  output.observer = {.type = "fixed", .own = kRow};
  output.learning = Learning::kNothing;
  output.scheme.symmetric = false;
}

// Elsewhere a Tanh stays in float.
QuantizedForm tanh_form() {
  QuantizedForm form = table_form<Elementwise, ActivationFunction::kTanh>();
  form.profiles = FormProfiles::kFixedPoint;
  form.matches = [](const Module& module) {
    const auto* layer = dynamic_cast<const Elementwise*>(&module);
    return layer != nullptr && layer->function() == kernels::UnaryFunction::kTanh;
  };
  form.output = fix_signed_shares;
  return form;
}

}  // namespace

Variable table_activation_codes(const Variable& x, ActivationFunction activation,
                                ActivationQuantizer& output, ForwardContext& context,
                                const kernels::Ramp& ramp) {
  const auto in = quantized(x);
  const Device device = in->codes.device();
  const Tensor values = Tensor::empty({kBytes}, DType::kF32, device);
  kernels::ActivationTable table{.n = kBytes,
                                 .activation = activation,
                                 .is_signed = in->codes.dtype() == DType::kI8,
                                 .in_scale = in->qparams.scale.data<float>(),
                                 .in_zero_point = in->qparams.zero_point.data<std::int32_t>(),
                                 .values = values.data<float>(),
                                 .scale = nullptr,
                                 .zero_point = nullptr,
                                 .range = {},
                                 .codes = nullptr,
                                 .slopes = nullptr,
                                 .ramp = ramp};
  const auto real_values = [in, values] { return mapped(in->codes, values); };
  const auto first_values = [&] {
    run(device, table);
    return real_values();
  };
  QuantizedValue y = output.empty_output(x.shape(), first_values, context);
  const Tensor codes = Tensor::empty({kBytes}, DType::kU8, device);
  const Tensor slopes = Tensor::empty({kBytes}, DType::kF32, device);
  table.scale = y.qparams.scale.data<float>();
  table.zero_point = y.qparams.zero_point.data<std::int32_t>();
  table.range = y.range;
  table.codes = codes.data<std::uint8_t>();
  table.slopes = slopes.data<float>();
  if (kernels::is_fixed_point(y.rounding)) {
    run(device, kernels::FixedActivationTable{.n = kBytes,
                                              .activation = activation,
                                              .rounding = y.rounding,
                                              .in_scale = table.in_scale,
                                              .in_zero_point = table.in_zero_point,
                                              .scale = table.scale,
                                              .zero_point = table.zero_point,
                                              .range = y.range,
                                              .codes = table.codes,
                                              .slopes = table.slopes,
                                              .ramp = ramp});
  } else {
    run(device, table);
  }
  run(device, kernels::MapBytes{.n = y.codes.size(),
                                .x = bytes_of(in->codes),
                                .table = codes.data<std::uint8_t>(),
                                .y = static_cast<std::uint8_t*>(y.codes.raw())});
  const Variable result = make_variable(std::move(y));
  if (!should_record({x})) return result;
  return output.learn_output(
      record(result,
             std::make_shared<TableActivationCodesFunction>(activation, ramp, in->codes, slopes),
             {x}),
      {real_values, {in->codes, values}}, context);
}

QatTableActivation::QatTableActivation(ActivationFunction activation, const QuantizerConfig& output,
                                       const kernels::Ramp& ramp)
    : activation_(activation), ramp_(ramp), output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

std::string QatTableActivation::type_name() const {
  return std::string("Qat") + names_of(activation_).layer;
}

Variable QatTableActivation::forward(const Variable& x, ForwardContext& context) {
  const auto codes = quantized(x);
  const bool bytes = codes && !codes->wide() && !output_->scheme().wide();
  if (bytes && output_->quantizing()) {
    return table_activation_codes(x, activation_, *output_, context, ramp_);
  }
  return output_->forward(activate(activation_, x, ramp_), context);
}

QuantizedForms table_activation_forms() {
  using enum ActivationFunction;
  return {table_form<Sigmoid, kSigmoid>(),
          table_form<SiLU, kSilu>(),
          table_form<GELU, kGelu>(),
          table_form<TanhGELU, kTanhGelu>(),
          table_form<Hardswish, kHardswish>(),
          table_form<HardSigmoid, kHardSigmoid>(),
          table_form<LeakyReLU, kLeakyRelu>(),
          table_form<Affine, kAffine>(),
          tanh_form()};
}

}  // namespace steelyard::qat
