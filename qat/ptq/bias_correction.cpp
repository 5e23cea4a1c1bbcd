#include "steelyard/qat/ptq/bias_correction.h"

#include <map>

#include "steelyard/framework/train/divergence.h"
#include "steelyard/qat/forms/weighted_layers.h"
#include "steelyard/qat/model/faults.h"
#include "steelyard/qat/model/quantizer_switches.h"

namespace steelyard::qat {
namespace {

// The mean of each channel, which is the last dimension.
std::vector<double> channel_means(const Tensor& values) {
  const Tensor host = values.to(Device{});
  const auto channels = static_cast<std::size_t>(host.dim(-1));
  std::vector<double> means(channels, 0.0);
  const auto span = host.span<float>();
  for (std::size_t i = 0; i < span.size(); ++i) means[i % channels] += static_cast<double>(span[i]);
  const double rows = static_cast<double>(span.size()) / static_cast<double>(channels);
  for (double& mean : means) mean /= rows;
  return means;
}

// How many layers have a bias, and what was added to it so far.
struct Correction {
  int layers = 0;
  std::vector<double> added{};
};

// Adds this layer's part of what the mean of all layers that have the bias lacks.
void add(const Tensor& bias, Correction& correction, const std::vector<double>& wanted,
         const std::vector<double>& given) {
  const Tensor host = bias.to(Device{}).clone();
  const auto span = host.span<float>();
  correction.added.resize(span.size(), 0.0);
  for (std::size_t c = 0; c < span.size(); ++c) {
    const double part = (correction.added[c] + wanted[c] - given[c]) / correction.layers;
    span[c] = static_cast<float>(static_cast<double>(span[c]) + part);
    correction.added[c] += part;
  }
  bias.copy_from(host);
}

// Lets the layers show what they have in front of the activation, until it is destroyed.
class Probes {
 public:
  using See = std::function<void(QuantizedLayer& layer, const Tensor& values)>;

  Probes(const std::vector<NamedLayer>& layers, const See& see) : layers_(layers) {
    for (const NamedLayer& entry : layers_) {
      entry.layer->set_probe(
          [see, layer = entry.layer](const Variable&, const QuantizedLayer::Values& values) {
            see(*layer, values());
          });
    }
  }
  ~Probes() {
    for (const NamedLayer& entry : layers_) entry.layer->set_probe({});
  }
  Probes(const Probes&) = delete;
  Probes& operator=(const Probes&) = delete;

 private:
  const std::vector<NamedLayer>& layers_;
};

void pass(Module& model, const Tensor& inputs, const QuantizerSwitches& switches) {
  ForwardContext context{.calibrating = true};
  model.forward(Variable(inputs), context).value();
  if (const auto fault = take_fault(switches.quantizers())) {
    throw TrainingDiverged("bias correction: " + *fault);
  }
}

}  // namespace

std::vector<std::string> layers_without_bias(Module& model) {
  std::vector<std::string> names;
  for (const NamedLayer& entry : layers_with_quantized_weights(model)) {
    if (!entry.layer->additive_bias().defined()) names.push_back(entry.name);
  }
  return names;
}

FloatMeans float_means(Module& model, const Tensor& inputs) {
  const NoGradGuard no_grad;
  const std::vector<NamedLayer> layers = layers_with_quantized_weights(model);
  FloatMeans means;
  QuantizerSwitches switches(model);
  switches.set({}, {});
  const Probes probes(layers, [&](QuantizedLayer& layer, const Tensor& values) {
    if (values.size() > 0) means.try_emplace(&layer, channel_means(values));
  });
  pass(model, inputs, switches);
  return means;
}

std::int64_t correct_biases(Module& model, const Tensor& inputs, FloatMeans wanted,
                            WeightScales scales) {
  const NoGradGuard no_grad;
  const std::vector<NamedLayer> layers = layers_with_quantized_weights(model);
  std::int64_t corrected = 0;
  std::map<const void*, Correction> corrections;  // by the bias's memory
  for (const NamedLayer& entry : layers) {
    const Tensor bias = entry.layer->additive_bias();
    if (bias.defined()) ++corrections[bias.raw()].layers;
  }
  QuantizerSwitches switches(model);
  switches.set({.quantizes = true}, {.quantizes = true});
  {
    const Probes probes(layers, [&](QuantizedLayer& layer, const Tensor& values) {
      const auto found = wanted.find(&layer);
      const Tensor bias = layer.additive_bias();
      if (found == wanted.end() || !bias.defined()) return;
      add(bias, corrections.at(bias.raw()), found->second, channel_means(values));
      wanted.erase(found);  // a layer that computes twice is corrected once
      ++corrected;
    });
    pass(model, inputs, switches);
  }
  if (scales == WeightScales::kFollow) {
    switches.set({.observes = true, .quantizes = true}, {.quantizes = true});
    pass(model, inputs, switches);
  }
  return corrected;
}

}  // namespace steelyard::qat
