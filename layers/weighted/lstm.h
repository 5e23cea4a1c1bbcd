// Long short-term memory layer.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/ops/products/lstm.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

struct LstmLayerOptions {
  std::int64_t inputs = 0;
  std::int64_t units = 0;
  LstmOptions pass = {};
  // Whether the outputs of all steps are given, [N, L, units], or those of the last one computed,
  // [N, units].
  bool return_sequences = true;
  // Whether the state before the first step is 0 whatever is loaded: who replaces the layer can
  // then leave the state out.
  bool begins_at_zero = true;
  static constexpr auto fields() {
    return std::tuple_cat(
        std::tuple(field("inputs", &LstmLayerOptions::inputs),
                   field("units", &LstmLayerOptions::units)),
        fields_within(&LstmLayerOptions::pass),
        std::tuple(
            field("return_sequences", &LstmLayerOptions::return_sequences, /*optional=*/true),
            field("begins_at_zero", &LstmLayerOptions::begins_at_zero, /*optional=*/true)));
  }
};

// What stored options that do not say something mean: files of before begins_at_zero lack it.
inline constexpr LstmLayerOptions kStoredLstm{.begins_at_zero = false};

// "LSTM(8, 16, reverse)".
std::string lstm_text(const LstmLayerOptions& options);
// What a layer gives of the outputs of all steps [N, L, units].
Variable steps_of(const Variable& outputs, const LstmLayerOptions& options);

// lstm() (framework/ops/products/lstm.h) of x [N, L, inputs] in one direction. Parameters weight
// [4 units, inputs], recurrent_weight [4 units, units] and bias [4 units], uniform in
// [-1, 1] / sqrt(units) as in PyTorch, gates in the order input, output, forget, cell. Buffers
// first_output and first_cell [units], zero: the state before the first step.
class LSTM : public Module {
 public:
  // Throws std::invalid_argument on sizes below 1, and on the final cell beside the last output.
  LSTM(const LstmLayerOptions& options, Rng& rng);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "LSTM"; }
  std::string description() const override;
  const LstmLayerOptions& options() const { return options_; }
  const Variable& recurrent_weight() const { return parameters_.recurrent; }
  // Whether the state before the first step is 0 now.
  bool first_state_is_zero() const;

 private:
  LstmLayerOptions options_;
  LstmParameters parameters_;  // without the states before the first step
  Tensor first_output_, first_cell_;
};

}  // namespace steelyard
