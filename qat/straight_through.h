// The straight-through estimator: a quantizer's gradient passes where it did not clip. Source:
// Bengio et al. 2013, arXiv:1308.3432.
#pragma once

#include <cstdint>

#include "steelyard/framework/autograd.h"

namespace steelyard::qat {

// A packed mask of so many elements, to be filled.
Tensor empty_mask(std::int64_t elements, Device device);

// grad_output itself if nothing else holds it, so that it may be written over, else a new tensor.
Tensor gradient_like(const Tensor& grad_output);

// grad_output where the packed mask has a one, else 0; written over grad_output if nothing else
// holds it.
Tensor masked_gradient(const Tensor& grad_output, const Tensor& mask);

// Makes `output` the quantized form of `input`, whose gradient passes where the packed mask has a
// one. The operation is recorded as `name`.
Variable straight_through(Variable output, Tensor mask, const Variable& input,
                          const char* name = "fake_quantize");

}  // namespace steelyard::qat
