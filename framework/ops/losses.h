// Training losses: one number (rank 0), the mean over the batch.
#pragma once

#include "steelyard/framework/autograd.h"

namespace steelyard {

// Mean cross-entropy of softmax(logits[N, C]) against class numbers targets[N] (i64); the target
// distribution is (1 - label_smoothing) * onehot + label_smoothing / C, label_smoothing in [0, 1)
// (Szegedy et al. 2016). Throws std::out_of_range naming a target outside [0, C); on a GPU, where
// to look at it would mean to wait, such a target makes the loss NaN instead. Keeps the gradient,
// computed with the loss, instead of the logits.
Variable cross_entropy(const Variable& logits, const Tensor& targets, double label_smoothing = 0.0);

// Knowledge distillation: mean over rows of temperature^2 * KL(softmax(teacher / temperature) ||
// softmax(logits / temperature)), logits and teacher [N, C] of one dtype, temperature > 0; no
// gradient reaches the teacher. Source: Hinton et al., arXiv:1503.02531. Keeps the gradient instead
// of the logits.
Variable distillation_loss(const Variable& logits, const Tensor& teacher, double temperature = 1.0);

// (1 - weight) * a + weight * b of two losses of one dtype, weight in [0, 1].
Variable mix_losses(const Variable& a, const Variable& b, double weight);

// Mean of (x - target)^2 over all elements; equal shapes and dtypes.
Variable mse_loss(const Variable& x, const Tensor& target);

// Mean over all elements of 0.5 d^2 where |d| <= delta, else delta (|d| - 0.5 delta), d = x -
// target; equal shapes and dtypes, delta > 0. Source: Huber, "Robust Estimation of a Location
// Parameter", 1964.
Variable huber_loss(const Variable& x, const Tensor& target, double delta = 1.0);

}  // namespace steelyard
