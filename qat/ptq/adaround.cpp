#include "steelyard/qat/ptq/adaround.h"

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/losses/losses.h"
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/ops/products/embedding.h"
#include "steelyard/framework/tensor/rng.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/qat/forms/weighted_layers.h"
#include "steelyard/qat/model/faults.h"
#include "steelyard/qat/model/quantizer_switches.h"
#include "steelyard/qat/quantizers/soft_rounding.h"

namespace steelyard::qat {
namespace {

// No parameter of a model gets a gradient until it is destroyed.
class FixedParameters {
 public:
  explicit FixedParameters(const Module& model) {
    for (const NamedParameter& p : model.named_parameters()) {
      if (!p.variable.requires_grad()) continue;
      trained_.push_back(p.variable);
      trained_.back().set_requires_grad(false);
    }
  }
  ~FixedParameters() {
    for (Variable& variable : trained_) variable.set_requires_grad(true);
  }
  FixedParameters(const FixedParameters&) = delete;
  FixedParameters& operator=(const FixedParameters&) = delete;

 private:
  std::vector<Variable> trained_;
};

// Some rows, which are samples.
Tensor rows_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  std::vector<TakenAxis> axes{{first, count, 1}};
  for (std::int64_t d = 1; d < x.rank(); ++d) axes.push_back({0, x.dim(d), 1});
  return slice(Variable(x), axes).value();
}
Tensor rows_of(const Tensor& x, const Tensor& indices) {
  Shape shape = x.shape();
  shape[0] = indices.size();
  const Variable table(x.reshape({x.dim(0), x.size() / x.dim(0)}));
  return embedding(indices, table).value().reshape(shape);
}

// A weight parameter before and after its rounding was learned.
struct Change {
  Tensor parameter, before, after;
};

class RoundingLearner {
 public:
  RoundingLearner(Module& model, const Tensor& inputs, const AdaRoundOptions& options)
      : model_(model), inputs_(inputs), options_(options), fixed_(model), switches_(model) {}

  std::vector<LearnedRounding> run() {
    std::vector<LearnedRounding> learned;
    std::set<const GradNode*> known;  // a weight of several layers is learned for the first one
    for (const NamedLayer& entry : in_order()) {
      const Variable& weight = entry.layer->weight();
      if (weight.value().size() == 0 || !known.insert(weight.node().get()).second) continue;
      learned.push_back(learn(entry, learned.size()));
    }
    return learned;
  }

 private:
  struct PassOver {};  // ends a pass after the layer that it is for

  // The layers that compute, in that order.
  std::vector<NamedLayer> in_order() {
    const NoGradGuard no_grad;
    std::vector<NamedLayer> order;
    std::vector<NamedLayer> layers = layers_with_quantized_weights(model_);
    for (const NamedLayer& entry : layers) {
      entry.layer->set_probe([&order, entry](const Variable&, const auto&) {
        const bool is_new = std::none_of(order.begin(), order.end(), [&](const NamedLayer& known) {
          return known.layer == entry.layer;
        });
        if (is_new) order.push_back(entry);
      });
    }
    pass(rows_of(inputs_, 0, 1));
    for (const NamedLayer& entry : layers) entry.layer->set_probe({});
    return order;
  }

  void pass(const Tensor& inputs) {
    ForwardContext evaluation;
    try {
      model_.forward(Variable(inputs), evaluation).value();
    } catch (const PassOver&) {
    }
    if (const auto fault = take_fault(switches_.quantizers())) {
      throw TrainingDiverged("rounding: " + *fault);
    }
  }

  // What `show` takes of the layer's passes over all samples.
  Tensor shown(QuantizedLayer& layer,
               const std::function<Tensor(const Variable& input,
                                          const QuantizedLayer::Values& values)>& show) {
    const NoGradGuard no_grad;
    std::vector<Variable> parts;
    layer.set_probe([&](const Variable& input, const QuantizedLayer::Values& values) {
      parts.emplace_back(show(input, values));
      throw PassOver();
    });
    for (std::int64_t first = 0; first < inputs_.dim(0); first += options_.batch_size) {
      pass(rows_of(inputs_, first, std::min(options_.batch_size, inputs_.dim(0) - first)));
    }
    layer.set_probe({});
    return concat(parts, 0).value();
  }

  LearnedRounding learn(const NamedLayer& entry, std::size_t index) {
    QuantizedLayer& layer = *entry.layer;
    switches_.set({}, {});
    for (const Change& change : changes_) change.parameter.copy_from(change.before);
    const Tensor wanted = shown(layer, [&](const Variable&, const QuantizedLayer::Values& values) {
      return apply_activation(Variable(values()), layer.activation()).value();
    });
    for (const Change& change : changes_) change.parameter.copy_from(change.after);
    switches_.set({.quantizes = true}, {.quantizes = true});
    std::optional<WeightCodes> nearest;
    const Tensor x = shown(layer, [&](const Variable& input, const QuantizedLayer::Values&) {
      if (!nearest) nearest = layer.evaluated_weights(input);
      return input.value();
    });
    const Samples samples{x, wanted};
    const Tensor weight = layer.deployed_weight();
    SoftRounding rounding(weight, *nearest, layer.weight_quantizer()->code_range());
    learn(layer, samples, rounding, index);

    const Tensor kept = nearest->codes.to(Device{}), codes = rounding.codes();
    const auto error_of = [&](const Tensor& of) {
      return error(layer, samples, Variable(rounding.values(of).to(weight.device())));
    };
    LearnedRounding found{.layer = entry.name,
                          .weights = weight.size(),
                          .nearest_error = error_of(kept),
                          .error = error_of(codes)};
    if (!(found.error < found.nearest_error)) {
      found.error = found.nearest_error;
      return found;
    }
    const Tensor before = layer.weight().value().clone();
    found.changed = layer.move_weights(kept, codes, rounding.values(codes));
    changes_.push_back({layer.weight().value(), before, layer.weight().value().clone()});
    return found;
  }

  // A layer's inputs in the quantized network, and its outputs in the float one.
  struct Samples {
    Tensor x, wanted;
  };

  void learn(QuantizedLayer& layer, const Samples& samples, const SoftRounding& rounding,
             std::size_t index) {
    const Variable& variable = rounding.variable();
    AdamW optimizer({{"rounding", variable}}, {.weight_decay = 0});
    Rng rng(options_.seed, index);
    const auto batch = std::min(options_.batch_size, samples.x.dim(0));
    const auto free = static_cast<double>(options_.iterations) * options_.warmup;
    for (std::int64_t i = 0; i < options_.iterations; ++i) {
      const Tensor chosen = Tensor::empty({batch}, DType::kI64);
      for (std::int64_t& row : chosen.span<std::int64_t>()) {
        row = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(samples.x.dim(0))));
      }
      const Tensor rows = chosen.to(samples.x.device());
      Variable loss = reconstruction_error(layer, rounding.weight(), rows_of(samples.x, rows),
                                           rows_of(samples.wanted, rows));
      if (static_cast<double>(i) >= free) {
        const double part = (static_cast<double>(i) - free) /
                            std::max(1.0, static_cast<double>(options_.iterations) - 1 - free);
        const double beta = options_.first_beta + (options_.last_beta - options_.first_beta) * part;
        loss = loss + options_.regularization * rounding.regularizer(beta);
      }
      Variable leaf = variable;
      leaf.clear_grad();
      loss.backward();
      optimizer.step(options_.learning_rate);
    }
  }

  double error(QuantizedLayer& layer, const Samples& samples, const Variable& weight) const {
    const NoGradGuard no_grad;
    const std::int64_t count = samples.x.dim(0);
    double sum = 0;
    for (std::int64_t first = 0; first < count; first += options_.batch_size) {
      const std::int64_t rows = std::min(options_.batch_size, count - first);
      const Variable part = reconstruction_error(layer, weight, rows_of(samples.x, first, rows),
                                                 rows_of(samples.wanted, first, rows));
      sum += part.value().item() * static_cast<double>(rows);
    }
    return sum / static_cast<double>(count * samples.wanted.dim(-1));
  }

  Module& model_;
  const Tensor& inputs_;
  const AdaRoundOptions& options_;
  FixedParameters fixed_;
  QuantizerSwitches switches_;
  std::vector<Change> changes_;
};

}  // namespace

Variable reconstruction_error(QuantizedLayer& layer, const Variable& weight, const Tensor& x,
                              const Tensor& wanted) {
  const Variable y = layer.float_output_with(Variable(x), weight);
  return mse_loss(y, wanted) * static_cast<double>(y.dim(-1));
}

std::vector<LearnedRounding> learn_rounding(Module& model, const Tensor& inputs,
                                            const AdaRoundOptions& options) {
  if (options.batch_size < 1) {
    throw std::invalid_argument("[learn_rounding] expected a batch_size of at least 1, got " +
                                std::to_string(options.batch_size));
  }
  return RoundingLearner(model, inputs, options).run();
}

}  // namespace steelyard::qat
