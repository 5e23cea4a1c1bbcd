#include <fmt/core.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/as_ranks.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/data/dataset_digest.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/framework/train/shards/replicas.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/records/metrics_log.h"

namespace steelyard::cli {
namespace {

using Json = nlohmann::ordered_json;

struct EvalArguments {
  std::string run;
  std::string checkpoint = "last";
  std::string format = "text";
};

// What the result depends on. The number of threads decides the order of sums.
std::vector<Agreement> agreements(const LoadedRun& run, const Registries& registries) {
  return {{"program (sha256)", sha256_of_file("/proc/self/exe")},
          {"plugins (sha256)", registries.digest_of_plugins()},
          {"backend of products", kernels::backend_text()},
          {"number of threads", std::to_string(kernels::num_threads())},
          {"checkpoint (sha256)", sha256_of_file(run.checkpoint)},
          {"recipe (sha256)", sha256_of(resolved_yaml(run.experiment->recipe()))},
          {"test data (sha256)", digest_of(std::array{run.experiment->test()})}};
}

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
  Json json{{"checkpoint", checkpoint.string()}, {"samples", test.size()}};
  json.update(to_json(evaluation.metrics));
  const std::vector<ClassScores> scores = class_scores(evaluation.predictions, test);
  const std::vector<std::string>& names = test.names.classes;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::string name = i < names.size() ? names[i] : std::to_string(i);
    json["classes"].push_back(scores_json(scores[i], name));
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

// Ranks share the batches; the first one prints.
ExitCode evaluate_as_rank(const EvalArguments& options, const Registries& registries,
                          comm::Communicator& ranks) {
  LoadedRun run;
  on_all_ranks(
      ranks, [&] { run = load_run(options.run, options.checkpoint, registries, RunData::kTest); });
  if (ranks.size() > 1) require_agreement(agreements(run, registries), ranks);
  Experiment& experiment = *run.experiment;
  if (ranks.rank() == 0) {
    print_notes(run.notes);
    if (const auto difference = difference_from_plan(experiment)) print_note(*difference);
  }
  const Evaluation evaluation = experiment.test_predictions(ranks);
  const Metrics& metrics = evaluation.metrics;
  if (options.format == "json") {
    const Json json = to_json(run.checkpoint, experiment, evaluation);
    fmt::print("{}\n", printable_json(json.dump(2, ' ', false, Json::error_handler_t::replace)));
  } else {
    fmt::print("{}: {} test samples, loss {:.4f}{}\n", shown(run.checkpoint),
               experiment.test().size(), metrics.loss,
               metrics_text(without_certain_ones(metrics, experiment.test().classes)));
  }
  if (!std::isfinite(metrics.loss)) {
    const std::string where =
        first_non_finite(experiment.model(), experiment.test(), experiment.normalization(),
                         experiment.loader_options().batch_size);
    throw TrainingDiverged(run.checkpoint.string() + ": the test loss is not finite" +
                           (where.empty() ? "" : "; first non-finite tensor: " + where));
  }
  return kDone;
}

ExitCode evaluate_run(const EvalArguments& options, const Registries& registries) {
  const comm::RankState state;
  return as_ranks("eval", state, [&](comm::Ranks& ranks) {
    return evaluate_as_rank(options, registries, ranks.communicator());
  });
}

}  // namespace

Verb add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalArguments>();
  CLI::App* verb = app.add_subcommand("eval", "Loss and metrics of a run on its test set");
  verb->footer("Several processes, started by mpirun or srun, share the samples.");
  verb->add_option("run", options->run, "The run's folder")->required();
  verb->add_option("--checkpoint", options->checkpoint, "last, best or a file (default: last)");
  verb->add_option("--format", options->format,
                   "text, or json with the scores of every class and the confusion matrix "
                   "(default: text)")
      ->check(CLI::IsMember({"text", "json"}));
  add_threads(*verb);
  return [options](const Registries& registries) { return evaluate_run(*options, registries); };
}

}  // namespace steelyard::cli
