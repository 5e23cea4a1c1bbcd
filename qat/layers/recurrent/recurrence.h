// What the quantized forms of an LSTM share: the product of its outputs before, and the float
// operation on rounded weights.
#pragma once

#include <memory>
#include <string>

#include "steelyard/layers/weighted/lstm.h"
#include "steelyard/qat/forms/quantized_layer.h"

namespace steelyard::qat {

// The product of a layer's output before, "recurrent_weight".
class Recurrence : public QuantizedLayer {
 public:
  Recurrence(const Tensor& weight, const QConfig& config);
  std::string type_name() const override { return "QatRecurrence"; }
};

// Throws std::invalid_argument unless x is [N, L, I] with steps.
void require_sequence(const Variable& x);

// lstm() of all steps of x [N, L, I], whose state begins at 0, with the weights of `layer` and
// `recurrence` as they are rounded.
Variable lstm_of_rounded_weights(const Variable& x, QuantizedLayer& layer,
                                 QuantizedLayer& recurrence, const LstmOptions& options,
                                 ForwardContext& context);

// Why no quantized form has the layer; "" where they have.
std::string state_refusal(const LSTM& layer);

}  // namespace steelyard::qat
