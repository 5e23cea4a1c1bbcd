#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cli/as_ranks.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/divergence.h"
#include "steelyard/framework/replicas.h"
#include "steelyard/framework/sha256.h"
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

// What the result depends on. The number of threads decides the order of sums.
std::vector<Agreement> agreements(const LoadedRun& run) {
  return {{"program (sha256)", sha256_of_file("/proc/self/exe")},
          {"backend of products", kernels::backend_text()},
          {"number of threads", std::to_string(kernels::num_threads())},
          {"checkpoint (sha256)", sha256_of_file(run.checkpoint)},
          {"recipe (sha256)", sha256_of(resolved_yaml(run.experiment->recipe()))},
          {"number of test samples", std::to_string(run.experiment->test().size())}};
}

// Ranks share the batches; the first one prints.
ExitCode evaluate_as_rank(const Options& options, comm::Communicator& ranks) {
  const Registries registries;
  LoadedRun run;
  on_all_ranks(
      ranks, [&] { run = load_run(options.run, options.checkpoint, registries, RunData::kTest); });
  require_agreement(agreements(run), ranks);
  Experiment& experiment = *run.experiment;
  if (ranks.rank() == 0) {
    print_notes(run.notes);
    if (const auto difference = difference_from_plan(experiment)) print_note(*difference);
  }
  const Metrics metrics = experiment.evaluate_test(ranks);
  fmt::print("{}: {} test samples, loss {:.4f}", shown(run.checkpoint), experiment.test().size(),
             metrics.loss);
  if (metrics.top1) fmt::print(", top-1 {:.2f} %", *metrics.top1);
  fmt::print("\n");
  if (!std::isfinite(metrics.loss)) {
    throw TrainingDiverged(run.checkpoint.string() + ": the test loss is not finite");
  }
  return kDone;
}

ExitCode evaluate_run(const Options& options) {
  if (options.threads > 0) kernels::set_num_threads(options.threads);
  const comm::RankState state;
  return as_ranks("eval", state, [&](comm::Ranks& ranks) {
    return evaluate_as_rank(options, ranks.communicator());
  });
}

}  // namespace

Verb add_eval(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("eval", "Loss and accuracy of a run on its test set");
  verb->footer("Several processes, started by mpirun or srun, share the samples.");
  verb->add_option("run", options->run, "The run's folder")->required();
  verb->add_option("--checkpoint", options->checkpoint, "last, best or a file (default: last)");
  add_threads(*verb, options->threads);
  return [options] { return evaluate_run(*options); };
}

}  // namespace steelyard::cli
