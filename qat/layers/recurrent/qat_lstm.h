// Long short-term memory with quantized weights and values, where integers are rounded as floats.
#pragma once

#include <memory>

#include "steelyard/layers/weighted/lstm.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/forms/quantized_layer.h"

namespace steelyard::qat {

class QatAdd;
class QatCat;
class QatMul;
class QatTableActivation;

// An LSTM whose every value has codes: of the layer that it is, the products of the inputs of all
// steps, of a second one those of the output before, their sum, the gates by tables, the products
// and the sum of the cell, and the outputs (docs/numerics.md: LSTM). A tensor has one quantizer for
// all steps. Without quantized activations the weights alone are quantized, and lstm() runs in
// float.
class QatLstm : public QuantizedLayer {
 public:
  QatLstm(const LSTM& layer, const FormRequest& request);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatLSTM"; }
  std::string description() const override;

 private:
  struct State {
    Variable output, cell;  // [N, H]; undefined before the first step
  };
  // `sums`: of the inputs of this step, [N, 4 H].
  State step(const Variable& sums, const State& before, ForwardContext& context);

  LstmLayerOptions options_;
  std::shared_ptr<QuantizedLayer> recurrent_;
  std::shared_ptr<QatAdd> sum_, cell_;
  std::shared_ptr<QatTableActivation> gates_, update_, squashed_;
  std::shared_ptr<QatMul> kept_, added_, output_;
  std::shared_ptr<QatCat> joined_;  // null where the last output alone is given
};

QuantizedForm lstm_form();

}  // namespace steelyard::qat
