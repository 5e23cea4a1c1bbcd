#include <fmt/core.h>

#include <memory>
#include <optional>

#include "cli/python.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/export/graph_file.h"
#include "steelyard/export/onnx.h"
#include "steelyard/export/onnx_runtime.h"
#include "steelyard/export/op_info.h"
#include "steelyard/export/saturation.h"
#include "steelyard/export/verify.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/evaluate.h"
#include "steelyard/framework/files.h"
#include "steelyard/framework/ops/strided.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"

namespace steelyard::cli {
namespace {

constexpr const char* kSaturationAdvice =
    "on x86 without VNNI, ONNX Runtime gives these outputs only with the session option "
    "session.x64quantprecision = \"1\", or if weights are trained with 7 bits (num_bits: 7 or "
    "export.reduce_range: true)";

struct Options {
  std::string run;
  std::string checkpoint = "last";
  std::string model;
  std::int64_t samples = 10'000;
  std::string python;
  int threads = 0;
};

// Whether `path` was exported from the checkpoint. Prints a message if not. Files of older versions
// do not tell.
bool is_of_checkpoint(const std::filesystem::path& path, const std::string& model_sha256,
                      const Options& options, const LoadedRun& run) {
  if (model_sha256.empty() || model_sha256 == run.model_sha256) return true;
  fmt::print("{} was exported from another checkpoint than {}: export again", shown(path),
             run.checkpoint.string());
  if (const auto own = checkpoint_of_digest(options.run, model_sha256)) {
    fmt::print(", or verify with --checkpoint {}", *own);
  }
  fmt::print("\n");
  return false;
}

// The exported model if there is one, else the model as it would be exported. Nothing if the export
// is of another checkpoint.
std::optional<deploy::Graph> model_to_judge(const Options& options, const LoadedRun& run) {
  const std::filesystem::path path =
      options.model.empty()
          ? export_path(std::filesystem::path(options.run) / "export", "safetensors")
          : std::filesystem::path(options.model);
  if (!options.model.empty() || path_exists(path)) {
    fmt::print("integer model: {}\n", shown(path));
    deploy::Graph graph = deploy::load_graph(path);
    if (!is_of_checkpoint(path, graph.model_sha256, options, run)) return std::nullopt;
    return graph;
  }
  fmt::print("integer model: as `steelyard export {}` would write it\n", shown(options.run));
  return deployed_graph(run);
}

double top1(const Tensor& outputs, const Dataset& data, std::int64_t samples) {
  const Tensor labels = first_samples(data, samples).targets;
  return 100.0 * static_cast<double>(count_correct(outputs, labels)) / static_cast<double>(samples);
}

// Whether ONNX Runtime must give the same codes, because it fuses everything to integers
// (docs/exports.md). Floats are rounded as each library likes.
bool onnx_is_exact(const Experiment& experiment, const deploy::Graph& graph) {
  bool exact = experiment.recipe().exports.profile == qat::Profile::kOrt;
  for (const deploy::Node& node : graph.nodes) {
    if (node.weights) exact &= node.weights->one_scale_per_channel() && node.weights->bits > 4;
    exact &= deploy::op_info(node.op).keeps_codes || graph.values[node.output].quantization;
  }
  return exact;
}

std::filesystem::path onnx_path(const Options& options) {
  const std::filesystem::path run = options.run, model = options.model;
  return export_path(options.model.empty() ? run / "export" : model.parent_path(), "onnx");
}

// Finds a Python for the ONNX file, if there is a file.
std::optional<deploy::OnnxRuntime> chosen_runtime(const Options& options) {
  if (options.python.empty() && !path_exists(onnx_path(options))) return std::nullopt;
  return runtime_in(options.python);
}

// Prints how ONNX Runtime's outputs compare with the integer model's.
deploy::OutputComparison compare_onnx(const Tensor& outputs, const Dataset& test,
                                      const deploy::Verification& result) {
  const bool text = target_kind(test.targets, test.classes) == TargetKind::kText;
  const bool frames = text && result.outputs.rank() == 3;  // each chooses a character
  const std::int64_t rows_of_sample = frames ? result.outputs.dim(1) : 1;
  const Shape as{result.samples * rows_of_sample,
                 outputs.size() / std::max<std::int64_t>(result.samples * rows_of_sample, 1)};
  const deploy::OutputComparison compared = deploy::compare_outputs(
      result.outputs.reshape(as), outputs.reshape(as), frames || result.trained_top1.has_value());
  if (frames) {
    fmt::print("the same character in {:.2f} % of the frames; ", compared.agreement);
  } else if (result.trained_top1) {
    Shape rows{result.samples, outputs.size() / result.samples};
    fmt::print("top-1 {:.2f} %, the same class for {:.2f} %; ",
               top1(outputs.reshape(rows), test, result.samples), compared.agreement);
  } else {
    fmt::print("close values for {:.2f} % of the samples; ", compared.agreement);
  }
  fmt::print("{} of {} outputs differ, by at most {}\n", compared.differing, compared.elements,
             compared.largest);
  return compared;
}

ExitCode judged(const deploy::OutputComparison& compared, const Experiment& experiment,
                const deploy::Graph& graph) {
  const bool holds =
      onnx_is_exact(experiment, graph) ? compared.differing == 0 : compared.agreement >= 99.9;
  return holds ? kDone : kMismatch;
}

// Runs RUN/export/model.onnx, if both the file and ONNX Runtime exist.
ExitCode verify_onnx(const Options& options, const std::optional<deploy::OnnxRuntime>& runtime,
                     const LoadedRun& run, const deploy::Graph& graph,
                     const deploy::Verification& result) {
  const std::filesystem::path path = onnx_path(options);
  if (!path_exists(path)) {
    fmt::print("ONNX: skipped, no {}\n", shown(path));
    return kDone;
  }
  if (!is_of_checkpoint(path, deploy::onnx_model_sha256(path), options, run)) return kMismatch;
  if (!runtime) {
    fmt::print("ONNX: skipped, {}\n", deploy::kNoOnnxRuntime);
    return kDone;
  }
  const Dataset& test = run.experiment->test();
  const auto outputs_of = [&](deploy::Session session) {
    return deploy::run_onnx(*runtime, path, result.inputs, session, onnx_ports(*run.experiment));
  };
  const Tensor outputs = outputs_of(deploy::Session::kExact);
  fmt::print("ONNX Runtime {}: ", runtime->version);
  const deploy::OutputComparison compared = compare_onnx(outputs, test, result);
  if (deploy::may_saturate(graph)) {
    fmt::print("its default session on this machine: ");
    compare_onnx(outputs_of(deploy::Session::kDefault), test, result);
    fmt::print("{}\n", kSaturationAdvice);
  }
  return judged(compared, *run.experiment, graph);
}

// The samples with each element twice along the dimensions that the graph's input leaves free.
Dataset enlarged(const Dataset& dataset, const deploy::Graph& graph) {
  Dataset large = load_samples(dataset);
  for (const auto& [axis, name] : graph.input_port.free) {
    Shape twice = large.inputs.shape();
    ops::Part part{.shape = twice, .strides = ops::row_major_strides(twice)};
    twice.at(static_cast<std::size_t>(axis) + 1) *= 2;
    part.shape.insert(part.shape.begin() + axis + 2, 2);
    part.strides.insert(part.strides.begin() + axis + 2, 0);
    large.inputs = ops::gathered("verify", large.inputs, part).reshape(twice);
  }
  return large;
}

// Where the ONNX file takes samples of any size: the same at twice the sizes.
ExitCode verify_larger(const Options& options, const std::optional<deploy::OnnxRuntime>& runtime,
                       const LoadedRun& run) {
  const std::filesystem::path path = onnx_path(options);
  if (!path_exists(path) || !deploy::onnx_has_free_sizes(path)) return kDone;
  const deploy::Graph graph = deployed_graph(run);
  if (graph.resized == nullptr) return kDone;
  constexpr std::int64_t kSamples = 16;
  Experiment& experiment = *run.experiment;
  const deploy::Interpreter interpreter(*graph.resized);
  const Dataset test = enlarged(
      first_samples(experiment.test(), std::min(kSamples, options.samples)), *graph.resized);
  const deploy::Verification result =
      deploy::verify(*experiment.deployed_model(), interpreter, test, kSamples, /*batch_size=*/1);
  fmt::print("at {}: {}", shape_string(test.sample_shape()), to_string(result));
  ExitCode onnx = kDone;
  if (runtime) {
    fmt::print("ONNX Runtime {} at that size: ", runtime->version);
    const Tensor outputs = deploy::run_onnx(*runtime, path, result.inputs, deploy::Session::kExact,
                                            onnx_ports(experiment));
    onnx = judged(compare_onnx(outputs, test, result), experiment, interpreter.graph());
  }
  return result.first_mismatch() == nullptr ? onnx : kMismatch;
}

ExitCode verify_run(const Options& options) {
  if (options.threads > 0) kernels::set_num_threads(options.threads);
  const auto runtime = chosen_runtime(options);
  const Registries registries;
  const LoadedRun run = load_run(options.run, options.checkpoint, registries, RunData::kTest);
  print_notes(run.notes);
  Experiment& experiment = *run.experiment;
  fmt::print("trained model: {}\n", shown(run.checkpoint));
  const std::optional<deploy::Graph> graph = model_to_judge(options, run);
  if (!graph) return kMismatch;
  const deploy::Interpreter interpreter(*graph);
  const deploy::Preprocessing& prepared = interpreter.graph().preprocessing;
  const Normalization trained_on = experiment.normalization();
  const bool same_inputs = prepared.dtype == experiment.test().dtype() &&
                           prepared.normalization.mean == trained_on.mean &&
                           prepared.normalization.stddev == trained_on.stddev;
  if (!same_inputs) fmt::print("the preprocessing differs from the run's\n");
  const deploy::Verification result =
      deploy::verify(*experiment.deployed_model(), interpreter, experiment.test(), options.samples,
                     experiment.recipe().data.loader.batch_size);
  if (result.trained_top1) {
    fmt::print("top-1: trained {:.2f} %, integer {:.2f} %\n", *result.trained_top1,
               *result.deployed_top1);
  }
  fmt::print("{}", to_string(result));
  print_input_codes(experiment);
  ExitCode onnx = verify_onnx(options, runtime, run, interpreter.graph(), result);
  if (onnx == kDone) onnx = verify_larger(options, runtime, run);
  return same_inputs && result.first_mismatch() == nullptr ? onnx : kMismatch;
}

}  // namespace

Verb add_verify(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "verify", "Compare the deployed model with the trained one, tensor by tensor");
  verb->add_option("run", options->run, "The run's folder")->required();
  verb->add_option("--checkpoint", options->checkpoint, "last, best or a file (default: last)");
  verb->add_option("--model", options->model,
                   "The integer model (default: RUN/export/model.safetensors, if it is there)");
  verb->add_option("--samples", options->samples, "Test samples to compare (default: 10000)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  add_python(*verb, options->python);
  add_threads(*verb, options->threads);
  return [options] { return verify_run(*options); };
}

}  // namespace steelyard::cli
