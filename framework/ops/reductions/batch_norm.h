// Batch normalization over the last dimension's channels.
// Source: Ioffe and Szegedy, "Batch Normalization", 2015.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// Running statistics and how they are used.
struct BatchNormState {
  Tensor running_mean;  // [C], f32 or f64
  Tensor running_var;   // [C], the unbiased variance, as PyTorch keeps it
  double eps = 1e-5;
  double momentum = 0.1;  // the weight of the new batch
  // True: normalize with the batch's statistics and update the running ones in place. False
  // (evaluation, or frozen in training): normalize with the running statistics.
  bool batch_statistics = false;
  // If defined, the batch's moments are added here and the running statistics are not updated: f64
  // [3, C], move_by_gathered_moments().
  Tensor gathered = {};
};

// y = (x - mean) / sqrt(variance + eps) * gamma + beta per channel of x[..., C]; gamma and beta are
// [C]. Batch statistics need more than one value per channel.
Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                    const BatchNormState& state);

// Moves the running statistics towards a batch's, or gathers these: its mean and biased variance
// [C] over `rows` values, two or more. What operations call that compute these themselves.
void update_running_statistics(const BatchNormState& state, const Tensor& mean,
                               const Tensor& variance, std::int64_t rows);

// Moves the running statistics towards those of all values in state.gathered.
void move_by_gathered_moments(const BatchNormState& state);

}  // namespace steelyard
