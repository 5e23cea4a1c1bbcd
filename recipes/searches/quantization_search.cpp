#include "steelyard/recipes/searches/quantization_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <utility>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/qat/ptq/reestimate.h"
#include "steelyard/qat/quantizers/words.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/run.h"
#include "steelyard/recipes/searches/float_reference.h"
#include "steelyard/recipes/searches/input_check.h"
#include "steelyard/recipes/searches/layer_ranking.h"
#include "steelyard/recipes/searches/quantization_step.h"
#include "steelyard/recipes/searches/search_state.h"

namespace steelyard {
namespace {

constexpr std::int64_t kTimedSteps = 3;
constexpr double kShareOfSensitivity = 0.3;  // of the time that is left
constexpr std::int64_t kMostSteps = 2000;
// Of the time that is left, what one training may take: another rate and layers in float may
// follow.
constexpr double kShareOfTraining = 0.3;
// AdamW moves each weight by about the rate in a step, whatever the gradient: what is nearly right
// is lost at rates with which a network learns from nothing. The next rate is so many times the
// last where that helped, else by so much less than the first.
constexpr double kFirstRate = 1e-5;
constexpr double kRateFactor = 4;
constexpr int kMostRates = 3;
// Numbers of the state.
constexpr const char* kNorms = "norms";

std::string seconds_text(double seconds) {
  return format_number(std::ceil(std::max(0.0, seconds))) + " s";
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Search {
 public:
  Search(const FoundRecipe& found, const QuantizationSearch& how, const Registries& registries)
      : found_(found),
        how_(how),
        registries_(registries),
        float_(read_recipe(without_export(found.document), registries), registries,
               InitialWeights::kRecipe),
        state_(how.folder, key_of(float_.record()), how.overwrites) {
    common_.weight_bits = how.weight_bits;
    common_.activation_bits = how.activation_bits;
    common_.symmetric_activations =
        found.document.find("export")->find("profile")->text == word_of(qat::Profile::kTensorrt);
    common_.widens = how.widens;
    common_.targets = quantizable_types(float_.model(), registries.own_forms);
    common_.samples = float_.train().size();
    common_.batch = float_.loader_options().batch_size;
    common_.calibration_samples =
        std::min(common_.samples, common_.batch * float_.default_calibration_batches());
    // Its quantized form is exported one step after another.
    std::erase(common_.targets, "LSTM");
    if (common_.targets.empty()) {
      throw InputError(printable(found.document.find("model")->find("onnx")->text) +
                       ": the model has no layer with weights to quantize");
    }
    if (how_.score) float_score_ = score_of_float();
    for (const std::string& note : float_.notes()) how_.note(note);
    for (const std::string& warning : input_warnings(float_)) how_.note(warning);
    if (how_.whole) how_.begins("running the whole float file");
    reference_.emplace(float_, how_.whole, how_.note);
  }

  SearchResult run() {
    StepForm best = calibrated();
    if (!stopped() && !reached()) best = trained(best);
    if (!stopped() && !reached()) best = less_quantized(best);
    if (!stopped() && !reached() && best.epochs == 0 && !best.exempt.empty()) {
      trained(best, best_step().name + "_");
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
                      (how_.score ? how_.score->name : "") + (how_.whole ? " whole" : "") + " " +
                      to_yaml(found_.document);
    for (const auto& [name, digest] : record.sources) key += " " + name + " " + digest;
    return key;
  }

  // --- the steps

  StepForm calibrated() {
    StepForm best{.observers = {"min_max", "min_max"}};
    try_out("min_max", "ranges from the smallest to the largest value", best);
    improve(best, "histogram", "ranges with the least squared error", [](StepForm& variant) {
      variant.observers = {"mse", "histogram"};
    });
    improve(best, "percentile", "ranges without the outermost .01 % of activations",
            [](StepForm& variant) {
              variant.observers = {"mse", "percentile"};
            });
    improve(best, "wide_percentile", "ranges without the outermost .001 % of activations",
            [](StepForm& variant) {
              variant.observers = {"mse", "percentile"};
              variant.percentile = 99.999;
            });
    improve(best, "equalized", "weights scaled across layers",
            [](StepForm& variant) { variant.equalizes = true; });
    improve(best, "corrected", "biases corrected",
            [](StepForm& variant) { variant.corrects_biases = true; });
    if (common_.few_bits()) {
      improve(best, "rounded", "rounding of weights learned",
              [](StepForm& variant) { variant.learns_rounding = true; });
    }
    if (tried_.empty() && !stopped()) throw TrainingDiverged(*state_.failure("min_max"));
    return best;
  }

  // Tries a change of the best variant, and keeps it where it helps.
  template <typename Change>
  void improve(StepForm& best, const std::string& name, const std::string& what,
               const Change& change) {
    if (stopped()) return;
    if (!tried_.empty() && !has_time_for(name, tried_.back())) {
      return no_time(name, "the step before took " + seconds_text(tried_.back().seconds));
    }
    StepForm other = best;
    change(other);
    try_out(name, what, other);
    if (is_best(name)) best = other;
  }

  // Fine-tunes at several rates; `prefix` begins the names of the steps.
  StepForm trained(const StepForm& calibrated, const std::string& prefix = "") {
    StepForm best = calibrated;
    double rate = kFirstRate;
    for (int i = 1; i <= kMostRates && !stopped() && !reached(); ++i) {
      const std::string name = prefix + "trained" + (i == 1 ? "" : "_" + std::to_string(i));
      StepForm variant = calibrated;
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
  std::int64_t epochs_of(const std::string& step, const StepForm& variant) {
    const std::string key = step + ".epochs";
    if (const auto decided = state_.number(key)) return static_cast<std::int64_t>(*decided);
    if (seconds_left() <= 0) return no_time(step), 0;
    const double epoch = seconds_of_epoch(variant);
    const std::int64_t steps =
        std::max<std::int64_t>(1, common_.samples / common_.training_batch());
    const std::int64_t most = std::max<std::int64_t>(1, kMostSteps / steps);
    const auto epochs = static_cast<std::int64_t>(kShareOfTraining * seconds_left() / epoch);
    if (epochs < 1) return no_time(step, "an epoch takes about " + seconds_text(epoch)), 0;
    state_.set_number(key, static_cast<double>(std::min(epochs, most)));
    return std::min(epochs, most);
  }

  double seconds_of_epoch(const StepForm& variant) {
    const std::string key = "epoch.seconds";
    if (const auto known = state_.number(key)) return *known;
    how_.begins("timing a step of training");
    const auto begin = std::chrono::steady_clock::now();
    StepForm one = variant;
    one.epochs = 1;
    Run run(recipe_of("timing", one), {.folder = step_folder("timing"), .known = known_data()},
            registries_);
    const StepTiming timing = run.time_steps(kTimedSteps);
    const double epoch = (timing.seconds + timing.data_seconds) *
                         static_cast<double>(batches_per_epoch(run.experiment().train(),
                                                               run.experiment().loader_options()));
    state_.add_seconds(seconds_since(begin));
    state_.set_number(key, epoch);
    return epoch;
  }

  // Leaves the modules in float, or gives those activations more bits, whose quantization moves the
  // outputs most.
  StepForm less_quantized(const StepForm& best) {
    StepForm least = best;
    const std::vector<std::string> order = most_sensitive();
    for (std::size_t count = 1, tried = 0; tried < order.size(); count *= 2) {
      tried = std::min(count, order.size());
      const std::string name = (how_.widens ? "wide_" : "float_") + std::to_string(tried);
      if (stopped() || reached() || !has_time_for(name, tried_.front())) return least;
      StepForm variant = best;
      variant.epochs = 0;  // ranges first
      variant.exempt.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(tried));
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
    std::optional<LayerRanking> ranking = state_.ranking();
    if (!ranking) ranking = measured_ranking();
    common_.layers = std::move(ranking->layers);
    if (!ranking->skipped.empty() && !skips_) {
      skips_ = true;
      reasons_.push_back(ranking->skipped);
    }
    return std::move(ranking->order);
  }

  LayerRanking measured_ranking() {
    const std::string what = std::string(how_.widens ? "wide" : "float") + " modules";
    const double left = seconds_left();
    if (left <= 0) return no_time(what), LayerRanking{};
    how_.begins("measuring what each layer's quantization costs");
    const auto begin = std::chrono::steady_clock::now();
    LayerRanking ranking =
        rank_layers(step_folder(best_step().name), registries_,
                    {.bits = how_.weight_bits,
                     .most_float = how_.widens ? std::nullopt : std::optional(how_.most_float),
                     .seconds = kShareOfSensitivity * left,
                     .most_seconds = left,
                     .stop = how_.stop});
    state_.add_seconds(seconds_since(begin));
    if (ranking.slow_seconds) {
      no_time(what,
              "to measure what each costs takes about " + seconds_text(*ranking.slow_seconds));
    } else if (!stopped()) {
      state_.set_ranking(ranking);
    }
    return ranking;
  }

  // --- one step

  // Runs a variant in its folder and measures it, unless an earlier start did.
  void try_out(const std::string& name, const std::string& what, const StepForm& variant) {
    if (const SearchStep* known = state_.step(name)) {
      tried_.push_back(*known);
      return how_.done(*known);
    }
    if (const std::string* failure = state_.failure(name)) return tell_failure(name, *failure);
    how_.begins(what);
    const auto begin = std::chrono::steady_clock::now();
    SearchStep step{.name = name, .what = what};
    try {
      if (!run_step(step, variant)) return;
    } catch (const TrainingDiverged& error) {
      state_.add_failure(name, error.what(), seconds_since(begin));
      return tell_failure(name, error.what());
    }
    step.seconds = seconds_since(begin);
    state_.add(step);
    tried_.push_back(step);
    how_.done(step);
  }

  void tell_failure(const std::string& name, const std::string& what) {
    reasons_.push_back("no " + name + ": " + what);
    how_.note(name + " did not work: " + what);
  }

  // False where it was interrupted.
  bool run_step(SearchStep& step, const StepForm& variant) {
    const std::filesystem::path folder = step_folder(step.name);
    // A folder without its line in search.json is what a stopped search left.
    const bool trains = variant.epochs > 0;
    if (!trains) std::filesystem::remove_all(folder);
    Run run(recipe_of(step.name, variant),
            {.folder = folder, .resume = trains, .known = known_data()}, registries_);
    if (trains) {
      static const std::atomic<bool> never = false;
      const RunResult result = run.train(how_.stop != nullptr ? *how_.stop : never, how_.watchers);
      if (result.interrupted) return false;
    } else {
      run.calibrate();
    }
    measure(step, run.experiment(), folder);
    state_.set_number(kNorms,
                      static_cast<double>(qat::count_batch_norms(run.experiment().model())));
    if (trains) take_best_checkpoint(step, folder);
    return true;
  }

  void measure(SearchStep& step, Experiment& experiment, const std::filesystem::path& folder) {
    const deploy::Graph graph = deployed_graph(experiment);
    step.costs = costs_of(graph);
    if (how_.score || reference_->compares_whole()) write_onnx(graph, experiment, folder);
    step.fidelity = reference_->compare(experiment, &Experiment::validation, onnx_in(folder));
    if (how_.score) step.score = how_.score->of(onnx_in(folder));
  }

  // The best epoch's weights, where they are better than the last epoch's.
  void take_best_checkpoint(SearchStep& step, const std::filesystem::path& folder) {
    if (!path_exists(folder / run_files::kBest)) return;
    const LoadedRun best = load_run(folder, "best", registries_);
    SearchStep other = step;
    measure(other, *best.experiment, folder);
    if (rank(other) <= rank(step)) return;
    step = other;
    step.checkpoint = "best";
  }

  Recipe recipe_of(const std::string& name, const StepForm& form) const {
    StepRecipes steps = common_;
    steps.freezes_norms = state_.number(kNorms).value_or(0) > 0;
    return read_recipe(steps.recipe_of(found_.document, name, form), registries_);
  }

  static void write_onnx(const deploy::Graph& graph, const Experiment& experiment,
                         const std::filesystem::path& folder) {
    write_exports(graph, {"onnx"}, folder / "export",
                  {.onnx = {.profile = experiment.recipe().exports.profile}});
  }

  static std::filesystem::path onnx_in(const std::filesystem::path& folder) {
    return export_path(folder / "export", "onnx");
  }

  // --- what there is so far

  KnownData known_data() const { return float_.known_data(); }
  std::filesystem::path step_folder(const std::string& name) const {
    return how_.folder / "steps" / name;
  }
  void no_time(const std::string& what, const std::string& why = "") {
    reasons_.push_back("no " + what + ": " + (why.empty() ? "" : why + ", and ") +
                       seconds_text(seconds_left()) + " are left (--minutes)");
  }
  bool stopped() const { return how_.stop != nullptr && *how_.stop; }
  double seconds_left() const { return 60 * how_.minutes - state_.seconds(); }
  // What an earlier start has done is there anyway.
  bool has_time_for(const std::string& name, const SearchStep& like) const {
    return state_.step(name) != nullptr || state_.failure(name) != nullptr ||
           seconds_left() >= like.seconds;
  }
  bool is_enough(const SearchStep& step) const {
    if (!how_.score) return how_.goal.reached(step.fidelity);
    return *step.score >= float_score_ - how_.score->most_loss / 100 * std::abs(float_score_);
  }
  // What is good enough first, then by the score or by how near to float.
  std::pair<bool, double> rank(const SearchStep& step) const {
    return {is_enough(step), step.score.value_or(step.fidelity.sqnr_db())};
  }
  const SearchStep& best_step() const { return tried_[best_index()]; }
  std::size_t best_index() const {
    const auto best =
        std::max_element(tried_.begin(), tried_.end(),
                         [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    return static_cast<std::size_t>(best - tried_.begin());
  }
  bool is_best(const std::string& name) const {
    return !tried_.empty() && best_step().name == name;
  }
  bool reached() const { return !tried_.empty() && is_enough(best_step()); }

  SearchResult result() {
    SearchResult result{.interrupted = stopped(), .steps = tried_, .reasons = reasons_};
    if (result.interrupted) return result;
    result.chosen = best_index();
    result.enough = reached();
    result.whole = reference_->compares_whole();
    if (how_.score) result.float_score = float_score_;
    const SearchStep& chosen = result.steps[result.chosen];
    result.run = step_folder(chosen.name);
    const LoadedRun run = load_run(result.run, chosen.checkpoint, registries_);
    // Another checkpoint may have left its own.
    if (result.whole) write_onnx(deployed_graph(run), *run.experiment, result.run);
    result.test = reference_->compare(*run.experiment, &Experiment::test, onnx_in(result.run));
    for (const OutputFidelity& output : chosen.fidelity.outputs) {
      const std::string why = how_.goal.why_by_numbers(output);
      if (!how_.score && !why.empty()) result.reasons.push_back(why);
    }
    const auto samples = samples_of(reference_->samples(&Experiment::test));
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
  std::vector<SearchStep> tried_;  // in this order whether or not an earlier start did them
  StepRecipes common_;
  std::optional<FloatReference> reference_;
  double float_score_ = 0;
  std::vector<std::string> reasons_;
  bool skips_ = false;  // whether a reason names a module that may not be in float
};

}  // namespace

SearchResult search_quantization(const FoundRecipe& found, const QuantizationSearch& how,
                                 const Registries& registries) {
  try {
    return Search(found, how, registries).run();
  } catch (const std::exception&) {
    if (how.stop == nullptr || !*how.stop) throw;
    return {.interrupted = true};  // what failed was interrupted, too
  }
}

}  // namespace steelyard
