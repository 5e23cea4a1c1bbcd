#include "cli/run_output.h"

#include <fmt/core.h>

#include "cli/progress.h"
#include "kernels/backend.h"
#include "recipes/deployment.h"

namespace steelyard::cli {
namespace {

// "cuda:0"; where nobody chose the CPU, also why it is that.
std::string device_text(const Experiment& experiment, Device device) {
  std::string text = device_name(device);
  const bool fell_back = experiment.recipe().device == "auto" && device == Device{};
  if (fell_back) text += " (" + why_no_gpu() + ")";
  return text;
}

}  // namespace

void print_model(Experiment& experiment, Device device) {
  std::int64_t parameters = 0;
  std::int64_t trained = 0;
  for (const NamedParameter& p : experiment.model().named_parameters()) {
    parameters += p.variable.value().size();
    if (p.variable.requires_grad()) trained += p.variable.value().size();
  }
  fmt::print(
      "{}: {} training, {} validation, {} test samples; {} parameters; {} threads, {}, on {}\n",
      experiment.recipe().name, experiment.train().size(), experiment.validation().size(),
      experiment.test().size(), parameters, kernels::num_threads(),
      kernels::backend_name(kernels::default_backend()), device_text(experiment, device));
  if (trained < parameters) fmt::print("{} of the parameters are trained (train.only)\n", trained);
  if (experiment.plan()) fmt::print("\n{}\n", qat::to_string(*experiment.plan()));
  flush_progress();
}

void finish_run(const std::filesystem::path& folder, Experiment& experiment, const Metrics& final) {
  fmt::print("test loss {:.4f}", final.loss);
  if (final.top1) fmt::print("  top-1 {:.2f} %", *final.top1);
  fmt::print("\nrun folder: {}\n", folder.string());
  const std::vector<std::string>& formats = experiment.recipe().exports.formats;
  if (formats.empty()) return;
  deploy::Graph graph = deployed_graph(experiment);
  graph.model_sha256 = model_digest(folder / "last.safetensors");
  for (const auto& path : write_exports(graph, formats, folder / "export",
                                        {.profile = profile_of(experiment.recipe().exports)})) {
    fmt::print("exported: {}\n", path.string());
  }
}

}  // namespace steelyard::cli
