#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/export/c/c_program.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/qat/quantizers/words.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/device_costs.h"
#include "steelyard/recipes/runs/gguf_export.h"
#include "steelyard/recipes/runs/huggingface_export.h"
#include "steelyard/recipes/runs/loaded_run.h"

namespace steelyard::cli {
namespace {

struct ExportArguments {
  std::string run;
  std::string checkpoint = "last";
  std::vector<std::string> formats;
  std::string profile;
  std::string out;
  bool no_int4 = false;
  std::optional<std::int64_t> stream;
  std::string prefix;
};

// The folder of exports.
std::filesystem::path folder_of(const ExportArguments& options) {
  return options.out.empty() ? std::filesystem::path(options.run) / "export"
                             : std::filesystem::path(options.out);
}

// The stream of the recipe, with another number of frames, or none.
std::optional<deploy::StreamOptions> stream_of_files(const ExportArguments& options,
                                                     const ExportSpec& exports) {
  if (!options.stream) return exports.stream;
  if (!qat::is_fixed_point(exports.profile)) {
    throw InputError(options.run + ": --stream needs a run with export.profile tflm");
  }
  if (*options.stream == 0) return std::nullopt;
  deploy::StreamOptions stream = exports.stream.value_or(deploy::StreamOptions{});
  stream.frames = *options.stream;
  return stream;
}

// The recipe's limits, of calls of another length than those it was checked with before training.
void require_within_limits(const ExportArguments& options, const deploy::Graph& graph,
                           const std::optional<deploy::StreamOptions>& stream,
                           const std::optional<DeviceLimits>& limits) {
  if (!limits) return;
  const std::optional<DeviceCosts> costs = device_costs(graph, stream);
  const auto exceeded = costs ? exceeded_limits(*costs, *limits) : std::nullopt;
  if (exceeded) throw InputError(options.run + ": --stream: " + *exceeded);
}

// A language model that was trained for llama.cpp.
ExitCode export_gguf(const ExportArguments& options, const LoadedRun& run) {
  const std::string target = word_of(*run.experiment->recipe().exports.target);
  if (!options.formats.empty() || !options.profile.empty()) {
    throw InputError(options.run + ": was trained for " + target +
                     " (export.target): expected neither --format nor --profile");
  }
  create_folders(folder_of(options));
  const std::filesystem::path path = gguf_path(folder_of(options));
  write_gguf(run, path);
  fmt::print("{}: {}, {} bytes\n", shown(path), target, std::filesystem::file_size(path));
  return kDone;
}

// A language model of a folder of transformers.
ExitCode export_huggingface(const ExportArguments& options, const LoadedRun& run) {
  if (!options.formats.empty() || !options.profile.empty() || options.no_int4 ||
      options.stream.has_value()) {
    throw InputError(options.run +
                     ": is of a folder of transformers (model.huggingface) and becomes one: "
                     "expected none of --format, --profile, --no-int4 and --stream");
  }
  create_folders(folder_of(options));
  const HuggingfaceFiles files = write_huggingface(run, folder_of(options));
  for (const auto& path : files.paths) {
    fmt::print("{}: {} bytes\n", shown(path), std::filesystem::file_size(path));
  }
  if (files.rounded > 0) {
    print_note(fmt::format(
        "{} of the {} values that are no codes were trained in float32 and are rounded to the type "
        "that the source has for them",
        files.rounded, files.floats));
  }
  return kDone;
}

ExitCode export_run(const ExportArguments& options, const Registries& registries) {
  const LoadedRun run = load_run(options.run, options.checkpoint, registries, RunData::kNone);
  print_notes(run.notes);
  const Recipe& recipe = run.experiment->recipe();
  if (recipe.exports.target) return export_gguf(options, run);
  if (recipe.model.huggingface) return export_huggingface(options, run);
  if (recipe.model.gguf) {
    throw InputError(
        options.run +
        ": a language model was trained in float: a run with export.target that begins "
        "with its weights (init.checkpoint) can be exported");
  }
  const qat::Profile trained_for = run.experiment->recipe().exports.profile;
  if (!options.profile.empty() && options.profile != word_of(trained_for)) {
    throw InputError(options.run + ": was trained for the profile " + word_of(trained_for) +
                     ", not " + options.profile +
                     ": export.profile places the quantizers before training");
  }
  const std::vector<std::string> formats =
      options.formats.empty() ? deploy::default_format_names(trained_for) : options.formats;
  const bool fixed = qat::is_fixed_point(trained_for);
  if (!options.prefix.empty() && !fixed) {
    throw InputError(options.run + ": --prefix needs a run with export.profile tflm");
  }
  const deploy::Graph graph = deployed_graph(run);
  const deploy::ExportOptions how{.onnx = {.profile = trained_for, .pack_int4 = !options.no_int4},
                                  .tflite_pack_int4 = !options.no_int4,
                                  .stream = stream_of_files(options, recipe.exports),
                                  .c_prefix = options.prefix};
  if (options.stream) require_within_limits(options, graph, how.stream, recipe.exports.limits);
  for (const auto& path : write_exports(graph, formats, folder_of(options), how)) {
    fmt::print("{}: {} bytes\n", shown(path), std::filesystem::file_size(path));
  }
  if (const auto note = note_of_fixed_sizes(graph, formats, how.onnx)) print_note(*note);
  const bool in_c = std::find(formats.begin(), formats.end(), "c") != formats.end();
  if (in_c && !fixed && recipe.quantize) {
    print_note(
        "model.h has tables for a program that computes with floats; a program of integers alone "
        "needs a run with export.profile tflm (docs/microcontrollers.md)");
  }
  return kDone;
}

}  // namespace

Verb add_export(CLI::App& app) {
  auto options = std::make_shared<ExportArguments>();
  const std::vector<std::string> formats = deploy::format_names();
  const std::vector<std::string> profiles = all_words<qat::Profile>();
  CLI::App* verb = app.add_subcommand(
      "export",
      "Export a run as safetensors, ONNX, TFLite, or C: a header, or a program in fixed point; a "
      "language model trained for llama.cpp as GGUF, one of transformers as such a folder");
  verb->add_option("run", options->run, "The run's folder")->required();
  verb->add_option("--format", options->formats,
                   join(formats) + "; may be repeated (default: " +
                       join(deploy::default_format_names(), " and ") + "; of the profile tflm " +
                       join(deploy::default_format_names(qat::Profile::kTflm), " and ") + ")")
      ->check(CLI::IsMember(formats))
      ->allow_extra_args(false);
  verb->add_flag("--no-int4", options->no_int4,
                 "ONNX, TFLite: write weights of 4 bits or fewer as INT8 (opset 13 is enough; ONNX "
                 "Runtime then multiplies integers; Vela compiles the file)");
  verb->add_option("--profile", options->profile,
                   "Fail unless the run was trained for this profile: " + join(profiles))
      ->check(CLI::IsMember(profiles));
  verb->add_option("--stream", options->stream,
                   "C and TFLite, of the profile tflm: a call is given this many new frames of a "
                   "sequence and keeps what it needs of those before; 0: a whole window (default: "
                   "as the recipe's export.stream)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--prefix", options->prefix,
                   "C, of the profile tflm: what the names in the files begin with instead of "
                   "steelyard, for several models in one program")
      ->check([](const std::string& prefix) {
        return deploy::is_c_prefix(prefix)
                   ? std::string()
                   : "expected small letters, digits and _ after a letter, got " + prefix;
      });
  verb->add_option("--checkpoint", options->checkpoint, "last, best or a file (default: last)");
  verb->add_option("--out", options->out, "The folder (default: RUN/export)");
  add_threads(*verb);
  return [options](const Registries& registries) { return export_run(*options, registries); };
}

}  // namespace steelyard::cli
