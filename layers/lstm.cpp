#include "steelyard/layers/lstm.h"

#include <stdexcept>

#include "steelyard/layers/init.h"

namespace steelyard {

LSTM::LSTM(const LstmLayerOptions& options, Rng& rng) : options_(options) {
  const std::int64_t units = options.units, gates = 4 * units;
  if (options.inputs < 1 || units < 1) {
    throw std::invalid_argument("[LSTM] expected inputs and units of at least 1, got " +
                                std::to_string(options.inputs) + " and " + std::to_string(units));
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
  return lstm(x, parameters, options_.pass);
}

std::string LSTM::description() const {
  return "LSTM(" + std::to_string(options_.inputs) + ", " + std::to_string(options_.units) +
         (options_.pass.reverse ? ", reverse" : "") +
         (options_.pass.final_cell ? ", with the final cell" : "") + ")";
}

}  // namespace steelyard
