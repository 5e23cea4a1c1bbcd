// Checks and limits on gradients between backward and the optimizer's step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"

namespace steelyard {

// Scales all gradients in place by max_norm / (norm + 1e-6) when their joint L2 norm exceeds that
// (PyTorch's clip_grad_norm_) and returns the norm from before, accumulated in double: f64 of rank
// 0, where the gradients are, all on one device. Nothing waits for a GPU until the norm is read. A
// norm that is not finite leaves the gradients as they are. Throws std::invalid_argument on a
// gradient that is neither f32 nor f64 and on max_norm unless it is above 0.
Tensor clip_grad_norm(const std::vector<NamedParameter>& parameters, double max_norm);

// Whether a floating tensor holds a NaN or an infinity; false for other dtypes and an undefined
// tensor. Waits for a GPU.
bool has_non_finite(const Tensor& tensor);

// The name of the first parameter whose gradient holds a NaN or an infinity, if any.
// Waits for a GPU.
std::optional<std::string> first_non_finite_gradient(const std::vector<NamedParameter>& parameters);

}  // namespace steelyard
