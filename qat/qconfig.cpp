#include "steelyard/qat/qconfig.h"

#include <stdexcept>

namespace steelyard::qat {

QConfig default_w8a8() {
  QConfig config;
  config.weights = QuantizerConfig{{.bits = 8, .granularity = kernels::Granularity::kChannel},
                                   {.type = "min_max"}};
  config.activations =
      QuantizerConfig{{.bits = 8, .is_signed = false, .symmetric = false, .narrow_range = false},
                      {.type = "min_max"}};
  return config;
}

QuantizeConfig w8a8(std::vector<std::string> targets) {
  return {.groups = {{.targets = std::move(targets), .config = default_w8a8()}}, .ignore = {}};
}

void validate(const QConfig& config) {
  if (config.weights) {
    observers::validate(config.weights->scheme);
    if (!config.weights->scheme.is_signed) {
      throw std::invalid_argument("weights need signed codes");
    }
    if (config.weights->scheme.wide()) {
      throw std::invalid_argument("weights have 2 to 8 bits, got " +
                                  std::to_string(config.weights->scheme.bits));
    }
    if (config.weights->scheme.dynamic) {
      throw std::invalid_argument("dynamic scales are for activations");
    }
    observers::make_observer(config.weights->observer, config.weights->scheme, 1);
    if (config.weights->learning == Learning::kClipping) {
      throw std::invalid_argument("learned clipping is for activations");
    }
  }
  if (config.activations) {
    observers::validate(config.activations->scheme);
    const bool dynamic = config.activations->scheme.dynamic;
    if (config.activations->scheme.wide() && config.activations->observer.type == "entropy") {
      throw std::invalid_argument(
          "the observer entropy is for at most 8 bits: its histogram has fewer bins than "
          "there are wider codes");
    }
    if (dynamic && !config.weights) {
      throw std::invalid_argument(
          "dynamic activations are operands of integer products: expected weights too");
    }
    if (dynamic && config.activations->learning != Learning::kNothing) {
      throw std::invalid_argument("dynamic activations learn nothing");
    }
    if (!dynamic && config.activations->scheme.granularity != kernels::Granularity::kTensor) {
      throw std::invalid_argument(
          "activations need one scale per tensor: sums over channels of different scales "
          "are no integer products");
    }
    observers::make_observer(config.activations->observer, config.activations->scheme, 1);
  }
}

void validate(const QConfig& config, Profile profile) {
  validate(config);
  if (profile != Profile::kTensorrt) return;
  const auto require_symmetric = [](const std::optional<QuantizerConfig>& side, const char* name) {
    if (!side || side->scheme.symmetric) return;
    throw std::invalid_argument(std::string("the profile tensorrt needs symmetric ") + name +
                                ": it has no zero points");
  };
  if (config.activations && config.activations->scheme.dynamic) {
    throw std::invalid_argument("the profile tensorrt has no dynamic activations");
  }
  if (config.activations && config.activations->scheme.wide()) {
    throw std::invalid_argument("the profile tensorrt has activations of 8 bits, got " +
                                std::to_string(config.activations->scheme.bits));
  }
  require_symmetric(config.activations, "activations");
  require_symmetric(config.weights, "weights");
}

}  // namespace steelyard::qat
