// Steps of an LSTM of s8 codes in fixed point (kernels/fixed_functions.h), where LstmStep is the
// one of floats. Gates are in the order input, output, forget, cell.
#pragma once

#include "steelyard/kernels/fixed_functions.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// The factors of all steps, from scales and a zero point where these are. n = 1.
struct FixedLstmFactors {
  static constexpr std::int64_t kGrain = 1;
  std::int64_t n;
  Rounding rounding;
  const float *in_scale, *weight_scale, *recurrent_scale, *scale;
  const std::int32_t* zero_point;
  FixedLstm* factors;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    factors[i] =
        make_fixed_lstm(*in_scale, *weight_scale, *recurrent_scale, *scale, *zero_point, rounding);
  }
};

// One step of `rows` samples with `columns` units.
struct FixedLstmStep {
  std::int64_t rows, columns;
  Rounding rounding;
  const FixedLstm* factors;
  const std::int32_t* of_input;  // W (x - zero point), [rows, 4, columns], rows input_stride apart
  std::int64_t input_stride;
  const std::int32_t* bias;      // [4, columns]
  const std::int32_t* of_state;  // R (h - zero point) of the step before, [rows, 4, columns]
  std::int32_t* cell;            // [rows, columns], of the step before and then of this one
  std::int8_t* state;            // the codes of h, [rows, columns]
  float* y;                      // the same before they are clamped, rows y_stride apart
  std::int64_t y_stride;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t n, std::int64_t c) const {
    std::int32_t inputs[4], states[4];
    for (std::int64_t gate = 0; gate < 4; ++gate) {
      const std::int64_t at = gate * columns + c;
      inputs[gate] = wrapped_sum(of_input[n * input_stride + at], bias[at]);
      states[gate] = of_state[n * 4 * columns + at];
    }
    const std::int64_t i = n * columns + c;
    const FixedLstmUnit unit = fixed_lstm_unit(*factors, inputs, states, cell[i], rounding);
    cell[i] = unit.cell;
    const std::int32_t raised = unit.code < -128 ? -128 : unit.code;
    state[i] = static_cast<std::int8_t>(raised > 127 ? 127 : raised);
    y[n * y_stride + c] = static_cast<float>(unit.code);
  }
};

using FixedLstmKernels = KernelList<FixedLstmFactors, FixedLstmStep>;

}  // namespace steelyard::kernels
