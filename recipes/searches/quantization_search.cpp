#include "steelyard/recipes/searches/quantization_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/qat/ptq/reestimate.h"
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
constexpr std::int64_t kTimedSteps = 3;
// Training has at most so many steps and at least so many in an epoch, where the samples suffice.
constexpr std::int64_t kMostSteps = 2000;
constexpr std::int64_t kStepsOfEpoch = 16;
constexpr std::int64_t kSmallestBatch = 4;
// Of the time that is left, what one training may take: another rate and layers in float may
// follow.
constexpr double kShareOfTraining = 0.3;
// AdamW moves each weight by about the rate in a step, whatever the gradient: what is nearly right
// is lost at rates with which a network learns from nothing. The next rate is so many times the
// last where that helped, else by so much less than the first.
constexpr double kFirstRate = 1e-5;
constexpr double kRateFactor = 4;
constexpr int kMostRates = 3;
constexpr int kWideBits = 16;

// How a step quantizes.
struct Variant {
  ObserverNames observers = {};
  bool equalizes = false;
  bool corrects_biases = false;
  bool learns_rounding = false;
  std::vector<std::string> exempt = {};  // modules in float, or with activations of 16 bits
  std::int64_t epochs = 0;               // 0: calibrates only
  double rate = 0;
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
    if (how_.score) float_score_ = score_of_float();
    for (const std::string& note : float_.notes()) how_.note(note);
    if (auto warning = input_warning(float_)) {
      how_.note(*warning + " (--mean, --std and --range say how images are normalized)");
    }
  }

  SearchResult run() {
    Variant best = calibrated();
    if (!stopped() && !reached()) best = trained(best);
    if (!stopped() && !reached()) best = less_quantized(best);
    if (!stopped() && !reached() && best.epochs == 0 && !best.exempt.empty()) {
      trained(best, state_.steps()[best_step()].name + "_");
    }
    return result();
  }

 private:
  static YamlNode without_export(YamlNode document) {
    remove_entry(document, "export");
    return document;
  }

  double score_of_float() {
    if (const auto known = state_.number("float.score")) return *known;
    how_.begins("scoring the float model");
    const double score = how_.score->of(found_.document.find("model")->find("onnx")->text);
    state_.set_number("float.score", score);
    return score;
  }

  // What a search depends on, so that another one in the folder is noticed.
  std::string key_of(const RunRecord& record) const {
    std::string key = record.data_digest + " " + std::to_string(how_.weight_bits) + " " +
                      std::to_string(how_.activation_bits) + " " + std::to_string(how_.widens) +
                      " " + format_number(how_.most_float) + " " +
                      (how_.score ? how_.score->name : "") + " " + to_yaml(found_.document);
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

  // Fine-tunes at several rates; `prefix` begins the names of the steps.
  Variant trained(const Variant& calibrated, const std::string& prefix = "") {
    Variant best = calibrated;
    double rate = kFirstRate;
    for (int i = 1; i <= kMostRates && !stopped() && !reached(); ++i) {
      const std::string name = prefix + "trained" + (i == 1 ? "" : "_" + std::to_string(i));
      Variant variant = calibrated;
      variant.learns_rounding = false;  // training moves the weights
      variant.rate = rate;
      variant.epochs = epochs_of(name, variant);
      if (variant.epochs == 0) break;
      try_out(name,
              "fine-tuned on the float model's outputs, " + std::to_string(variant.epochs) +
                  (variant.epochs == 1 ? " epoch" : " epochs") + " at the rate " +
                  format_number(rate),
              variant);
      const bool helped = is_best(name);
      if (helped) best = variant;
      if (!helped && i > 1) break;
      rate = helped && rate >= kFirstRate ? rate * kRateFactor : rate / kRateFactor;
    }
    return best;
  }

  // How many epochs of training fit into the time that is left, as an earlier start decided; 0 with
  // a reason where none does.
  std::int64_t epochs_of(const std::string& step, const Variant& variant) {
    const std::string key = step + ".epochs";
    if (const auto decided = state_.number(key)) return static_cast<std::int64_t>(*decided);
    const double epoch = seconds_of_epoch(variant);
    const std::int64_t steps = std::max<std::int64_t>(1, float_.train().size() / training_batch());
    const std::int64_t most = std::max<std::int64_t>(1, kMostSteps / steps);
    const auto epochs = static_cast<std::int64_t>(kShareOfTraining * seconds_left() / epoch);
    if (epochs < 1) {
      reasons_.push_back("no " + step + ": an epoch takes about " +
                         format_number(std::ceil(epoch / 60)) + " minutes (--minutes)");
      return 0;
    }
    state_.set_number(key, static_cast<double>(std::min(epochs, most)));
    return std::min(epochs, most);
  }

  double seconds_of_epoch(const Variant& variant) {
    const std::string key = "epoch.seconds";
    if (const auto known = state_.number(key)) return *known;
    how_.begins("timing a step of training");
    Variant one = variant;
    one.epochs = 1;
    Run run(recipe_of("timing", one), {.folder = step_folder("timing"), .known = known_data()},
            registries_);
    const StepTiming timing = run.time_steps(kTimedSteps);
    const double epoch = (timing.seconds + timing.data_seconds) *
                         static_cast<double>(batches_per_epoch(run.experiment().train(),
                                                               run.experiment().loader_options()));
    state_.set_number(key, epoch);
    return epoch;
  }

  // Leaves the modules in float, or gives those activations more bits, whose quantization moves the
  // outputs most.
  Variant less_quantized(const Variant& best) {
    Variant least = best;
    const std::vector<std::string> order = most_sensitive();
    for (std::size_t count = 1, tried = 0; tried < order.size(); count *= 2) {
      if (stopped() || reached() || seconds_left() < state_.steps().front().seconds) return least;
      tried = std::min(count, order.size());
      Variant variant = best;
      variant.epochs = 0;  // ranges first
      variant.exempt.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(tried));
      const std::string name = (how_.widens ? "wide_" : "float_") + std::to_string(tried);
      try_out(name,
              std::to_string(tried) + (tried == 1 ? " module" : " modules") +
                  (how_.widens ? " with activations of 16 bits" : " in float"),
              variant);
      if (is_best(name)) least = variant;
    }
    return least;
  }

  // Modules by what their quantization alone does to the outputs, the worst first: those that may
  // all be in float, or all where they get more bits.
  std::vector<std::string> most_sensitive() {
    how_.begins("measuring what each layer's quantization costs");
    SensitivityOptions options;
    options.bits = {how_.weight_bits};
    options.samples = 64;
    const Sensitivity measured = measure_sensitivity(step_folder(state_.steps()[best_step()].name),
                                                     registries_, options, [](auto, auto) {});
    std::vector<std::pair<double, const LayerSensitivity*>> costs;
    double macs = 0;
    for (const LayerSensitivity& layer : measured.layers) {
      double cost = 0;
      for (const auto& effects : {layer.weight_effects, layer.activation_effects}) {
        for (const QuantizationEffect& effect : effects) cost += effect.divergence;
      }
      macs += static_cast<double>(layer.macs);
      if (!layer.type.empty()) layers_.push_back(layer.name);
      if (layer.name != "(input)") costs.emplace_back(cost, &layer);
    }
    std::stable_sort(costs.begin(), costs.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::string> names;
    double exempt = 0;
    for (const auto& [cost, layer] : costs) {
      const auto more = static_cast<double>(layer->macs);
      if (!how_.widens && exempt + more > how_.most_float * macs) {
        skipped(*layer, macs);
        continue;
      }
      exempt += more;
      names.push_back(layer->name);
    }
    return names;
  }

  // Says which layer would be the first in float if more of the multiplications might be.
  void skipped(const LayerSensitivity& layer, double macs) {
    if (skips_) return;
    skips_ = true;
    reasons_.push_back(layer.name + " stays in integers: it has " +
                       format_number(std::ceil(100 * static_cast<double>(layer.macs) / macs)) +
                       " % of the multiplications, and " + format_number(100 * how_.most_float) +
                       " % at most may be in float (--most-float)");
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
    Run run(recipe_of(name, variant), {.folder = folder, .resume = trains, .known = known_data()},
            registries_);
    SearchStep step{.name = name, .what = what};
    if (trains) {
      static const std::atomic<bool> never = false;
      const RunResult result = run.train(how_.stop != nullptr ? *how_.stop : never, how_.watchers);
      if (result.interrupted) return;
    } else {
      run.calibrate();
    }
    measure(step, run.experiment(), folder);
    state_.set_number("norms",
                      static_cast<double>(qat::count_batch_norms(run.experiment().model())));
    if (trains) take_best_checkpoint(step, folder);
    step.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    state_.add(step);
    how_.done(step);
  }

  void measure(SearchStep& step, Experiment& experiment,
               const std::filesystem::path& folder) const {
    step.fidelity = fidelity_on(experiment, &Experiment::validation);
    const deploy::Graph graph = deployed_graph(experiment);
    step.costs = costs_of(graph);
    if (!how_.score) return;
    write_exports(graph, {"onnx"}, folder / "export",
                  {.onnx = {.profile = experiment.recipe().exports.profile}});
    step.score = how_.score->of(export_path(folder / "export", "onnx"));
  }

  // The best epoch's weights, where they are better than the last epoch's.
  void take_best_checkpoint(SearchStep& step, const std::filesystem::path& folder) const {
    if (!path_exists(folder / run_files::kBest)) return;
    const LoadedRun best = load_run(folder, "best", registries_);
    SearchStep other = step;
    measure(other, *best.experiment, folder);
    if (rank(other) <= rank(step)) return;
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
    if (!how_.widens && !variant.exempt.empty()) {
      set_entry(quantize, "ignore", yaml_list(variant.exempt));
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
    if (variant.epochs > 0) {
      const std::int64_t batch = training_batch();
      set_entry(*document.find("data"), "batch_size", whole(batch));
      set_entry(calibrate, "batches",
                whole(std::max<std::int64_t>(1, calibration_samples() / batch)));
      if (state_.number("norms").value_or(0) > 0) {
        // The samples are few, and may be others than those that the norms have seen.
        set_entry(document, "schedule",
                  yaml_table({{"freeze_bn", yaml_table({{"epoch", yaml_scalar("0")}})}}));
      }
      YamlNode& train = *document.find("train");
      set_entry(train, "epochs", whole(variant.epochs));
      set_entry(train, "optimizer",
                yaml_table({{"type", yaml_scalar("adamw")}, {"lr", number(variant.rate)}}));
      set_entry(train, "lr_schedule", yaml_table({{"type", yaml_scalar("cosine")}}));
      set_entry(train, "best", yaml_scalar("loss"));
    }
    set_entry(document, "calibrate", std::move(calibrate));
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
    YamlNode groups = yaml_list({});
    const auto add = [&](const std::vector<std::string>& targets, int bits) {
      YamlNode activations = quantizer(bits, variant.observers.activations);
      set_entry(activations, "symmetric", yaml_scalar("false"));
      groups.items.push_back(yaml_table({{"targets", yaml_list(targets)},
                                         {"weights", weights},
                                         {"activations", std::move(activations)}}));
    };
    if (!how_.widens || variant.exempt.empty()) {
      add(targets_, how_.activation_bits);
      return groups;
    }
    // The first group's activations are those of sums and joins that no group names.
    std::vector<std::string> others;
    for (const std::string& layer : layers_) {
      if (std::count(variant.exempt.begin(), variant.exempt.end(), layer) == 0) {
        others.push_back(layer);
      }
    }
    if (!others.empty()) add(others, how_.activation_bits);
    add(variant.exempt, kWideBits);
    return groups;
  }

  std::int64_t batch() const { return float_.loader_options().batch_size; }
  // As many samples as the other steps calibrate on.
  std::int64_t calibration_samples() const {
    return std::min(float_.train().size(), batch() * float_.default_calibration_batches());
  }
  std::int64_t training_batch() const {
    return std::min(batch(), std::max(kSmallestBatch, float_.train().size() / kStepsOfEpoch));
  }

  // --- what there is so far

  KnownData known_data() const { return float_.known_data(); }
  std::filesystem::path step_folder(const std::string& name) const {
    return how_.folder / "steps" / name;
  }
  bool few_bits() const { return how_.weight_bits < 8; }
  bool stopped() const { return how_.stop != nullptr && *how_.stop; }
  double seconds_left() const { return 60 * how_.minutes - state_.seconds(); }
  bool is_enough(const SearchStep& step) const {
    if (!how_.score) return how_.goal.reached(step.fidelity);
    return *step.score >= float_score_ - how_.score->most_loss / 100 * std::abs(float_score_);
  }
  // What is good enough first, then by the score or by how near to float.
  std::pair<bool, double> rank(const SearchStep& step) const {
    return {is_enough(step), step.score.value_or(step.fidelity.sqnr_db())};
  }
  std::size_t best_step() const {
    const auto& steps = state_.steps();
    const auto best =
        std::max_element(steps.begin(), steps.end(),
                         [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    return static_cast<std::size_t>(best - steps.begin());
  }
  bool is_best(const std::string& name) const {
    return !state_.steps().empty() && state_.steps()[best_step()].name == name;
  }
  bool reached() const { return !state_.steps().empty() && is_enough(state_.steps()[best_step()]); }

  SearchResult result() {
    SearchResult result{.interrupted = stopped(), .steps = state_.steps(), .reasons = reasons_};
    if (result.interrupted) return result;
    result.chosen = best_step();
    if (how_.score) result.float_score = float_score_;
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
  double float_score_ = 0;
  std::vector<std::string> layers_;  // with weights, once their sensitivity is measured
  std::vector<std::string> reasons_;
  bool skips_ = false;  // whether a reason names a module that may not be in float
};

}  // namespace

bool FidelityGoal::reached(const Fidelity& fidelity) const {
  return std::all_of(
      fidelity.outputs.begin(), fidelity.outputs.end(), [&](const OutputFidelity& output) {
        // Of fewer decisions one or two that differ say little.
        const double fewest = 200 / std::max(100 - agreement, 0.1);
        const bool tells = output.agreement && static_cast<double>(output.decisions) >= fewest;
        return tells ? *output.agreement >= agreement : output.sure_db >= sqnr_db;
      });
}

SearchResult search_quantization(const FoundRecipe& found, const QuantizationSearch& how,
                                 const Registries& registries) {
  return Search(found, how, registries).run();
}

}  // namespace steelyard
