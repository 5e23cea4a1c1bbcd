#include "steelyard/layers/weighted/lstm.h"

#include <algorithm>
#include <stdexcept>

#include "steelyard/layers/init.h"
#include "steelyard/layers/weighted/last_step.h"

namespace steelyard {

LSTM::LSTM(const LstmLayerOptions& options, Rng& rng) : options_(options) {
  const std::int64_t units = options.units, gates = 4 * units;
  if (options.inputs < 1 || units < 1) {
    throw std::invalid_argument("[LSTM] expected inputs and units of at least 1, got " +
                                std::to_string(options.inputs) + " and " + std::to_string(units));
  }
  if (options.pass.final_cell && !options.return_sequences) {
    throw std::invalid_argument("[LSTM] expected the final cell after the outputs of all steps");
  }
  const auto parameter = [&](const char* name, Shape shape) {
    return register_parameter(name, fan_in_uniform(std::move(shape), units, rng));
  };
  parameters_.weight = parameter("weight", {gates, options.inputs});
  parameters_.recurrent = parameter("recurrent_weight", {gates, units});
  parameters_.bias = parameter("bias", {gates});
  first_output_ = register_buffer("first_output", Tensor::zeros({units}));
  first_cell_ = register_buffer("first_cell", Tensor::zeros({units}));
}

Variable LSTM::forward(const Variable& x, ForwardContext&) {
  LstmParameters parameters = parameters_;
  const auto as_input = [&](const Tensor& state) {
    return Variable(state.dtype() == x.dtype() ? state : state.to(x.dtype()));
  };
  parameters.output = as_input(first_output_);
  parameters.cell = as_input(first_cell_);
  return steps_of(lstm(x, parameters, options_.pass), options_);
}

bool LSTM::first_state_is_zero() const {
  const auto is_zero = [](const Tensor& state) {
    const Tensor host = state.to(Device{});
    const auto values = host.span<float>();
    return std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
  };
  return is_zero(first_output_) && is_zero(first_cell_);
}

std::string LSTM::description() const { return lstm_text(options_); }

std::string lstm_text(const LstmLayerOptions& options) {
  return "LSTM(" + std::to_string(options.inputs) + ", " + std::to_string(options.units) +
         (options.pass.reverse ? ", reverse" : "") +
         (options.pass.final_cell ? ", with the final cell" : "") +
         (options.return_sequences ? "" : ", last output") + ")";
}

Variable steps_of(const Variable& outputs, const LstmLayerOptions& options) {
  return options.return_sequences ? outputs : last_step(outputs, options.pass.reverse);
}

}  // namespace steelyard
