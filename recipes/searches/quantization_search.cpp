#include "steelyard/recipes/searches/quantization_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/run.h"
#include "steelyard/recipes/searches/input_check.h"
#include "steelyard/recipes/searches/search_state.h"
#include "steelyard/recipes/searches/sensitivity.h"

namespace steelyard {
namespace {

constexpr std::int64_t kCorrectionSamples = 256;
constexpr std::int64_t kMostEpochs = 20;
constexpr std::int64_t kTimedSteps = 3;
// Of the time that is left, what training may take: the rest is for evaluation and export.
constexpr double kShareOfTraining = 0.7;
constexpr double kLearningRate = 2e-5;

// How a step quantizes.
struct Variant {
  ObserverNames observers = {};
  bool equalizes = false;
  bool corrects_biases = false;
  bool learns_rounding = false;
  std::vector<std::string> in_float = {};
  std::int64_t epochs = 0;  // 0: calibrates only
};

YamlNode number(double value) { return yaml_scalar(format_number(value)); }
YamlNode whole(std::int64_t value) { return yaml_scalar(std::to_string(value)); }

// Whether a module gives scores of classes: a Softmax, or a linear layer whose output is a vector.
bool gives_scores(const std::string& type, const Shape& shape) {
  return type == "Softmax" || type == "LogSoftmax" || (type == "Linear" && shape.size() == 1);
}

OutputSpan span_of(const std::string& name, std::int64_t first, const Shape& shape,
                   const std::string& type) {
  const std::int64_t classes = shape.empty() ? 1 : shape.back();
  return {name, first, shape_size(shape), gives_scores(type, shape) && classes > 1 ? classes : 0};
}

std::vector<OutputSpan> output_spans(const imports::GraphSpec& network) {
  const auto type_of = [&](const std::string& node) {
    const auto found = std::find_if(network.nodes.begin(), network.nodes.end(),
                                    [&](const imports::NodeSpec& n) { return n.name == node; });
    return found == network.nodes.end() ? std::string() : found->type;
  };
  if (network.output_parts.empty()) {
    const std::string& last = network.head.empty() ? network.nodes.back().type : network.head;
    return {span_of(network.output.name, 0, network.output_sample, last)};
  }
  std::vector<OutputSpan> spans;
  for (std::size_t i = 0; i < network.output_parts.size(); ++i) {
    const imports::PartSpec& part = network.output_parts[i];
    spans.push_back(span_of(part.port.name, part.first, part.shape,
                            type_of(network.nodes.back().inputs.at(i))));
  }
  return spans;
}

class Search {
 public:
  Search(const FoundRecipe& found, const QuantizationSearch& how, const Registries& registries)
      : found_(found),
        how_(how),
        registries_(registries),
        float_(read_recipe(without_export(found.document), registries), registries,
               InitialWeights::kRecipe),
        state_(how.folder, key_of(float_.record())) {
    targets_ = quantizable_types(float_.model(), registries.own_forms);
    // Its quantized form is exported one step after another.
    std::erase(targets_, "LSTM");
    if (targets_.empty()) {
      throw InputError(printable(found.document.find("model")->find("onnx")->text) +
                       ": the model has no layer with weights to quantize");
    }
    spans_ = output_spans(*float_.network());
    for (const std::string& note : float_.notes()) how_.note(note);
    if (auto warning = input_warning(float_)) {
      how_.note(*warning + " (--mean, --std and --range say how images are normalized)");
    }
  }

  SearchResult run() {
    Variant best = calibrated();
    if (!stopped() && !reached()) best = trained(best);
    if (!stopped() && !reached()) less_quantized(best);
    return result();
  }

 private:
  static YamlNode without_export(YamlNode document) {
    remove_entry(document, "export");
    return document;
  }

  // What a search depends on, so that another one in the folder is noticed.
  std::string key_of(const RunRecord& record) const {
    std::string key = record.data_digest + " " + std::to_string(how_.weight_bits) + " " +
                      std::to_string(how_.activation_bits) + " " + to_yaml(found_.document);
    for (const auto& [name, digest] : record.sources) key += " " + name + " " + digest;
    return key;
  }

  // --- the steps

  Variant calibrated() {
    Variant best{.observers = {"min_max", "min_max"}};
    try_out("min_max", "ranges from the smallest to the largest value", best);
    improve(best, "histogram", "ranges with the least squared error", [](Variant& variant) {
      variant.observers = {"mse", "histogram"};
    });
    improve(best, "percentile", "ranges without the outermost .01 % of activations",
            [](Variant& variant) {
              variant.observers = {"mse", "percentile"};
            });
    improve(best, "equalized", "weights scaled across layers",
            [](Variant& variant) { variant.equalizes = true; });
    improve(best, "corrected", "biases corrected",
            [](Variant& variant) { variant.corrects_biases = true; });
    if (few_bits()) {
      improve(best, "rounded", "rounding of weights learned",
              [](Variant& variant) { variant.learns_rounding = true; });
    }
    return best;
  }

  // Tries a change of the best variant, and keeps it where it helps.
  template <typename Change>
  void improve(Variant& best, const std::string& name, const std::string& what,
               const Change& change) {
    if (stopped() || seconds_left() < state_.steps().back().seconds) return;
    Variant other = best;
    change(other);
    const std::size_t before = best_step();
    try_out(name, what, other);
    if (best_step() != before) best = other;
  }

  Variant trained(const Variant& calibrated) {
    const std::string name = "trained";
    Variant variant = calibrated;
    variant.learns_rounding = false;  // training moves the weights
    variant.epochs = state_.number(name + ".epochs").value_or(0);
    if (variant.epochs == 0) {
      variant.epochs = epochs_in_time(variant);
      if (variant.epochs == 0) return calibrated;
      state_.set_number(name + ".epochs", variant.epochs);
    }
    try_out(name,
            "fine-tuned on the float model's outputs, " + std::to_string(variant.epochs) +
                (variant.epochs == 1 ? " epoch" : " epochs"),
            variant);
    return is_best(name) ? variant : calibrated;
  }

  // How many epochs of training fit into the time that is left; 0 with a reason where none does.
  std::int64_t epochs_in_time(const Variant& variant) {
    how_.begins("timing a step of training");
    Variant one = variant;
    one.epochs = 1;
    Run run(recipe_of("timing", one), {.folder = step_folder("timing"), .known = known()},
            registries_);
    const StepTiming timing = run.time_steps(kTimedSteps);
    const double epoch = (timing.seconds + timing.data_seconds) *
                         static_cast<double>(batches_per_epoch(run.experiment().train(),
                                                               run.experiment().loader_options()));
    const auto epochs =
        static_cast<std::int64_t>(std::floor(kShareOfTraining * seconds_left() / epoch));
    if (epochs < 1) {
      reasons_.push_back("not fine-tuned: an epoch takes about " +
                         format_number(std::ceil(epoch / 60)) + " minutes (--minutes)");
    }
    return std::min(epochs, kMostEpochs);
  }

  // Leaves the layers in float whose quantization moves the outputs most.
  void less_quantized(const Variant& best) {
    const std::vector<std::string> order = most_sensitive();
    for (std::size_t count = 1; count <= order.size(); count *= 2) {
      if (stopped() || reached() || seconds_left() < state_.steps().front().seconds) return;
      Variant variant = best;
      variant.epochs = 0;  // ranges first
      variant.in_float.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
      const std::string name = "float_" + std::to_string(count);
      try_out(name, std::to_string(count) + (count == 1 ? " layer" : " layers") + " in float",
              variant);
      if (state_.step(name)->costs.integer_share() < 1 - how_.most_float) {
        reasons_.push_back(
            "no further layers in float: only " +
            format_number(std::round(100 * state_.step(name)->costs.integer_share())) +
            " % of the multiplications would be on integers");
        return;
      }
    }
  }

  // Modules by what their quantization alone does to the outputs, the worst first.
  std::vector<std::string> most_sensitive() {
    how_.begins("measuring what each layer's quantization costs");
    SensitivityOptions options;
    options.bits = {how_.weight_bits};
    options.samples = 64;
    const Sensitivity measured = measure_sensitivity(step_folder(state_.steps()[best_step()].name),
                                                     registries_, options, [](auto, auto) {});
    std::vector<std::pair<double, std::string>> costs;
    for (const LayerSensitivity& layer : measured.layers) {
      double cost = 0;
      for (const auto& effects : {layer.weight_effects, layer.activation_effects}) {
        for (const QuantizationEffect& effect : effects) cost += effect.divergence;
      }
      if (layer.name != "(input)") costs.emplace_back(cost, layer.name);
    }
    std::stable_sort(costs.begin(), costs.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::string> names;
    for (auto& [cost, name] : costs) names.push_back(std::move(name));
    return names;
  }

  // --- one step

  // Runs a variant in its folder and measures it, unless an earlier start did.
  void try_out(const std::string& name, const std::string& what, const Variant& variant) {
    if (state_.step(name) != nullptr) return how_.done(*state_.step(name));
    how_.begins(what);
    const auto begin = std::chrono::steady_clock::now();
    const std::filesystem::path folder = step_folder(name);
    // A folder without its line in search.json is what a stopped search left.
    const bool trains = variant.epochs > 0;
    if (!trains) std::filesystem::remove_all(folder);
    Run run(recipe_of(name, variant), {.folder = folder, .resume = trains, .known = known()},
            registries_);
    SearchStep step{.name = name, .what = what};
    if (trains) {
      static const std::atomic<bool> never = false;
      const RunResult result = run.train(how_.stop != nullptr ? *how_.stop : never, how_.watchers);
      if (result.interrupted) return;
    } else {
      run.calibrate();
    }
    measure(step, run.experiment());
    if (trains) take_best_checkpoint(step, folder);
    step.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    state_.add(step);
    how_.done(step);
  }

  void measure(SearchStep& step, Experiment& experiment) const {
    step.fidelity = fidelity_on(experiment, &Experiment::validation);
    step.costs = costs_of(deployed_graph(experiment));
  }

  // The best epoch's weights, where they are better than the last epoch's.
  void take_best_checkpoint(SearchStep& step, const std::filesystem::path& folder) const {
    if (!path_exists(folder / run_files::kBest)) return;
    const LoadedRun best = load_run(folder, "best", registries_);
    SearchStep other = step;
    measure(other, *best.experiment);
    if (other.fidelity.sqnr_db() <= step.fidelity.sqnr_db()) return;
    step = other;
    step.checkpoint = "best";
  }

  Fidelity fidelity_on(Experiment& experiment, const Dataset& (Experiment::*split)() const) const {
    const Dataset& in_float = (float_.*split)();
    const Tensor outputs =
        outputs_of(*experiment.deployed_model(), in_float, experiment.normalization(),
                   experiment.loader_options().batch_size);
    return fidelity(float_.deployed_outputs(in_float.targets), outputs, spans_);
  }

  Recipe recipe_of(const std::string& name, const Variant& variant) const {
    YamlNode document = found_.document;
    set_entry(document, "name", yaml_scalar(document.find("name")->text + "-" + name));
    YamlNode quantize = yaml_table({{"groups", groups_of(variant)}});
    if (!variant.in_float.empty()) {
      std::vector<std::string> exact;
      for (const std::string& layer : variant.in_float) exact.push_back("re:" + layer);
      set_entry(quantize, "ignore", yaml_list(exact));
    }
    if (few_bits() && variant.epochs > 0) {
      set_entry(quantize, "algorithm", yaml_table({{"method", yaml_scalar("lsq")}}));
    }
    set_entry(document, "quantize", std::move(quantize));
    YamlNode calibrate = yaml_table({});
    if (variant.equalizes) set_entry(calibrate, "equalize", yaml_scalar("true"));
    if (variant.corrects_biases) {
      set_entry(calibrate, "bias_correction",
                whole(std::min(kCorrectionSamples, float_.train().size())));
    }
    if (variant.learns_rounding) {
      set_entry(
          calibrate, "adaround",
          yaml_table({{"samples", whole(std::min(kCorrectionSamples, float_.train().size()))}}));
    }
    if (!few_bits() && variant.epochs > 0) set_entry(calibrate, "freeze", yaml_scalar("true"));
    set_entry(document, "calibrate", std::move(calibrate));
    if (variant.epochs > 0) {
      YamlNode& train = *document.find("train");
      set_entry(train, "epochs", whole(variant.epochs));
      set_entry(train, "optimizer",
                yaml_table({{"type", yaml_scalar("adamw")}, {"lr", number(kLearningRate)}}));
      set_entry(train, "lr_schedule", yaml_table({{"type", yaml_scalar("cosine")}}));
      set_entry(train, "best", yaml_scalar("loss"));
    }
    return read_recipe(placed_at(std::move(document), "quantize"), registries_);
  }

  YamlNode groups_of(const Variant& variant) const {
    const auto quantizer = [](int bits, const std::string& observer) {
      YamlNode node = yaml_table({{"num_bits", whole(bits)}});
      set_entry(node, "observer", yaml_scalar(observer));
      return node;
    };
    YamlNode weights = quantizer(how_.weight_bits, variant.observers.weights);
    set_entry(weights, "symmetric", yaml_scalar("true"));
    set_entry(weights, "strategy", yaml_scalar("channel"));
    YamlNode activations = quantizer(how_.activation_bits, variant.observers.activations);
    set_entry(activations, "symmetric", yaml_scalar("false"));
    YamlNode groups = yaml_list({});
    groups.items.push_back(yaml_table({{"targets", yaml_list(targets_)},
                                       {"weights", std::move(weights)},
                                       {"activations", std::move(activations)}}));
    return groups;
  }

  // --- what there is so far

  KnownData known() const { return float_.known_data(); }
  std::filesystem::path step_folder(const std::string& name) const {
    return how_.folder / "steps" / name;
  }
  bool few_bits() const { return how_.weight_bits < 8; }
  bool stopped() const { return how_.stop != nullptr && *how_.stop; }
  double seconds_left() const { return 60 * how_.minutes - state_.seconds(); }
  std::size_t best_step() const {
    const auto& steps = state_.steps();
    const auto best = std::max_element(
        steps.begin(), steps.end(),
        [](const auto& a, const auto& b) { return a.fidelity.sqnr_db() < b.fidelity.sqnr_db(); });
    return static_cast<std::size_t>(best - steps.begin());
  }
  bool is_best(const std::string& name) const {
    return !state_.steps().empty() && state_.steps()[best_step()].name == name;
  }
  bool reached() const {
    return !state_.steps().empty() && how_.goal.reached(state_.steps()[best_step()].fidelity);
  }

  SearchResult result() {
    SearchResult result{.interrupted = stopped(), .steps = state_.steps(), .reasons = reasons_};
    if (result.interrupted) return result;
    result.chosen = best_step();
    const SearchStep& chosen = result.steps[result.chosen];
    result.run = step_folder(chosen.name);
    const LoadedRun run = load_run(result.run, chosen.checkpoint, registries_);
    result.test = fidelity_on(*run.experiment, &Experiment::test);
    const auto samples = samples_of(float_.test());
    for (const OutputFidelity& output : result.test.outputs) {
      result.worst.push_back(samples->name(output.worst_sample));
    }
    return result;
  }

  const FoundRecipe& found_;
  const QuantizationSearch& how_;
  const Registries& registries_;
  Experiment float_;
  SearchState state_;
  std::vector<std::string> targets_;
  std::vector<OutputSpan> spans_;
  std::vector<std::string> reasons_;
};

}  // namespace

bool FidelityGoal::reached(const Fidelity& fidelity) const {
  return std::all_of(
      fidelity.outputs.begin(), fidelity.outputs.end(), [&](const OutputFidelity& output) {
        return output.agreement ? *output.agreement >= agreement : output.sqnr_db >= sqnr_db;
      });
}

SearchResult search_quantization(const FoundRecipe& found, const QuantizationSearch& how,
                                 const Registries& registries) {
  return Search(found, how, registries).run();
}

}  // namespace steelyard
