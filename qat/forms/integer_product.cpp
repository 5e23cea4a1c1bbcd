#include "steelyard/qat/forms/integer_product.h"

#include <type_traits>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/elementwise/elementwise.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/qat/quantizers/straight_through.h"

namespace steelyard::qat {
namespace {

// The gradient where the mask, which may be undefined, has a one, and its sums over the rows, which
// are the gradient of a bias. Of a mask it may be in bf16.
Tensor summed_gradient(const Tensor& grad_output, const Tensor& mask, const Tensor& sums,
                       bool may_be_bf16) {
  const std::int64_t channels = sums.size();
  const std::int64_t rows = channels == 0 ? 0 : grad_output.size() / channels;
  const Device device = grad_output.device();
  if (!mask.defined()) {
    run(device, kernels::ColumnSums<float>{.rows = rows,
                                           .channels = channels,
                                           .x = grad_output.data<float>(),
                                           .sums = sums.data<float>()});
    return grad_output;
  }
  const Tensor grad = may_be_bf16 && grad_output.dtype() != DType::kBF16
                          ? Tensor::empty(grad_output.shape(), DType::kBF16, device)
                          : gradient_like(grad_output);
  visit_gradient(grad_output, [&](const auto* grad_y) {
    visit_gradient(grad, [&](const auto* grad_x) {
      using Given = std::remove_cvref_t<decltype(*grad_y)>;
      using Result = std::remove_cvref_t<decltype(*grad_x)>;
      const auto mask_with = [&](const auto& run_there) {
        run_there(
            kernels::ApplyMaskAndSum<Given, Result>{.rows = rows,
                                                    .channels = channels,
                                                    .mask = mask.data<std::uint8_t>(),
                                                    .grad_y = grad_y,
                                                    .grad_x = static_cast<Result*>(grad.raw()),
                                                    .sums = sums.data<float>()});
      };
      if constexpr (std::is_same_v<Given, float>) {
        mask_with([&](const auto& kernel) { run(device, kernel); });
      } else if constexpr (std::is_same_v<Result, kernels::BFloat16>) {
        mask_with([&](const auto& kernel) { kernels::run(cuda_queue(device), kernel); });
      }
    });
  });
  return grad;
}

}  // namespace

std::vector<float> deployed_scales(const Tensor& scales, std::int64_t outputs) {
  const Tensor host = scales.to(Device{});
  if (host.size() == 1)
    return std::vector<float>(static_cast<std::size_t>(outputs), *host.data<float>());
  return {host.span<float>().begin(), host.span<float>().end()};
}

// sum (x - z_x)(w - z_w) = sum (x - z_x) w - z_w sum (x - z_x): the second sum is the product with
// weights of code 1, of one more output for each group of channels.
void multiply_codes(const Product& product, const QuantizedValue& x, const WeightCodes& weight,
                    const Tensor& acc) {
  product.integer(x, weight, acc);
  const Tensor& zero_point = weight.qparams.zero_point;
  if (!zero_point.defined() || acc.size() == 0) return;
  Shape shape = weight.codes.shape();
  const std::int64_t channels = shape[0];
  shape[0] = product.groups();
  WeightCodes ones;
  ones.codes = Tensor::full(shape, 1, DType::kI8, acc.device());
  ones.range = {0, 1};
  const Tensor sums =
      Tensor::empty(product.output_shape(x.codes.shape(), shape), DType::kI32, acc.device());
  product.integer(x, ones, sums);
  run(acc.device(), kernels::SubtractZeroPoints{.rows = acc.size() / channels,
                                                .columns = channels,
                                                .groups = shape[0],
                                                .zero_points = zero_point.size(),
                                                .sums = sums.data<std::int32_t>(),
                                                .zero_point = zero_point.data<std::int32_t>(),
                                                .acc = acc.data<std::int32_t>()});
}

IntegerProductFunction::IntegerProductFunction(std::shared_ptr<const Product> product,
                                               const QuantizedValue& x, const WeightCodes& weight,
                                               const QuantizedParameter& parameter, bool has_bias,
                                               kernels::Activation activation, Tensor output_mask)
    : product_(std::move(product)),
      x_(x),
      weight_qparams_(weight.qparams),
      weight_range_(parameter.range),
      weight_bits_(weight.bits),
      bias_codes_(weight.bias),
      has_bias_(has_bias),
      activation_(activation) {
  save(x.codes);
  save(parameter.values.defined() ? parameter.values : weight.codes);
  save(weight.mask);
  save(std::move(output_mask));
}

Tensor IntegerProductFunction::weight_codes() const {
  const Tensor& kept = saved()[1];
  if (kept.dtype() == DType::kI8) return kept;
  const auto& [scale, zero_point] = weight_qparams_;
  const std::int64_t scales = scale.size();
  const Tensor codes = Tensor::empty(kept.shape(), DType::kI8, kept.device());
  run(kept.device(), kernels::Quantize<float, std::int8_t>{
                         .layout = {1, scales, scales == 0 ? 0 : kept.size() / scales},
                         .range = weight_range_,
                         .x = kept.data<float>(),
                         .scale = scale.data<float>(),
                         .zero_point = data_or_null<std::int32_t>(zero_point),
                         .codes = codes.data<std::int8_t>()});
  return codes;
}

bool IntegerProductFunction::reads_bf16_gradients() const {
  return product_->reads_bf16_gradients(x_, weight_shape(), weight_qparams_);
}

bool IntegerProductFunction::takes_bf16_gradients() const {
  return saved()[3].defined() && x_.codes.device().kind != Device::Kind::kCpu &&
         reads_bf16_gradients();
}

std::vector<Tensor> IntegerProductFunction::backward(const Tensor& grad_output) const {
  const Tensor& output_mask = saved()[3];
  const Device device = grad_output.device();
  std::vector<Tensor> grads(has_bias_ ? 3 : 2);
  Tensor grad;  // no second handle of grad_output, which the mask may then be written over
  if (has_bias_ && needs_grad(2)) {
    grads[2] = Tensor::empty(inputs()[2]->shape, DType::kF32, device);
    grad = summed_gradient(grad_output, output_mask, grads[2], reads_bf16_gradients());
  } else if (output_mask.defined()) {
    grad = masked_gradient(grad_output, output_mask);
  } else {
    grad = grad_output;
  }
  if (needs_grad(0)) {
    // In bf16 for what reads it so: another layer would have it converted.
    const Function* reader = inputs()[0]->producer.get();
    const bool is_rounded = grad.dtype() == DType::kBF16 && device.kind != Device::Kind::kCpu &&
                            reader != nullptr && reader->takes_bf16_gradients();
    grads[0] = Tensor::empty(inputs()[0]->shape, is_rounded ? DType::kBF16 : DType::kF32, device);
    WeightCodes weight;
    weight.codes = weight_codes();
    weight.qparams = weight_qparams_;
    product_->grad_input(grad, weight, grads[0]);
  }
  if (needs_grad(1)) {
    grads[1] = Tensor::empty(inputs()[1]->shape, DType::kF32, device);
    product_->grad_weight(x_, grad, saved()[2], grads[1]);
  }
  return grads;
}

}  // namespace steelyard::qat
