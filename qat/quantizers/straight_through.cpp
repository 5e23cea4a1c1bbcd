#include "steelyard/qat/quantizers/straight_through.h"

#include <type_traits>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"

namespace steelyard::qat {
namespace {

class StraightThroughFunction : public Function {
 public:
  StraightThroughFunction(const char* name, Tensor mask) : name_(name) { save(std::move(mask)); }
  std::string name() const override { return name_; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override {
    return {masked_gradient(grad_output, saved()[0])};
  }
  bool takes_bf16_gradients() const override { return true; }

 private:
  const char* name_;
};

}  // namespace

Tensor empty_mask(std::int64_t elements, Device device) {
  return Tensor::empty({kernels::mask_bytes(elements)}, DType::kU8, device);
}

Tensor gradient_like(const Tensor& grad_output) {
  if (grad_output.is_sole_handle()) return grad_output;
  return Tensor::empty(grad_output.shape(), grad_output.dtype(), grad_output.device());
}

Tensor masked_gradient(const Tensor& grad_output, const Tensor& mask) {
  Tensor grad = gradient_like(grad_output);
  visit_gradient(grad_output, [&](const auto* grad_y) {
    using Gradient = std::remove_cvref_t<decltype(*grad_y)>;
    run(grad.device(), kernels::ApplyMask<Gradient>{.n = grad.size(),
                                                    .mask = mask.data<std::uint8_t>(),
                                                    .grad_y = grad_y,
                                                    .grad_x = static_cast<Gradient*>(grad.raw())});
  });
  return grad;
}

Variable straight_through(Variable output, Tensor mask, const Variable& input, const char* name) {
  return record(std::move(output), std::make_shared<StraightThroughFunction>(name, std::move(mask)),
                {input});
}

}  // namespace steelyard::qat
