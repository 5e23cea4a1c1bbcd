// One step of a gated recurrent unit (doi:10.3115/v1/D14-1179) whose reset gate acts on the product
// of the state, as in PyTorch. Gates are in the order update, reset, new, as in ONNX. T is float or
// double.
#pragma once

#include <cmath>

#include "steelyard/kernels/lstm/lstm.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// One step of `rows` samples with `columns` units: the gates from their two products, and the
// output h = (1 - z) * n + z * (h of the step before), n = tanh(W x + r * (R h + recurrent bias)).
template <typename T>
struct GruStep {
  std::int64_t rows, columns;
  const T* of_input;  // W x + b, [rows, 3, columns], rows input_stride apart
  std::int64_t input_stride;
  const T* of_state;        // R h of the step before, [rows, 3, columns]
  const T* recurrent_bias;  // [columns], of the new state
  const T* before;          // h of the step before, [rows, columns]
  T* gates;                 // z, r, n and R h + recurrent bias, [rows, 4, columns]
  T* state;                 // h, [rows, columns]
  T* y;                     // h again, rows y_stride apart
  std::int64_t y_stride;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t n, std::int64_t c) const {
    const T* in = of_input + n * input_stride + c;
    const T* old = of_state + n * 3 * columns + c;
    const T update = lstm_gate(in[0] + old[0]), reset = lstm_gate(in[columns] + old[columns]);
    const T product = old[2 * columns] + recurrent_bias[c];
    const T next = std::tanh(in[2 * columns] + reset * product);
    const std::int64_t i = n * columns + c;
    T* own = gates + n * 4 * columns + c;
    own[0] = update;
    own[columns] = reset;
    own[2 * columns] = next;
    own[3 * columns] = product;
    state[i] = (T(1) - update) * next + update * before[i];
    y[n * y_stride + c] = state[i];
  }
};

// The gradients of the two products, from those of h.
template <typename T>
struct GruStepBackward {
  std::int64_t rows, columns;
  const T *gates, *before;  // as GruStep wrote and read them
  const T* grad_y;          // of the output, rows grad_y_stride apart
  std::int64_t grad_y_stride;
  const T* grad_state;  // of h, through the product of the step after
  T* grad_kept;         // of h, through z of the step after; of h before the step afterwards
  T* grad_product;      // of R h, [rows, 3, columns]
  T* grad_input;        // of W x, [rows, 3, columns], rows grad_input_stride apart
  std::int64_t grad_input_stride;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t n, std::int64_t c) const {
    const T* own = gates + n * 4 * columns + c;
    const T update = own[0], reset = own[columns], next = own[2 * columns],
            product = own[3 * columns];
    const std::int64_t i = n * columns + c;
    const T grad_h = grad_y[n * grad_y_stride + c] + grad_state[i] + grad_kept[i];
    const T grad_next = grad_h * (T(1) - update) * (T(1) - next * next);
    const T grads[] = {grad_h * (before[i] - next) * update * (T(1) - update),
                       grad_next * product * reset * (T(1) - reset), grad_next};
    grad_kept[i] = grad_h * update;
    for (std::int64_t gate = 0; gate < 3; ++gate) {
      const std::int64_t at = gate * columns + c;
      grad_product[n * 3 * columns + at] = gate == 2 ? grads[gate] * reset : grads[gate];
      grad_input[n * grad_input_stride + at] = grads[gate];
    }
  }
};

using GruKernels = ForFloats<GruStep, GruStepBackward>;

}  // namespace steelyard::kernels
