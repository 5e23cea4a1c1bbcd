// The straight-through estimator: a quantizer's gradient passes where it did not clip. Source:
// Bengio et al. 2013, arXiv:1308.3432.
#pragma once

#include <cstdint>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::qat {

// A packed mask of so many elements, to be filled.
Tensor empty_mask(std::int64_t elements, Device device);

// grad_output itself if nothing else holds it, so that it may be written over, else a new tensor.
Tensor gradient_like(const Tensor& grad_output);

// f(the elements of a gradient): floats, or bfloat16 numbers where kernels give them.
template <class F>
void visit_gradient(const Tensor& grad, const F& f) {
  if (grad.dtype() == DType::kBF16) {
    f(static_cast<const kernels::BFloat16*>(grad.raw()));
  } else {
    f(static_cast<const float*>(grad.data<float>()));
  }
}

// grad_output where the packed mask has a one, else 0; written over grad_output if nothing else
// holds it.
Tensor masked_gradient(const Tensor& grad_output, const Tensor& mask);

// Makes `output` the quantized form of `input`, whose gradient passes where the packed mask has a
// one. The operation is recorded as `name`.
Variable straight_through(Variable output, Tensor mask, const Variable& input,
                          const char* name = "fake_quantize");

}  // namespace steelyard::qat
