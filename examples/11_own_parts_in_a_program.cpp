// The parts of 11_own_parts.cpp in a program of their own: added to the registries that a run and
// whatever reads its folder get.

#include <fmt/core.h>

#include <filesystem>

#include "steelyard/export/verify.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/run.h"

using namespace steelyard;

void add_own_parts(Registries& registries);  // 11_own_parts.cpp

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: 11_own_parts_in_a_program RECIPE FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[2];
  std::filesystem::remove_all(folder);
  Registries registries;
  add_own_parts(registries);
  Run(argv[1], {.folder = folder, .overrides = {"train.epochs=2"}}, registries).train();
  Run run(argv[1], {.folder = folder, .resume = true}, registries);
  const Metrics metrics = run.train().final;

  const LoadedRun loaded = load_run(folder, "last", registries, RunData::kTest);
  const deploy::Interpreter interpreter(deployed_graph(loaded));
  Experiment& experiment = *loaded.experiment;
  const deploy::Verification verification =
      deploy::verify(experiment.model(), interpreter, experiment.test(), 512, 64);
  fmt::print("{}test{}\n", to_string(verification), metrics_text(metrics));
  const double worst = value_in(metrics, "worst_recall").value_or(0);
  return worst > 90 && verification.first_mismatch() == nullptr ? 0 : 1;
}
