#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/metrics_log.h"

namespace steelyard::cli {
namespace {

using Json = nlohmann::ordered_json;

enum class Format { kText, kJson };

struct Options {
  std::string run;
  std::string checkpoint = "last";
  Format format = Format::kText;
  int threads = 0;
};

Json scores_json(const ClassScores& scores, const std::string& name) {
  Json json{{"name", name},
            {"samples", scores.samples},
            {"predicted", scores.predicted},
            {"precision", 100 * scores.precision()},
            {"recall", 100 * scores.recall()},
            {"f1", 100 * scores.f1()}};
  if (scores.average_precision) json["average_precision"] = 100 * *scores.average_precision;
  return json;
}

// The metrics, and what they are of each class.
Json to_json(const std::filesystem::path& checkpoint, const Experiment& experiment,
             const Evaluation& evaluation) {
  const Dataset& test = experiment.test();
  Json json{{"checkpoint", printable(checkpoint.string(), 4096)}, {"samples", test.size()}};
  json.update(to_json(evaluation.metrics));
  const std::vector<ClassScores> scores = class_scores(evaluation.predictions, test);
  const std::vector<std::string>& names = test.names.classes;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::string name = i < names.size() ? names[i] : std::to_string(i);
    json["classes"].push_back(scores_json(scores[i], printable(name, 4096)));
  }
  if (!evaluation.predictions.classes.defined()) return json;
  const std::vector<std::int64_t> counts = confusion_matrix(evaluation.predictions, test);
  for (std::size_t i = 0; i < counts.size(); i += scores.size()) {
    const auto row = counts.begin() + static_cast<std::ptrdiff_t>(i);
    json["confusion"].push_back(
        std::vector<std::int64_t>(row, row + static_cast<std::ptrdiff_t>(scores.size())));
  }
  return json;
}

ExitCode evaluate_run(const Options& options) {
  if (options.threads > 0) kernels::set_num_threads(options.threads);
  const Registries registries;
  const LoadedRun run = load_run(options.run, options.checkpoint, registries, RunData::kTest);
  print_notes(run.notes);
  Experiment& experiment = *run.experiment;
  if (const auto difference = difference_from_plan(experiment)) print_note(*difference);
  comm::Communicator alone;
  const Evaluation evaluation = experiment.test_predictions(alone);
  const Metrics& metrics = evaluation.metrics;
  if (options.format == Format::kJson) {
    fmt::print("{}\n", to_json(run.checkpoint, experiment, evaluation).dump(2));
  } else {
    fmt::print("{}: {} test samples, loss {:.4f}{}\n", shown(run.checkpoint),
               experiment.test().size(), metrics.loss, metrics_text(metrics));
  }
  if (!std::isfinite(metrics.loss)) {
    throw std::runtime_error(run.checkpoint.string() + ": the test loss is not finite");
  }
  return kDone;
}

}  // namespace

Verb add_eval(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("eval", "Loss and metrics of a run on its test set");
  verb->add_option("run", options->run, "The run's folder")->required();
  verb->add_option("--checkpoint", options->checkpoint, "last, best or a file (default: last)");
  verb->add_option("--format", options->format,
                   "text, or json with the scores of every class and the confusion matrix "
                   "(default: text)")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, Format>{{"text", Format::kText}, {"json", Format::kJson}}));
  add_threads(*verb, options->threads);
  return [options] { return evaluate_run(*options); };
}

}  // namespace steelyard::cli
