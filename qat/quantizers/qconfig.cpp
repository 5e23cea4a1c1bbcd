#include "steelyard/qat/quantizers/qconfig.h"

#include <stdexcept>

#include "steelyard/qat/quantizers/words.h"

namespace steelyard::qat {
namespace {

void validate_tensorrt(const QConfig& config) {
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

void validate_fixed_point(const QConfig& config, const std::string& profile) {
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument("the profile " + profile + " " + what);
  };
  if (!config.weights || !config.activations) {
    refuse("is for integers alone: expected weights and activations");
  }
  const observers::QScheme& weights = config.weights->scheme;
  const observers::QScheme& activations = config.activations->scheme;
  if (activations.dynamic) refuse("has no dynamic activations");
  if (activations.bits != 8) {
    refuse("has activations of 8 bits, got " + std::to_string(activations.bits));
  }
  if (!weights.symmetric) refuse("needs symmetric weights: they have no zero points");
  if (weights.granularity == kernels::Granularity::kGroup) {
    refuse("has weights with a scale per channel or per tensor, not per group");
  }
}

}  // namespace

kernels::Rounding rounding_of(Profile profile) {
  switch (profile) {
    case Profile::kTflm:
      return kernels::Rounding::kFixedTwice;
    case Profile::kTflmSingleRounding:
      return kernels::Rounding::kFixedOnce;
    case Profile::kOrt:
    case Profile::kTensorrt:
      break;
  }
  return kernels::Rounding::kFloat;
}

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

void validate_weights(const QuantizerConfig& config) {
  observers::validate(config.scheme);
  if (!config.scheme.is_signed) throw std::invalid_argument("weights need signed codes");
  if (config.scheme.wide()) {
    throw std::invalid_argument("weights have 2 to 8 bits, got " +
                                std::to_string(config.scheme.bits));
  }
  if (config.scheme.dynamic) throw std::invalid_argument("dynamic scales are for activations");
  observers::make_observer(config.observer, config.scheme, 1);
  if (config.learning == Learning::kClipping) {
    throw std::invalid_argument("learned clipping is for activations");
  }
}

void validate_activations(const QuantizerConfig& config) {
  observers::validate(config.scheme);
  const bool dynamic = config.scheme.dynamic;
  if (config.scheme.wide() && config.observer.type == "entropy") {
    throw std::invalid_argument(
        "the observer entropy is for at most 8 bits: its histogram has fewer bins than "
        "there are wider codes");
  }
  if (dynamic && config.learning != Learning::kNothing) {
    throw std::invalid_argument("dynamic activations learn nothing");
  }
  if (!dynamic && config.scheme.granularity != kernels::Granularity::kTensor) {
    throw std::invalid_argument(
        "activations need one scale per tensor: sums over channels of different scales "
        "are no integer products");
  }
  observers::make_observer(config.observer, config.scheme, 1);
}

void validate(const QConfig& config) {
  if (config.weights) validate_weights(*config.weights);
  if (!config.activations) return;
  if (config.activations->scheme.dynamic && !config.weights) {
    throw std::invalid_argument(
        "dynamic activations are operands of integer products: expected weights too");
  }
  validate_activations(*config.activations);
}

void validate(const QConfig& config, Profile profile) {
  validate(config);
  if (profile == Profile::kTensorrt) validate_tensorrt(config);
  if (is_fixed_point(profile)) validate_fixed_point(config, word_of(profile));
}

QuantizeConfig for_profile(QuantizeConfig config) {
  if (!is_fixed_point(config.profile)) return config;
  for (QuantizeGroup& group : config.groups) {
    if (auto& activations = group.config.activations) {
      activations->scheme.is_signed = true;
      activations->scheme.narrow_range = false;
      activations->rounding = rounding_of(config.profile);
    }
    if (auto& weights = group.config.weights) {
      if (weights->scheme.bits == 8) weights->scheme.narrow_range = true;
    }
  }
  return config;
}

}  // namespace steelyard::qat
