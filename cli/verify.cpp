#include <fmt/core.h>

#include <memory>

#include "cli/verbs.h"
#include "export/graph_file.h"
#include "export/verify.h"
#include "kernels/backend.h"
#include "recipes/deployment.h"
#include "recipes/run_folder.h"

namespace steelyard::cli {
namespace {

struct Options {
  std::string run;
  std::string checkpoint = "last";
  std::string model;
  std::int64_t samples = 10'000;
  int threads = 0;
};

// The exported model where there is one, else the model as it would be exported.
deploy::Graph model_to_judge(const Options& options, Experiment& experiment) {
  const std::filesystem::path path =
      options.model.empty()
          ? export_path(std::filesystem::path(options.run) / "export", "safetensors")
          : std::filesystem::path(options.model);
  if (!options.model.empty() || std::filesystem::exists(path)) {
    fmt::print("integer model: {}\n", path.string());
    return deploy::load_graph(path);
  }
  fmt::print("integer model: as `steelyard export {}` would write it\n", options.run);
  return deployed_graph(experiment);
}

ExitCode verify_run(const Options& options) {
  if (options.threads > 0) kernels::set_num_threads(options.threads);
  const Registries registries;
  const LoadedRun run = load_run(options.run, options.checkpoint, registries);
  Experiment& experiment = *run.experiment;
  fmt::print("trained model: {}\n", run.checkpoint.string());
  const deploy::Interpreter interpreter(model_to_judge(options, experiment));
  const deploy::Verification result =
      deploy::verify(experiment.model(), interpreter, experiment.test(), options.samples,
                     experiment.recipe().data.batch_size);
  if (result.trained_top1) {
    fmt::print("top-1: trained {:.2f} %, integer {:.2f} %\n", *result.trained_top1,
               *result.deployed_top1);
  }
  fmt::print("{}", to_string(result));
  return result.first_mismatch() == nullptr ? kDone : kMismatch;
}

}  // namespace

Run add_verify(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "verify", "Prove that the deployed model computes what was trained, tensor by tensor");
  verb->add_option("run", options->run, "The run's folder")->required();
  verb->add_option("--checkpoint", options->checkpoint, "last, best or a file (default: last)");
  verb->add_option("--model", options->model,
                   "The integer model (default: RUN/export/model.safetensors, if it is there)");
  verb->add_option("--samples", options->samples, "Test samples to compare (default: 10000)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  add_threads(*verb, options->threads);
  return [options] { return verify_run(*options); };
}

}  // namespace steelyard::cli
