#include <fmt/core.h>

#include <memory>

#include "cli/run_output.h"
#include "cli/verbs.h"
#include "framework/error.h"
#include "recipes/deployment.h"
#include "recipes/run_folder.h"

namespace steelyard::cli {
namespace {

struct Options {
  std::string run;
  std::string checkpoint = "last";
  std::vector<std::string> formats;
  std::string profile;
  std::string out;
  bool no_int4 = false;
};

ExitCode export_run(const Options& options) {
  const Registries registries;
  const LoadedRun run = load_run(options.run, options.checkpoint, registries, RunData::kNone);
  print_notes(run.notes);
  const std::string& trained_for = run.experiment->recipe().exports.profile;
  if (!options.profile.empty() && options.profile != trained_for) {
    throw InputError(options.run + ": was trained for the profile " + trained_for + ", not " +
                     options.profile + ": its quantizers are placed as export.profile says");
  }
  const deploy::Graph graph = deployed_graph(run);
  const std::filesystem::path folder = options.out.empty()
                                           ? std::filesystem::path(options.run) / "export"
                                           : std::filesystem::path(options.out);
  const deploy::OnnxOptions onnx{.profile = profile_of(run.experiment->recipe().exports),
                                 .pack_int4 = !options.no_int4};
  for (const auto& path : write_exports(graph, options.formats, folder, onnx)) {
    fmt::print("{}: {} bytes\n", path.string(), std::filesystem::file_size(path));
  }
  return kDone;
}

}  // namespace

Run add_export(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("export", "Write a run's model in forms that others load");
  verb->add_option("run", options->run, "The run's folder")->required();
  verb->add_option("--format", options->formats,
                   "safetensors, onnx; may be repeated (default: all that this build has)")
      ->check(CLI::IsMember({"safetensors", "onnx"}))
      ->allow_extra_args(false);
  verb->add_flag(
      "--no-int4", options->no_int4,
      "In ONNX, weights of 4 bits or fewer as INT8: opset 13, and ONNX Runtime multiplies "
      "integers");
  verb->add_option("--profile", options->profile,
                   "Fails unless the run was trained for it: ort, tensorrt")
      ->check(CLI::IsMember({"ort", "tensorrt"}));
  verb->add_option("--checkpoint", options->checkpoint, "last, best or a file (default: last)");
  verb->add_option("--out", options->out, "The folder (default: RUN/export)");
  return [options] {
    if (options->formats.empty()) options->formats = export_formats();
    return export_run(*options);
  };
}

}  // namespace steelyard::cli
