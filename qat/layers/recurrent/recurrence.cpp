#include "steelyard/qat/layers/recurrent/recurrence.h"

#include <stdexcept>

namespace steelyard::qat {

Recurrence::Recurrence(const Tensor& weight, const QConfig& config)
    : QuantizedLayer(linear_product(), weight, Tensor(), kernels::Activation::kNone, config,
                     "recurrent_") {}

void require_sequence(const Variable& x) {
  if (x.shape().size() == 3 && x.dim(1) >= 1) return;
  throw std::invalid_argument("[QatLSTM] expected an input [N, L, I] with L of at least 1, got " +
                              shape_string(x.shape()));
}

Variable lstm_of_rounded_weights(const Variable& x, QuantizedLayer& layer,
                                 QuantizedLayer& recurrence, const LstmOptions& options,
                                 ForwardContext& context) {
  const auto rounded = [&](QuantizedLayer& of) {
    WeightQuantizer* quantizer = of.weight_quantizer();
    return quantizer != nullptr ? quantizer->forward(of.weight(), context) : of.weight();
  };
  const std::int64_t units = recurrence.weight().dim(1);
  const Variable zero(Tensor::zeros({units}, DType::kF32, x.value().device()));
  return lstm(x,
              {.weight = rounded(layer),
               .recurrent = rounded(recurrence),
               .bias = layer.bias(),
               .output = zero,
               .cell = zero},
              options);
}

std::string state_refusal(const LSTM& layer) {
  // A model whose weights are loaded later must get the same form: the option says what they are.
  if (!layer.options().begins_at_zero || !layer.first_state_is_zero())
    return "its state before the first step is not 0";
  return layer.options().pass.final_cell ? "its final cell is read" : "";
}

}  // namespace steelyard::qat
