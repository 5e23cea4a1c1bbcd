#include "steelyard/recipes/searches/sensitivity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "steelyard/framework/autograd/tape_trace.h"
#include "steelyard/framework/data/dataset_digest.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/shards/replicas.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/qat/model/measure.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/model/old_checkpoint.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/device_costs.h"
#include "steelyard/recipes/searches/effects.h"

namespace steelyard {
namespace {

// Tensors that are quantized together for one measurement.
struct Part {
  std::string layer;
  qat::QuantizedLayer* weights_of = nullptr;
  std::vector<qat::MeasuredTensor> tensors;  // switched on together; the first is reported
};

void require_widths(const std::vector<int>& bits) {
  if (bits.empty()) throw InputError("--bits: expected at least one width");
  std::set<int> seen;
  for (const int b : bits) {
    if (b < 2 || b > 8) {
      throw InputError("--bits: expected widths from 2 to 8, got " + std::to_string(b));
    }
    if (!seen.insert(b).second) {
      throw InputError("--bits: " + std::to_string(b) + " is given twice");
    }
  }
}

// What Sensitivity::activation_bits says.
std::optional<int> activation_bits(const Recipe& recipe) {
  std::set<int> widths;
  if (recipe.quantize) {
    for (const qat::QuantizeGroup& group : recipe.quantize->config.groups) {
      if (group.config.activations) widths.insert(group.config.activations->scheme.bits);
    }
  } else {
    widths.insert(8);
  }
  if (widths.empty()) return kFloatBits;
  if (widths.size() != 1) return std::nullopt;
  return *widths.begin();
}

// Names of what a model's quantizers keep.
std::set<std::string> quantizer_state(Module& model) {
  std::set<std::string> names;
  for (const qat::NamedQuantizer& entry : qat::named_quantizers(model)) {
    for (const NamedTensor& tensor : module_state(*entry.quantizer)) {
      names.insert(join_path(entry.name, tensor.name));
    }
  }
  return names;
}

// The tensors of the checkpoint of `run`, a quantized model, but for those of its quantizers, whose
// places are taken by the model's own.
std::vector<NamedTensor> weights_for(Module& model, Module& run,
                                     const std::vector<NamedTensor>& checkpoint) {
  const std::set<std::string> left_out = quantizer_state(run);
  const std::set<std::string> own = quantizer_state(model);
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& tensor : checkpoint) {
    if (!left_out.contains(tensor.name)) tensors.push_back(tensor);
  }
  for (const NamedTensor& tensor : module_state(model)) {
    if (own.contains(tensor.name)) tensors.push_back({tensor.name, tensor.tensor.clone()});
  }
  return tensors;
}

// The weights of each layer and the activations of each module, the model's input first.
std::vector<Part> parts_of(const std::vector<qat::MeasuredTensor>& tensors) {
  std::vector<Part> parts;
  for (const qat::MeasuredTensor& tensor : tensors) {
    const bool weights = tensor.weights_of != nullptr;
    const std::string owner =
        weights ? qat::module_of_quantizer(tensor.name) : qat::owner_of_quantizer(tensor.name);
    const auto found = std::find_if(parts.begin(), parts.end(), [&](const Part& part) {
      return part.layer == owner && (part.weights_of != nullptr) == weights;
    });
    if (found != parts.end()) {
      found->tensors.push_back(tensor);
    } else {
      parts.insert(owner == "(input)" ? parts.begin() : parts.end(),
                   {owner, tensor.weights_of, {tensor}});
    }
  }
  return parts;
}

// A network of one width, everything switched to float, with its calibrated quantizers.
class Network {
 public:
  Network(std::unique_ptr<Experiment> experiment, const Dataset& samples, std::int64_t batches)
      : experiment_(std::move(experiment)), samples_(samples) {
    const auto inputs = [this, batch = experiment_->plain_batches()](std::int64_t i) {
      const Tensor x = batch(i);
      samples_seen_ += x.dim(0);
      return x;
    };
    qat::calibrate(model(), batches, inputs, qat::CalibrationWeights::kFloat);
    for (const qat::NamedQuantizer& entry : qat::named_quantizers(model())) {
      entry.quantizer->set_quantizing(false);
    }
    for (const NamedModule& entry : model().named_modules()) {
      auto* layer = dynamic_cast<qat::QuantizedLayer*>(entry.module);
      if (layer == nullptr || layer->dynamic_input() == nullptr) continue;
      dynamic_inputs_ += (dynamic_inputs_.empty() ? "" : ", ") + entry.name;
      layer->drop_dynamic_input();  // they would be quantized with the weights
    }
    samples_seen_ = 0;
    parts_ = parts_of(qat::measure_tensors(model(), batches, inputs, 0));
  }

  Module& model() { return experiment_->model(); }
  const std::vector<Part>& parts() const { return parts_; }
  // The layers with dynamic inputs, which are not measured; "" if there are none.
  const std::string& dynamic_inputs() const { return dynamic_inputs_; }
  // The network that the parts were measured on.
  std::int64_t samples_seen() const { return samples_seen_; }

  Tensor outputs() {
    return outputs_of(model(), samples_, experiment_->normalization(),
                      experiment_->loader_options().batch_size);
  }

  Tensor outputs_with(const Part& part) {
    for (const auto& tensor : part.tensors) tensor.quantizer->set_quantizing(true);
    const Tensor result = outputs();
    for (const auto& tensor : part.tensors) tensor.quantizer->set_quantizing(false);
    return result;
  }

  Metrics metrics(const Tensor& outputs) const {
    const NoGradGuard no_grad;
    const Loss loss = plain_loss(experiment_->loss());
    Metrics metrics{.loss = compute_loss(loss, Variable(outputs), samples_.targets).value().item()};
    if (loss_info(loss).targets == TargetKind::kClass) {
      metrics.top1 = 100.0 * static_cast<double>(count_correct(outputs, samples_.targets)) /
                     static_cast<double>(samples_.size());
    }
    return metrics;
  }

  // Multiplications of one sample in each product, with its layer's path.
  std::vector<std::pair<std::string, std::int64_t>> macs() {
    const TapeTrace trace;
    ForwardContext context;
    const Tensor one =
        Tensor::zeros(experiment_->input().batch(1), DType::kF32, device_of(model()));
    const Variable output = model().forward(Variable(one, /*requires_grad=*/true), context);
    std::vector<std::pair<std::string, std::int64_t>> found;
    for (const TracedOperation& operation : trace.operations()) {
      const std::string name = operation.function->name();
      const bool transposed = name == "conv_transpose2d";  // weights [C, O/groups, KH, KW]
      if (name != "linear" && name != "conv2d" && !transposed) continue;
      const Shape& weight = operation.inputs.at(1).shape();
      const Shape& used = transposed ? operation.inputs.at(0).shape() : operation.output.shape();
      found.emplace_back(
          operation.module,
          shape_size(used) * (shape_size(weight) / std::max<std::int64_t>(1, weight[0])));
    }
    return found;
  }

 private:
  std::unique_ptr<Experiment> experiment_;
  const Dataset& samples_;
  std::vector<Part> parts_;
  std::string dynamic_inputs_;
  std::int64_t samples_seen_ = 0;
};

class Measurement {
 public:
  Measurement(const std::filesystem::path& folder, const Registries& registries,
              const SensitivityOptions& options, comm::Communicator& ranks)
      : registries_(registries),
        options_(options),
        ranks_(ranks),
        run_(load_run(folder, options.checkpoint, registries)),
        targets_(quantizable_types(run_.experiment->model(), registries.own_forms)) {
    require_widths(options.bits);
    const Experiment& experiment = *run_.experiment;
    if (experiment.recipe().model.is_language_model()) {
      throw InputError(folder.string() +
                       ": expected layers that integers can have, got a language model");
    }
    if (!experiment.recipe().quantize && targets_.empty()) {
      throw InputError(folder.string() + ": the model has no layer with weights to quantize");
    }
    const bool validates = experiment.validation().size() > 0;
    const Dataset& split = validates ? experiment.validation() : experiment.test();
    samples_ = spread_samples(split, options.samples);
    result_.checkpoint = run_.checkpoint;
    result_.notes = run_.notes;
    result_.split = validates ? "validation" : "test";
    result_.samples = samples_.size();
    result_.split_samples = split.size();
    result_.batches = std::min(options.batches,
                               batches_per_epoch(experiment.train(), experiment.loader_options()));
    result_.observers = options.observers;
    result_.bits = options.bits;
    result_.activation_bits = activation_bits(experiment.recipe());
  }

  Sensitivity run(const std::function<void(std::int64_t, std::int64_t)>& progress) {
    if (ranks_.size() > 1) require_agreement(agreements(), ranks_);
    std::int64_t done = 0;
    for (const int bits : options_.bits) {
      Network network(experiment_of_width(bits), samples_, result_.batches);
      const auto parts = static_cast<std::int64_t>(network.parts().size());
      if (parts == 0) throw SharedInputError(run_.checkpoint.string() + ": nothing is quantized");
      if (done == 0) begin(network);
      for (const Part& part : network.parts()) {
        add(network, part, bits);
        progress(++done, parts * static_cast<std::int64_t>(options_.bits.size()));
      }
    }
    share();
    return std::move(result_);
  }

 private:
  // A measurement's place in the result.
  struct Place {
    std::size_t layer;
    std::vector<QuantizationEffect> LayerSensitivity::*effects;
    std::size_t index;
  };

  std::vector<Agreement> agreements() const {
    std::string widths;
    for (const int bits : options_.bits) widths += std::to_string(bits) + " ";
    return {
        {"program (sha256)", sha256_of_file("/proc/self/exe")},
        {"plugins (sha256)", registries_.digest_of_plugins()},
        {"backend of products", kernels::backend_text()},
        {"number of threads", std::to_string(kernels::num_threads())},
        {"checkpoint (sha256)", sha256_of_file(run_.checkpoint)},
        {"list of widths", widths},
        {"training data (sha256)", run_.experiment->data_digest()},
        {"set of samples (sha256)", digest_of(std::array{samples_})},
        {"number of batches", std::to_string(result_.batches)},
        {"pair of observers", options_.observers.weights + " " + options_.observers.activations}};
  }

  QuantizationEffect& at(const Place& place) {
    return (result_.layers[place.layer].*place.effects)[place.index];
  }

  // Ranks take turns at the measurements; each becomes every rank's.
  bool is_own(std::size_t measurement) const {
    return static_cast<int>(measurement % static_cast<std::size_t>(ranks_.size())) == ranks_.rank();
  }
  void share() {
    std::string own;
    for (const Place& place : places_) {  // those of others too: every rank gives as much
      const EffectNumbers numbers = numbers_of(at(place));
      own.append(reinterpret_cast<const char*>(&numbers), sizeof numbers);
    }
    const std::vector<std::string> all = ranks_.gather_equal(own);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      EffectNumbers numbers;
      std::memcpy(&numbers, all[i % all.size()].data() + i * sizeof numbers, sizeof numbers);
      at(places_[i]) = effect_of(at(places_[i]).bits, numbers);
    }
  }

  std::unique_ptr<Experiment> experiment_of_width(int bits) {
    const Recipe& recipe = run_.experiment->recipe();
    const bool quantized = recipe.quantize.has_value();
    // A float run's recipe gets learned scales (mixed_precision_recipe()).
    const FloatDefaults as_trained{.targets = targets_, .narrow_range = false};
    const std::string text = measuring_recipe(
        recipe, groups_of_width(recipe, as_trained, bits, options_.observers, registries_),
        quantized ? "" : run_.checkpoint.string());
    auto experiment = std::make_unique<Experiment>(
        parse_recipe(text, "recipe of the measurement", {}, registries_), registries_,
        quantized ? InitialWeights::kLater : InitialWeights::kRecipe,
        run_.experiment->network_text(), run_.experiment->known_data());
    experiment->normalize_as(run_.experiment->normalization());
    if (quantized) {
      Module& model = experiment->model();
      Module& trained = run_.experiment->model();
      load_into(
          model,
          weights_for(model, trained, qat::load_checkpoint_of(trained, run_.checkpoint).tensors),
          run_.checkpoint.string());
    }
    return experiment;
  }

  // The float network, and a row for every module that has something to quantize.
  void begin(Network& network) {
    if (!network.dynamic_inputs().empty()) {
      result_.notes.push_back("inputs of " + network.dynamic_inputs() +
                              " are dynamic: they are not measured and stay in float here");
    }
    baseline_ = network.outputs();
    result_.baseline = network.metrics(baseline_);
    if (!std::isfinite(result_.baseline.loss)) {
      throw SharedInputError(run_.checkpoint.string() +
                             ": the loss of the float network is not finite");
    }
    const auto macs = network.macs();
    for (const Part& part : network.parts()) {
      LayerSensitivity& layer = result_.layers[row(part.layer)];
      if (part.weights_of == nullptr) {
        layer.activations = part.tensors[0].error->elements / network.samples_seen();
        continue;
      }
      layer.type = part.weights_of->type_name().substr(std::string("Qat").size());
      for (const qat::MeasuredTensor& tensor : part.tensors) {  // an LSTM has two
        const Tensor weight = tensor.weights_of->deployed_weight();
        layer.weights += weight.size();
        layer.scales += std::max(tensor.quantizer->channels(), weight.dim(0));
      }
      const observers::QScheme& scheme = part.tensors[0].quantizer->config().scheme;
      layer.affine = !scheme.symmetric;
      if (run_.experiment->recipe().exports.reduce_range) {
        layer.most_bits = most_bits_of_reduced(scheme.granularity);
      }
      const bool bias = part.weights_of->bias().defined() || part.weights_of->folds_norm();
      layer.biases = bias ? part.weights_of->deployed_weight().dim(0) : 0;
      for (const auto& [path, count] : macs) {
        // Of each use, and of the steps of an LSTM, whose recurrent product is a part of it.
        if (path == part.layer || path.starts_with(part.layer + ".")) layer.macs += count;
      }
    }
    if (options_.flash) {
      if (!qat::is_fixed_point(run_.experiment->recipe().exports.profile)) {
        throw SharedInputError(run_.checkpoint.string() +
                               ": a budget of flash needs a run with export.profile tflm");
      }
      result_.flash_beside_layers =
          flash_bytes_beside_layers(deployed_graph(run_), run_.experiment->recipe().exports.stream);
    }
    note_reduced_range();
    if (options_.check) on_all_ranks(ranks_, [&] { options_.check(result_); });
  }

  void note_reduced_range() {
    const std::vector<int>& bits = options_.bits;
    const int widest = *std::max_element(bits.begin(), bits.end());
    std::string names;
    for (const LayerSensitivity& layer : result_.layers) {
      if (layer.weights == 0 || layer.most_bits >= widest) continue;
      names += (names.empty() ? "" : ", ") + layer.name;
    }
    if (names.empty()) return;
    result_.notes.push_back("weights of " + names + " have at most 7 bits (export.reduce_range): " +
                            "their column of " + std::to_string(widest) + " bits is of 7");
  }

  // The layer's index.
  std::size_t row(const std::string& name) {
    for (std::size_t i = 0; i < result_.layers.size(); ++i) {
      if (result_.layers[i].name == name) return i;
    }
    result_.layers.push_back({.name = name});
    return result_.layers.size() - 1;
  }

  void add(Network& network, const Part& part, int bits) {
    const auto effects = part.weights_of != nullptr ? &LayerSensitivity::weight_effects
                                                    : &LayerSensitivity::activation_effects;
    const std::size_t layer = row(part.layer);
    if (part.weights_of != nullptr) bits = std::min(bits, result_.layers[layer].most_bits);
    const bool own = is_own(places_.size());
    places_.push_back({layer, effects, (result_.layers[layer].*effects).size()});
    (result_.layers[layer].*effects)
        .push_back(own ? measured(network, part, bits) : QuantizationEffect{.bits = bits});
  }

  QuantizationEffect measured(Network& network, const Part& part, int bits) const {
    const Tensor outputs = network.outputs_with(part);
    const Metrics metrics = network.metrics(outputs);
    qat::QuantizationError error = *part.tensors[0].error;
    if (part.weights_of != nullptr) {
      for (std::size_t i = 1; i < part.tensors.size(); ++i) error += *part.tensors[i].error;
    }
    QuantizationEffect effect{
        .bits = bits,
        .sqnr_db = error.sqnr_db(),
        .clipped = error.clipped_fraction(),
        .loss_increase = metrics.loss - result_.baseline.loss,
        .divergence = divergence(baseline_, outputs, metrics.top1.has_value())};
    if (!std::isfinite(effect.divergence)) {
      effect.loss_increase = effect.divergence;  // a NaN among logits would count as a class
    } else if (metrics.top1) {
      effect.top1_drop = *result_.baseline.top1 - *metrics.top1;
    }
    return effect;
  }

  const Registries& registries_;
  SensitivityOptions options_;
  comm::Communicator& ranks_;
  LoadedRun run_;
  std::vector<std::string> targets_;
  Dataset samples_;
  Tensor baseline_;
  Sensitivity result_;
  std::vector<Place> places_;  // of the measurements, in their order
};

}  // namespace

Sensitivity measure_sensitivity(const std::filesystem::path& run, const Registries& registries,
                                const SensitivityOptions& options,
                                const std::function<void(std::int64_t, std::int64_t)>& progress) {
  comm::Communicator alone;
  comm::Communicator& ranks = options.ranks != nullptr ? *options.ranks : alone;
  std::optional<Measurement> measurement;
  on_all_ranks(ranks, [&] { measurement.emplace(run, registries, options, ranks); });
  return measurement->run(progress);
}

}  // namespace steelyard
