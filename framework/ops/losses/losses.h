// Training losses: one number (rank 0), the mean over the batch.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// Weights of classes in a cross-entropy; none: all are 1.
struct ClassWeights {
  Tensor of_classes = {};  // f64 [C], on the logits' device
  // For a part of a batch: the weights of all labels of the batch (f64, rank 0, on that device),
  // which its sum is divided by, and the factor that it is then multiplied by. Undefined: the
  // weights of the part's own labels.
  Tensor total = {};
  double factor = 1;
};

// Mean cross-entropy of softmax(logits[N, C]) against class numbers targets[N] (i64), or against
// probabilities targets[N, C] of the logits' dtype; the target distribution q is (1 -
// label_smoothing) * targets + label_smoothing / C, label_smoothing in [0, 1) (Szegedy et al.
// 2016). With class weights w a row's loss is -sum of w[c] q[c] log p[c]; the mean of rows with
// class numbers is then their sum divided by the sum of w[target], as torch has it. Throws
// std::out_of_range naming a target outside [0, C), and std::invalid_argument naming a probability
// outside [0, 1]; on a GPU, where to look at them would mean to wait, the former makes the loss NaN
// instead. Keeps the gradient, computed with the loss, instead of the logits.
Variable cross_entropy(const Variable& logits, const Tensor& targets, double label_smoothing = 0.0,
                       const ClassWeights& weights = {});

// The sum of the weights of labels i64 [N]: f64, rank 0, on their device, where class_weights f64
// [C] are too.
Tensor sum_of_label_weights(const Tensor& labels, const Tensor& class_weights);

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

// Mean over all elements of -p y log sigmoid(x) - (1 - y) log(1 - sigmoid(x)), logits x and targets
// y in [0, 1] of equal shapes [N, ..., C] and dtypes; p is the weight of positive targets, f64 [1]
// or one for each of C on the same device, 1 where undefined. Targets outside throw as those of
// cross_entropy().
Variable binary_cross_entropy(const Variable& logits, const Tensor& targets,
                              const Tensor& positive_weights = {});

// Mean over rows of 1 - cos(x, target), both [N, D] of one dtype; 1e-12 is added to the squared
// lengths (torch's cosine_embedding_loss of pairs that belong together).
Variable cosine_loss(const Variable& x, const Tensor& target);

}  // namespace steelyard
