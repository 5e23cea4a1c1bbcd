#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/as_ranks.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/shards/replicas.h"
#include "steelyard/observers/registry.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/language/yaml_document.h"
#include "steelyard/recipes/searches/mixed_precision.h"

namespace steelyard::cli {
namespace {

using Json = nlohmann::ordered_json;
using Unit = WidthBudget::Unit;

struct SensitivityArguments {
  std::string run;
  SensitivityOptions measure;
  bool json = false;
  double budget_bits = 0;
  std::int64_t budget_bytes = 0;
  std::int64_t budget_flash = 0;
  std::int64_t budget_bitops = 0;
  std::optional<Unit> unit;
  std::optional<int> activation_bits;
  std::vector<std::string> overrides;
  std::string out;
};

WidthBudget budget_of(const SensitivityArguments& options) {
  switch (*options.unit) {
    case Unit::kBitsPerWeight:
      return {*options.unit, options.budget_bits};
    case Unit::kBytes:
      return {*options.unit, static_cast<double>(options.budget_bytes)};
    case Unit::kFlashBytes:
      return {*options.unit, static_cast<double>(options.budget_flash)};
    case Unit::kBitOperations:
      return {*options.unit, static_cast<double>(options.budget_bitops)};
  }
  return {};
}

std::string decibels(const std::optional<double>& sqnr) {
  if (!sqnr) return "-";
  return std::isinf(*sqnr) ? "exact" : fmt::format("{:.1f}", *sqnr);
}

std::string change(const QuantizationEffect& effect) {
  if (!std::isfinite(effect.divergence)) return "NaN";
  return effect.top1_drop ? fmt::format("{:+.2f}", 0 - *effect.top1_drop)
                          : fmt::format("{:+.2g}", effect.loss_increase);
}

// One table: a row for each layer, two columns for each width.
void print_effects(const Sensitivity& all, const char* title,
                   std::vector<QuantizationEffect> LayerSensitivity::*effects) {
  const auto has_effects = [&](const LayerSensitivity& layer) { return !(layer.*effects).empty(); };
  if (std::none_of(all.layers.begin(), all.layers.end(), has_effects)) return;
  const bool classes = all.baseline.top1.has_value();
  std::size_t width = std::string_view(title).size();
  for (const LayerSensitivity& layer : all.layers) width = std::max(width, layer.name.size());
  fmt::print("\n{:<{}}           ", title, width);
  for (const int bits : all.bits) fmt::print("  {:>15}", fmt::format("{} bits", bits));
  fmt::print("\n{:<{}}   elements", "", width);
  for (std::size_t i = 0; i < all.bits.size(); ++i) {
    fmt::print("  {:>7} {:>7}", "SQNR dB", classes ? "top-1" : "loss");
  }
  fmt::print("\n");
  for (const LayerSensitivity& layer : all.layers) {
    if (!has_effects(layer)) continue;
    const bool weights = effects == &LayerSensitivity::weight_effects;
    fmt::print("{:<{}}  {:>9}", layer.name, width,
               fmt::format("{}", weights ? layer.weights : layer.activations));
    for (const QuantizationEffect& effect : layer.*effects) {
      fmt::print("  {:>7} {:>7}", decibels(effect.sqnr_db), change(effect));
    }
    fmt::print("\n");
  }
}

// Whether one of the tables has a NaN.
bool broken(const Sensitivity& all) {
  const auto any = [](const std::vector<QuantizationEffect>& effects) {
    return std::any_of(effects.begin(), effects.end(), [](const QuantizationEffect& effect) {
      return !std::isfinite(effect.divergence);
    });
  };
  return std::any_of(all.layers.begin(), all.layers.end(), [&](const LayerSensitivity& layer) {
    return any(layer.weight_effects) || any(layer.activation_effects);
  });
}

void print_sensitivity(const Sensitivity& all) {
  const std::string samples =
      all.samples == all.split_samples ? "" : fmt::format(" of {}", all.split_samples);
  fmt::print("{}: {}{} {} samples; ranges of weights by {}, of activations by {} from {} batches\n",
             shown(all.checkpoint), all.samples, samples, all.split, all.observers.weights,
             all.observers.activations, all.batches);
  fmt::print("in float: loss {:.4f}", all.baseline.loss);
  if (all.baseline.top1) fmt::print(", top-1 {:.2f} %", *all.baseline.top1);
  fmt::print("\n");
  print_effects(all, "weights alone", &LayerSensitivity::weight_effects);
  print_effects(all, "activations alone", &LayerSensitivity::activation_effects);
  fmt::print("\n{}\n", all.baseline.top1
                           ? "top-1: change in percentage points when only this is quantized"
                           : "loss: its change when only this is quantized");
  if (broken(all)) fmt::print("NaN: outputs are not finite then\n");
}

Json to_json(const std::vector<QuantizationEffect>& effects) {
  Json list = Json::array();
  for (const QuantizationEffect& effect : effects) {
    Json json{{"bits", effect.bits}, {"sqnr_db", nullptr}};
    if (effect.sqnr_db && std::isfinite(*effect.sqnr_db)) json["sqnr_db"] = *effect.sqnr_db;
    json["clipped"] = effect.clipped;
    json["loss_increase"] = effect.loss_increase;
    if (effect.top1_drop) json["top1_drop"] = *effect.top1_drop;
    json["divergence"] = effect.divergence;
    list.push_back(json);
  }
  return list;
}

Json to_json(const Sensitivity& all) {
  Json baseline{{"loss", all.baseline.loss}};
  if (all.baseline.top1) baseline["top1"] = *all.baseline.top1;
  Json json{{"checkpoint", all.checkpoint.string()},
            {"split", all.split},
            {"samples", all.samples},
            {"batches", all.batches},
            {"observers",
             {{"weights", all.observers.weights}, {"activations", all.observers.activations}}},
            {"float", baseline},
            {"layers", Json::array()}};
  for (const LayerSensitivity& layer : all.layers) {
    json["layers"].push_back({{"name", layer.name},
                              {"weights", layer.weights},
                              {"activations", layer.activations},
                              {"macs", layer.macs},
                              {"weight", to_json(layer.weight_effects)},
                              {"activation", to_json(layer.activation_effects)}});
  }
  return json;
}

Json to_json(const WidthPlan& plan, const std::string& recipe) {
  Json json{{"recipe", recipe},
            {"bits_per_weight", plan.bits_per_weight},
            {"bytes", plan.bytes},
            {"flash_bytes", nullptr},
            {"bit_operations", nullptr},
            {"activation_bits", nullptr},
            {"divergence", plan.divergence},
            {"bits", Json::object()}};
  if (plan.flash_bytes) json["flash_bytes"] = *plan.flash_bytes;
  if (plan.bit_operations) json["bit_operations"] = *plan.bit_operations;
  if (plan.activation_bits) json["activation_bits"] = *plan.activation_bits;
  for (const ChosenWidth& layer : plan.layers) json["bits"][layer.layer] = layer.effect.bits;
  return json;
}

void print_plan(const WidthPlan& plan, const std::string& recipe) {
  fmt::print("\nchosen widths:");
  for (const ChosenWidth& layer : plan.layers) {
    fmt::print(" {} {}", layer.layer, layer.effect.bits);
  }
  fmt::print("\n{}\nrecipe: {}\n", to_string(plan), shown(recipe));
}

void show_progress(std::int64_t done, std::int64_t all) {
  if (isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r{} of {} measured{}", done, all, done == all ? "\r\033[K" : "");
  std::fflush(stderr);
}

// What --out holds already, of a large file the beginning.
std::string held_by(const std::filesystem::path& out) {
  if (!path_exists(out)) return "";
  const InputFile file(out);
  std::string text(std::min<std::uint64_t>(file.size(), kMaxYamlBytes + 1), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

[[noreturn]] void refuse_to_replace(const std::filesystem::path& out) {
  throw InputError(shown(out) +
                   ": holds something else than this recipe, and is not replaced: give another "
                   "--out, or remove it");
}

// Writes the recipe unless a file is there that holds something else, such as a recipe with edits.
void write_recipe(const std::filesystem::path& out, const std::string& recipe) {
  const std::string held = held_by(out);
  if (!held.empty() && held != recipe) refuse_to_replace(out);
  write_file_atomic(out, recipe);
}

// Checks before minutes of measuring.
void require_results(const SensitivityArguments& options, const Registries& registries) {
  require_writable("--out", options.out);
  const std::string held = held_by(options.out);
  if (!held.empty() && !held.starts_with(kWidthsTitle)) refuse_to_replace(options.out);
  require_float_start(recipe_of_run(options.run, registries));
}

// Chooses widths, writes the recipe and says what was chosen.
Json choose(const SensitivityArguments& options, const Sensitivity& measured,
            const Registries& registries) {
  const WidthPlan plan = choose_widths(measured, budget_of(options), options.activation_bits);
  const Recipe run = recipe_of_run(options.run, registries);
  const auto recipe_with = [&](const std::vector<std::string>& overrides) {
    return mixed_precision_recipe(run, measured, plan, overrides, registries);
  };
  std::string recipe = recipe_with({});  // written when an override is refused
  std::string refused;
  try {
    if (!options.overrides.empty()) recipe = recipe_with(options.overrides);
  } catch (const InputError& error) {
    refused = error.what();
  }
  write_recipe(options.out, recipe);
  if (!refused.empty()) throw InputError(options.out + ": written without --set: " + refused);
  if (!options.json) print_plan(plan, options.out);
  return to_json(plan, options.out);
}

void require_options_of_budget(const SensitivityArguments& options) {
  if (options.unit && options.out.empty()) {
    throw InputError("a budget needs --out, the recipe to write");
  }
  const bool of_budget =
      !options.out.empty() || !options.overrides.empty() || options.activation_bits;
  if (!options.unit && of_budget) {
    throw InputError(
        "--out, --set and --activation-bits need a budget: --budget-bits, --budget-bytes, "
        "--budget-flash or --budget-bitops");
  }
}

void print_and_choose(const SensitivityArguments& options, const Sensitivity& measured,
                      const Registries& registries) {
  print_notes(measured.notes);
  Json json = to_json(measured);
  const auto print_json = [&] {
    fmt::print("{}\n", printable_json(json.dump(2, ' ', false, Json::error_handler_t::replace)));
  };
  if (!options.json) print_sensitivity(measured);
  if (options.unit) {
    try {
      json["chosen"] = choose(options, measured, registries);
    } catch (const InputError&) {
      if (options.json) print_json();  // what took minutes to measure is not lost
      throw;
    }
  }
  if (options.json) print_json();
}

// Ranks share the measurements; the first one prints and writes.
ExitCode measure_as_rank(const SensitivityArguments& options, const Registries& registries,
                         comm::Communicator& ranks) {
  if (options.unit) on_first_rank(ranks, [&] { require_results(options, registries); });
  SensitivityOptions measure = options.measure;
  measure.ranks = &ranks;
  measure.flash = options.unit == Unit::kFlashBytes;
  if (options.unit) {
    // What would stop the choice after the measurement stops it now.
    measure.check = [&](const Sensitivity& layers) {
      const WidthPlan trial = choose_widths(layers, budget_of(options), options.activation_bits);
      const Recipe run = recipe_of_run(options.run, registries);
      static_cast<void>(mixed_precision_recipe(run, layers, trial, {}, registries));
    };
  }
  const Sensitivity measured = measure_sensitivity(options.run, registries, measure, show_progress);
  on_first_rank(ranks, [&] { print_and_choose(options, measured, registries); });
  return kDone;
}

ExitCode sensitivity(const SensitivityArguments& options, const Registries& registries) {
  const comm::RankState state;
  return as_ranks("sensitivity", state, [&](comm::Ranks& ranks) {
    on_all_ranks(ranks.communicator(), [&] { require_options_of_budget(options); });
    return measure_as_rank(options, registries, ranks.communicator());
  });
}

// CLI::PositiveNumber shows its bound, the largest double, with all its digits.
CLI::Validator positive_number() {
  return {[](const std::string& text) -> std::string {
            if (parse_number(text).value_or(0) > 0) return "";
            return "expected a number above 0, got " + quote_for_message(text);
          },
          "POSITIVE"};
}

void add_budgets(CLI::App& verb, const std::shared_ptr<SensitivityArguments>& options) {
  std::vector<CLI::Option*> budgets{
      verb.add_option("--budget-bits", options->budget_bits,
                      "Choose widths: at most this many bits a weight, as a mean")
          ->check(positive_number()),
      verb.add_option(
              "--budget-bytes", options->budget_bytes,
              "Choose widths: at most this many bytes of exported parameters of quantized layers")
          ->check(positive_number()),
      verb.add_option("--budget-flash", options->budget_flash,
                      "Choose widths: at most this many bytes of constants of the program in C, of "
                      "a run with export.profile tflm")
          ->check(positive_number()),
      verb.add_option("--budget-bitops", options->budget_bitops,
                      "Choose widths: at most this many bit operations a sample (multiplications * "
                      "bits of weights * bits of activations)")
          ->check(positive_number())};
  const Unit units[] = {Unit::kBitsPerWeight, Unit::kBytes, Unit::kFlashBytes,
                        Unit::kBitOperations};
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    budgets[i]->each([options, unit = units[i]](const std::string&) { options->unit = unit; });
    for (std::size_t j = 0; j < i; ++j) budgets[i]->excludes(budgets[j]);
  }
  verb.add_option(
          "--activation-bits", options->activation_bits,
          "With a budget: the width of all activations (default: as in the run; 8 for a float run)")
      ->check(CLI::Range(2, 8));
  verb.add_option("--out", options->out, "With a budget: the recipe to write");
  verb.add_option("--set", options->overrides,
                  "With a budget: override one value of that recipe: --set train.epochs=5")
      ->allow_extra_args(false);
}

}  // namespace

Verb add_sensitivity(CLI::App& app) {
  auto options = std::make_shared<SensitivityArguments>();
  CLI::App* verb = app.add_subcommand(
      "sensitivity",
      "Measure what quantizing each layer alone costs, at each width; with a budget, write a "
      "recipe with a width for each layer");
  verb->footer("Several processes, started by mpirun or srun, share the measurements.");
  verb->add_option("run", options->run, "The run's folder")->required();
  verb->add_option("--checkpoint", options->measure.checkpoint,
                   "last, best or a file (default: last)");
  verb->add_option("--bits", options->measure.bits,
                   "The widths, from 2 to 8, separated by commas (default: 8,4,3,2)")
      ->delimiter(',');
  verb->add_option("--samples", options->measure.samples,
                   "Samples of the validation split, or of the test set where there is none "
                   "(default: 1000)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  verb->add_option("--batches", options->measure.batches,
                   "Training batches to find ranges on (default: 8)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  verb->add_option("--weight-observer", options->measure.observers.weights,
                   "How ranges of weights are found, as in recipes (default: mse)")
      ->check(CLI::IsMember(observers::observer_names()));
  verb->add_option("--activation-observer", options->measure.observers.activations,
                   "How ranges of activations are found (default: histogram)")
      ->check(CLI::IsMember(observers::observer_names()));
  verb->add_flag("--json", options->json, "Print JSON instead of tables");
  add_budgets(*verb, options);
  add_threads(*verb);
  return [options](const Registries& registries) { return sensitivity(*options, registries); };
}

}  // namespace steelyard::cli
