// Long short-term memory with codes in fixed point: one operation, as TFLite Micro's
// UNIDIRECTIONAL_SEQUENCE_LSTM computes it (docs/numerics.md: LSTM in fixed point).
#pragma once

#include <memory>

#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/layers/recurrent/recurrence.h"

namespace steelyard::qat {

// The codes of the outputs of all steps, recorded; inputs x, weight, bias and recurrent weight. Its
// gradients are those of lstm() at the real values of the codes, straight through the rounding.
class FixedLstmFunction : public Function {
 public:
  FixedLstmFunction(const QuantizedValue& x, const WeightCodes& weight,
                    const WeightCodes& recurrent, const Tensor& bias, Tensor output_mask);
  std::string name() const override { return "quantized_lstm"; }
  std::vector<Tensor> backward(const Tensor& grad_output) const override;

  // One scale each; the bias has codes with the first.
  const WeightCodes& weight() const { return weight_; }
  const WeightCodes& recurrent() const { return recurrent_; }

 private:
  QuantizedValue x_;  // it and the weights share the saved codes
  WeightCodes weight_, recurrent_;
};

// The state is quantized as the output is. Without codes of the input, and while one of its
// quantizers is off, lstm() runs in float.
class QatFixedLstm : public QuantizedLayer {
 public:
  QatFixedLstm(const LSTM& layer, const FormRequest& request);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatLSTM"; }
  std::string description() const override;

 private:
  Variable integer_steps(const Variable& x, ForwardContext& context);

  LstmLayerOptions options_;
  std::shared_ptr<QuantizedLayer> recurrent_;
};

QuantizedForm fixed_lstm_form();

}  // namespace steelyard::qat
