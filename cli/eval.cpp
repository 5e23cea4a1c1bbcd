#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"

namespace steelyard::cli {
namespace {

struct Options {
  std::string run;
  std::string checkpoint = "last";
  int threads = 0;
};

ExitCode evaluate_run(const Options& options) {
  if (options.threads > 0) kernels::set_num_threads(options.threads);
  const Registries registries;
  const LoadedRun run = load_run(options.run, options.checkpoint, registries, RunData::kTest);
  print_notes(run.notes);
  Experiment& experiment = *run.experiment;
  if (const auto difference = difference_from_plan(experiment)) print_note(*difference);
  const Metrics metrics = experiment.evaluate_test();
  fmt::print("{}: {} test samples, loss {:.4f}", shown(run.checkpoint), experiment.test().size(),
             metrics.loss);
  if (metrics.top1) fmt::print(", top-1 {:.2f} %", *metrics.top1);
  fmt::print("\n");
  if (!std::isfinite(metrics.loss)) {
    throw std::runtime_error(run.checkpoint.string() + ": the test loss is not finite");
  }
  return kDone;
}

}  // namespace

Verb add_eval(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("eval", "Loss and accuracy of a run on its test set");
  verb->add_option("run", options->run, "The run's folder")->required();
  verb->add_option("--checkpoint", options->checkpoint, "last, best or a file (default: last)");
  add_threads(*verb, options->threads);
  return [options] { return evaluate_run(*options); };
}

}  // namespace steelyard::cli
