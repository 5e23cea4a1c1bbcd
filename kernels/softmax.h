// Losses of softmax(logits) over rows, fused with their gradients.
#pragma once

#include <cstdint>

namespace steelyard::kernels {

// Mean over rows of the cross-entropy of logits[rows, classes] against labels[rows], label
// smoothing eps in [0, 1) (Szegedy et al. 2016: target = (1-eps) * onehot + eps / classes).
// Writes grad_logits[rows, classes] = d loss / d logits when not null. Stable for large logits; a
// NaN logit gives a NaN loss, as do zero rows. Labels must lie in [0, classes) (checked by the
// caller).
template <typename T>
T softmax_cross_entropy(std::int64_t rows, std::int64_t classes, const T* logits,
                        const std::int64_t* labels, double label_smoothing, T* grad_logits);

// Mean over rows of T^2 * KL(softmax(teacher / T) || softmax(logits / T)), T = temperature > 0,
// both [rows, classes]; the factor T^2 keeps gradients of one size for every T (Hinton et al. 2015,
// arXiv:1503.02531). Writes grad_logits[rows, classes] = T * (softmax(logits / T) -
// softmax(teacher / T)) / rows when not null. A NaN anywhere gives a NaN loss, as do zero rows.
template <typename T>
T softmax_divergence(std::int64_t rows, std::int64_t classes, const T* logits, const T* teacher,
                     double temperature, T* grad_logits);

// predictions[rows] = index of the largest logit, the first of equals; a NaN counts as largest.
template <typename T>
void argmax_rows(std::int64_t rows, std::int64_t classes, const T* logits,
                 std::int64_t* predictions);

}  // namespace steelyard::kernels
