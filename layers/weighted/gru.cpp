#include "steelyard/layers/weighted/gru.h"

#include <stdexcept>

#include "steelyard/layers/init.h"
#include "steelyard/layers/weighted/last_step.h"

namespace steelyard {

GRU::GRU(const GruLayerOptions& options, Rng& rng) : options_(options) {
  const std::int64_t units = options.units, gates = 3 * units;
  if (options.inputs < 1 || units < 1) {
    throw std::invalid_argument("[GRU] expected inputs and units of at least 1, got " +
                                std::to_string(options.inputs) + " and " + std::to_string(units));
  }
  const auto parameter = [&](const char* name, Shape shape) {
    return register_parameter(name, fan_in_uniform(std::move(shape), units, rng));
  };
  parameters_.weight = parameter("weight", {gates, options.inputs});
  parameters_.recurrent = parameter("recurrent_weight", {gates, units});
  parameters_.bias = parameter("bias", {gates});
  parameters_.recurrent_bias = parameter("recurrent_bias", {units});
  first_output_ = register_buffer("first_output", Tensor::zeros({units}));
}

Variable GRU::forward(const Variable& x, ForwardContext&) {
  GruParameters parameters = parameters_;
  const bool same = first_output_.dtype() == x.dtype();
  parameters.output = Variable(same ? first_output_ : first_output_.to(x.dtype()));
  const Variable outputs = gru(x, parameters, options_.pass);
  return options_.return_sequences ? outputs : last_step(outputs, options_.pass.reverse);
}

std::string GRU::description() const {
  return "GRU(" + std::to_string(options_.inputs) + ", " + std::to_string(options_.units) +
         (options_.pass.reverse ? ", reverse" : "") +
         (options_.return_sequences ? "" : ", last output") + ")";
}

}  // namespace steelyard
