// Losses of softmax(logits) over rows, fused with their gradients.
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"

namespace steelyard::kernels {

// *loss = mean over rows of the cross-entropy of logits[rows, classes] against labels[rows], label
// smoothing eps in [0, 1) (Szegedy et al. 2016: target = (1-eps) * onehot + eps / classes).
// Writes grad_logits[rows, classes] = d loss / d logits when not null. Stable for large logits; a
// NaN logit gives a NaN loss, as do zero rows. Labels must lie in [0, classes) (checked by the
// caller).
template <typename T>
void softmax_cross_entropy(std::int64_t rows, std::int64_t classes, const T* logits,
                           const std::int64_t* labels, double label_smoothing, T* loss,
                           T* grad_logits);

// *loss = mean over rows of T^2 * KL(softmax(teacher / T) || softmax(logits / T)), T = temperature
// > 0, both [rows, classes]; the factor T^2 keeps gradients of one size for every T (Hinton et al.
// 2015, arXiv:1503.02531). Writes grad_logits[rows, classes] = T * (softmax(logits / T) -
// softmax(teacher / T)) / rows when not null. A NaN anywhere gives a NaN loss, as do zero rows.
template <typename T>
void softmax_divergence(std::int64_t rows, std::int64_t classes, const T* logits, const T* teacher,
                        double temperature, T* loss, T* grad_logits);

// predictions[rows] = index of the largest logit, the first of equals; a NaN counts as largest.
template <typename T>
void argmax_rows(std::int64_t rows, std::int64_t classes, const T* logits,
                 std::int64_t* predictions);

// *correct += number of rows whose largest logit, in the sense of argmax_rows, is that of the
// label.
template <typename T>
void add_correct_rows(std::int64_t rows, std::int64_t classes, const T* logits,
                      const std::int64_t* labels, std::int64_t* correct);

// The same on a GPU, where nobody has looked at the labels: one outside [0, classes) gives a NaN
// loss and gradients of NaN in its row.
template <typename T>
void softmax_cross_entropy(const CudaQueue& queue, std::int64_t rows, std::int64_t classes,
                           const T* logits, const std::int64_t* labels, double label_smoothing,
                           T* loss, T* grad_logits);
template <typename T>
void softmax_divergence(const CudaQueue& queue, std::int64_t rows, std::int64_t classes,
                        const T* logits, const T* teacher, double temperature, T* loss,
                        T* grad_logits);
template <typename T>
void argmax_rows(const CudaQueue& queue, std::int64_t rows, std::int64_t classes, const T* logits,
                 std::int64_t* predictions);
template <typename T>
void add_correct_rows(const CudaQueue& queue, std::int64_t rows, std::int64_t classes,
                      const T* logits, const std::int64_t* labels, std::int64_t* correct);

}  // namespace steelyard::kernels
