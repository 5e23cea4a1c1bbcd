// One step of a long short-term memory (doi:10.1162/neco.1997.9.8.1735; with forget gates:
// doi:10.1162/089976600300015015). Gates are in the order input, output, forget, cell, as in ONNX.
// T is float or double.
#pragma once

#include <cmath>

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

template <typename T>
STEELYARD_HOST_DEVICE inline T lstm_gate(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// One step of `rows` samples with `columns` units: the gates from their two products, the cell, and
// the output h = o * tanh(c).
template <typename T>
struct LstmStep {
  std::int64_t rows, columns;
  const T* of_input;  // W x + b, [rows, 4, columns], rows input_stride apart
  std::int64_t input_stride;
  const T* of_state;  // R h of the step before, [rows, 4, columns]
  const T* before;    // c of the step before, [rows, columns]
  T* gates;           // [rows, 4, columns]
  T *cell, *state;    // c and h, [rows, columns]
  T* y;               // h again, rows y_stride apart
  std::int64_t y_stride;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t n, std::int64_t c) const {
    const auto sum = [&](std::int64_t gate) {
      const std::int64_t at = gate * columns + c;
      return of_input[n * input_stride + at] + of_state[n * 4 * columns + at];
    };
    const T in = lstm_gate(sum(0)), out = lstm_gate(sum(1)), forget = lstm_gate(sum(2)),
            update = std::tanh(sum(3));
    const std::int64_t i = n * columns + c;
    T* own = gates + n * 4 * columns + c;
    own[0] = in;
    own[columns] = out;
    own[2 * columns] = forget;
    own[3 * columns] = update;
    cell[i] = forget * before[i] + in * update;
    state[i] = out * std::tanh(cell[i]);
    y[n * y_stride + c] = state[i];
  }
};

// The gradients of the gates' sums, from those of h and c. `grad_cell` is that of c after the step,
// and of c before it afterwards.
template <typename T>
struct LstmStepBackward {
  std::int64_t rows, columns;
  const T *gates, *before, *cell;  // as LstmStep wrote and read them
  const T* grad_y;                 // of the output, rows grad_y_stride apart
  std::int64_t grad_y_stride;
  const T* grad_state;  // of h, from the step after
  T* grad_cell;
  T* grad_sums;   // [rows, 4, columns]
  T* grad_input;  // the same, rows grad_input_stride apart
  std::int64_t grad_input_stride;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t n, std::int64_t c) const {
    const T* own = gates + n * 4 * columns + c;
    const T in = own[0], out = own[columns], forget = own[2 * columns], update = own[3 * columns];
    const std::int64_t i = n * columns + c;
    const T squashed = std::tanh(cell[i]);
    const T grad_h = grad_y[n * grad_y_stride + c] + grad_state[i];
    const T grad_c = grad_cell[i] + grad_h * out * (T(1) - squashed * squashed);
    const T grads[] = {grad_c * update * in * (T(1) - in), grad_h * squashed * out * (T(1) - out),
                       grad_c * before[i] * forget * (T(1) - forget),
                       grad_c * in * (T(1) - update * update)};
    grad_cell[i] = grad_c * forget;
    for (std::int64_t gate = 0; gate < 4; ++gate) {
      const std::int64_t at = gate * columns + c;
      grad_sums[n * 4 * columns + at] = grads[gate];
      grad_input[n * grad_input_stride + at] = grads[gate];
    }
  }
};

using LstmKernels = ForFloats<LstmStep, LstmStepBackward>;

}  // namespace steelyard::kernels
