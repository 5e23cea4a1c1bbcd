#include <fmt/core.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>

#include "cli/python.h"
#include "cli/run_output.h"
#include "cli/usage.h"
#include "cli/verbs.h"
#include "cli/verify.h"
#include "steelyard/export/onnx/onnx.h"
#include "steelyard/export/onnx/onnx_runtime.h"
#include "steelyard/export/output_map.h"
#include "steelyard/export/saturation.h"
#include "steelyard/export/verify.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/gguf_export.h"
#include "steelyard/recipes/runs/huggingface_export.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/op_info.h"

namespace steelyard::cli {
namespace {

constexpr const char* kSaturationAdvice =
    "on x86 without VNNI, ONNX Runtime gives these outputs only with the session option "
    "session.x64quantprecision = \"1\", or if weights have 7 bits: ";

// Whether `path` was exported from the checkpoint. Prints a message if not. Files of older versions
// do not tell.
bool is_of_checkpoint(const std::filesystem::path& path, const std::string& model_sha256,
                      const VerifyArguments& options, const LoadedRun& run) {
  if (model_sha256.empty() || model_sha256 == run.model_sha256) return true;
  fmt::print("{} was exported from another checkpoint than {}: export again", shown(path),
             shown(run.checkpoint));
  if (const auto own = checkpoint_of_digest(options.run, model_sha256)) {
    fmt::print(", or verify with --checkpoint {}", shown(*own));
  }
  fmt::print("\n");
  return false;
}

// Whether an export describes the run's data. Prints a message if not.
bool has_data_of_run(const std::filesystem::path& path, const ExportedData& exported,
                     const LoadedRun& run) {
  const std::string difference = difference_in_data(exported, *run.experiment);
  if (difference.empty()) return true;
  fmt::print("{} was exported with other data than the run's: {} differs\n", shown(path),
             difference);
  return false;
}

// The exported model if there is one, else the model as it would be exported. Nothing if the export
// is of another checkpoint or other data.
std::optional<deploy::Graph> model_to_check(const VerifyArguments& options, const LoadedRun& run) {
  const std::filesystem::path path =
      options.model.empty()
          ? export_path(std::filesystem::path(options.run) / "export", "safetensors")
          : std::filesystem::path(options.model);
  if (!options.model.empty() || path_exists(path)) {
    fmt::print("integer model: {}\n", shown(path));
    deploy::Graph graph = deploy::load_graph(path);
    if (!is_of_checkpoint(path, graph.model_sha256, options, run)) return std::nullopt;
    const ExportedData data{graph.preprocessing, graph.target, graph.class_names};
    if (!has_data_of_run(path, data, run)) return std::nullopt;
    return graph;
  }
  fmt::print("integer model: as `steelyard export {}` would write it\n", shown(options.run));
  return deployed_graph(run);
}

double top1(const Tensor& outputs, const Dataset& data, std::int64_t samples) {
  const Tensor labels = spread_samples(data, samples).targets;
  return 100.0 * static_cast<double>(count_correct(outputs, labels)) / static_cast<double>(samples);
}

// Whether ONNX Runtime must give the same codes, because it fuses everything to integers
// (docs/exports.md). Floats are rounded as each library likes.
bool onnx_is_exact(const Experiment& experiment, const deploy::Graph& whole) {
  // A product and a sum of floats, each rounded once, are the same everywhere.
  const deploy::Graph graph = deploy::without_output_map(whole);
  bool exact = experiment.recipe().exports.profile == qat::Profile::kOrt;
  for (const deploy::Node& node : graph.nodes) {
    if (node.weights) exact &= node.weights->one_scale_per_channel() && node.weights->bits > 4;
    const deploy::OpInfo& op = deploy::op_info(node.op);
    const bool moves = (op.keeps_codes && (!op.rounds_floats || node.constants.empty())) ||
                       node.op == deploy::Op::kOutputParts;
    exact &= moves || graph.values[node.output].quantization;
  }
  return exact;
}

std::filesystem::path onnx_path(const VerifyArguments& options) {
  const std::filesystem::path run = options.run, model = options.model;
  return export_path(options.model.empty() ? run / "export" : model.parent_path(), "onnx");
}

// Finds a Python for the ONNX file, if there is a file.
std::optional<deploy::OnnxRuntime> chosen_runtime(const VerifyArguments& options) {
  if (options.python.empty() && !path_exists(onnx_path(options))) return std::nullopt;
  return runtime_in(options.python);
}

constexpr double kLeastAgreement = 99.9;
constexpr double kLargestRelativeError = 0.01;  // 40 dB
constexpr double kShareOfQuantization = 0.1;    // of the error that quantization makes

double largest_relative_error(const VerifyArguments& options) {
  if (!options.sqnr_db) return kLargestRelativeError;
  return std::max(kLargestRelativeError,
                  kShareOfQuantization * std::pow(10, -std::max(*options.sqnr_db, 0.0) / 20));
}

bool is_close(const deploy::OutputComparison& compared, double largest_error) {
  return compared.agreement >= kLeastAgreement || compared.relative_error <= largest_error;
}

// Of several outputs the agreement is that of one that is not close, or of the one that agrees
// least: a large output says nothing of a small one.
deploy::OutputComparison compare_rows(const Tensor& expected, const Tensor& outputs,
                                      bool classifies, const deploy::Graph& graph,
                                      double largest_error) {
  deploy::OutputComparison all = deploy::compare_outputs(expected, outputs, classifies);
  if (classifies || graph.output_ports.empty()) return all;
  std::vector<std::int64_t> widths;
  for (const deploy::PartPort& port : graph.output_ports) widths.push_back(shape_size(port.shape));
  const std::vector<Tensor> own = split(expected, widths), other = split(outputs, widths);
  all.agreement = 100;
  all.relative_error = 0;
  for (std::size_t i = 0; i < widths.size() && is_close(all, largest_error); ++i) {
    const deploy::OutputComparison one = deploy::compare_outputs(own[i], other[i], false);
    if (is_close(one, largest_error) && one.agreement >= all.agreement) continue;
    all.agreement = one.agreement;
    all.relative_error = one.relative_error;
  }
  return all;
}

// Prints how ONNX Runtime's outputs compare with those that were expected of it.
deploy::OutputComparison compare_onnx(const Tensor& outputs, const Dataset& test,
                                      const deploy::Verification& result, const Tensor& expected,
                                      const deploy::Graph& graph, double largest_error) {
  const bool text = target_kind(test.targets, test.classes) == TargetKind::kText;
  const bool frames = text && expected.rank() == 3;  // each chooses a character
  const std::int64_t rows_of_sample = frames ? expected.dim(1) : 1;
  const Shape as{result.samples * rows_of_sample,
                 outputs.size() / std::max<std::int64_t>(result.samples * rows_of_sample, 1)};
  const deploy::OutputComparison compared =
      compare_rows(expected.reshape(as), outputs.reshape(as),
                   frames || result.trained_top1.has_value(), graph, largest_error);
  if (frames) {
    fmt::print("the same character in {:.2f} % of the frames; ", compared.agreement);
  } else if (result.trained_top1) {
    Shape rows{result.samples, outputs.size() / result.samples};
    fmt::print("top-1 {:.2f} %, the same class for {:.2f} %; ",
               top1(outputs.reshape(rows), test, result.samples), compared.agreement);
  } else {
    fmt::print("close values for {:.2f} % of the outputs; ", compared.agreement);
  }
  fmt::print("{} of {} outputs differ, by at most {}\n", compared.differing, compared.elements,
             compared.largest);
  return compared;
}

// Where ONNX Runtime computes in integers, the outputs must be those of the integer model. Where it
// computes values in float that are rounded to codes again, a code may come out one higher or
// lower: then its outputs are compared with the trained model's, which may differ in that way too.
class OnnxCheck {
 public:
  OnnxCheck(const LoadedRun& run, const Dataset& test, const deploy::Graph& graph,
            const deploy::Verification& result, double largest_error)
      : test_(test),
        graph_(graph),
        exact_(onnx_is_exact(*run.experiment, graph)),
        result_(result),
        largest_error_(largest_error) {}

  deploy::OutputComparison compare(const Tensor& outputs) const {
    return compare_onnx(outputs, test_, result_, exact_ ? result_.outputs : result_.trained_outputs,
                        graph_, largest_error_);
  }
  ExitCode verdict(const deploy::OutputComparison& compared) const {
    if (exact_) return compared.differing == 0 ? kDone : kMismatch;
    const bool close = is_close(compared, largest_error_);
    if (!close) {
      fmt::print(
          "expected at least {} % as said, or a relative error of at most {:.3g} (root mean "
          "square), got {:.3g}\n",
          kLeastAgreement, largest_error_, compared.relative_error);
    }
    return close ? kDone : kMismatch;
  }

 private:
  const Dataset& test_;
  const deploy::Graph& graph_;
  bool exact_;
  const deploy::Verification& result_;
  double largest_error_;
};

// Runs RUN/export/model.onnx, if both the file and ONNX Runtime exist.
ExitCode verify_onnx(const VerifyArguments& options,
                     const std::optional<deploy::OnnxRuntime>& runtime, const LoadedRun& run,
                     const deploy::Graph& graph, const deploy::Verification& result) {
  const std::filesystem::path path = onnx_path(options);
  if (!path_exists(path)) {
    fmt::print("ONNX: skipped, no {}\n", shown(path));
    return kDone;
  }
  if (!is_of_checkpoint(path, deploy::onnx_model_sha256(path), options, run)) return kMismatch;
  const auto data = deploy::can_write_onnx() ? exported_data_in(path) : std::nullopt;
  if (data && !has_data_of_run(path, *data, run)) return kMismatch;
  if (!runtime) {
    fmt::print("ONNX: skipped, {}\n", deploy::kNoOnnxRuntime);
    return kDone;
  }
  const OnnxCheck check(run, run.experiment->test(), graph, result,
                        largest_relative_error(options));
  const auto outputs_of = [&](deploy::Session session) {
    return deploy::run_onnx(*runtime, path, result.inputs, session, onnx_ports(*run.experiment));
  };
  const Tensor outputs = outputs_of(deploy::Session::kExact);
  fmt::print("ONNX Runtime {}: ", runtime->version);
  const deploy::OutputComparison compared = check.compare(outputs);
  if (deploy::may_saturate(graph)) {
    fmt::print("its default session on this machine: ");
    check.compare(outputs_of(deploy::Session::kDefault));
    fmt::print("{}{}\n", kSaturationAdvice, options.seven_bits);
  }
  return check.verdict(compared);
}

// x with another size of a dimension: elements are repeated, evenly.
Tensor stretched(const Tensor& x, std::size_t axis, std::int64_t size) {
  const auto count = [](auto begin, auto end) {
    return std::accumulate(begin, end, std::int64_t{1}, std::multiplies<>());
  };
  Shape shape = x.shape();
  const auto at = shape.begin() + static_cast<std::ptrdiff_t>(axis);
  const std::int64_t before = count(shape.begin(), at), from = *at;
  const auto bytes = static_cast<std::size_t>(count(at + 1, shape.end())) * dtype_bytes(x.dtype());
  *at = size;
  Tensor y = Tensor::empty(shape, x.dtype());
  const auto* source = static_cast<const std::byte*>(x.raw());
  auto* target = static_cast<std::byte*>(y.raw());
  for (std::int64_t i = 0; i < before * size; ++i) {
    const std::int64_t row = i / size * from + i % size * from / size;
    std::memcpy(target + static_cast<std::size_t>(i) * bytes,
                source + static_cast<std::size_t>(row) * bytes, bytes);
  }
  return y;
}

// The samples in the sizes of that graph, where they are other ones.
Dataset enlarged(const Dataset& dataset, const deploy::Graph& graph) {
  Dataset large = load_samples(dataset);
  const Shape& shape = graph.values[graph.input].shape;
  for (const auto& [axis, name] : graph.input_port.free) {
    const auto of_sample = static_cast<std::size_t>(axis);
    large.inputs = stretched(large.inputs, of_sample + 1, shape.at(of_sample));
  }
  return large;
}

// Verifies the graph, and with `runtime` the ONNX file, on samples of other sizes.
ExitCode verify_at(const deploy::Graph& graph, const std::optional<deploy::OnnxRuntime>& runtime,
                   const VerifyArguments& options, const LoadedRun& run) {
  constexpr std::int64_t kSamples = 16;
  Experiment& experiment = *run.experiment;
  const deploy::Interpreter interpreter(graph);
  const Dataset test =
      enlarged(spread_samples(experiment.test(), std::min(kSamples, options.samples)), graph);
  const deploy::Verification result =
      deploy::verify(*experiment.deployed_model(), interpreter, test, kSamples, /*batch_size=*/1);
  fmt::print("at {}: {}", shape_string(test.sample_shape()), to_string(result));
  ExitCode onnx = kDone;
  if (runtime) {
    fmt::print("ONNX Runtime {} at that size: ", runtime->version);
    const Tensor outputs = deploy::run_onnx(*runtime, onnx_path(options), result.inputs,
                                            deploy::Session::kExact, onnx_ports(experiment));
    const OnnxCheck check(run, test, interpreter.graph(), result, largest_relative_error(options));
    onnx = check.verdict(check.compare(outputs));
  }
  return result.first_mismatch() == nullptr ? onnx : kMismatch;
}

// Where the ONNX file takes samples of any size: the same at twice the sizes, and at the next ones.
ExitCode verify_larger(const VerifyArguments& options,
                       const std::optional<deploy::OnnxRuntime>& runtime, const LoadedRun& run) {
  const std::filesystem::path path = onnx_path(options);
  if (!path_exists(path) || !deploy::onnx_has_free_sizes(path)) return kDone;
  ExitCode worst = kDone;
  for (const auto& larger : deployed_graph(run).resized) {
    worst = std::max(worst, verify_at(*larger, runtime, options, run));
  }
  return worst;
}

void require_exported(const VerifyArguments& options, const std::filesystem::path& path) {
  if (path_exists(path)) return;
  throw InputError(shown(path) + ": is not there: `steelyard export " + printable(options.run) +
                   "` writes it");
}

void print_weights(const std::filesystem::path& path, const WeightComparison& found) {
  fmt::print(
      "{}: {} of {} weights differ from those that training computes with, {} of {} others\n",
      shown(path), found.differing_values, found.values, found.differing_others, found.others);
}
bool is_same(const WeightComparison& found) {
  return found.differing_values + found.differing_others == 0;
}

// A GGUF file beside the model that was trained for it.
ExitCode verify_gguf(const VerifyArguments& options, const LoadedRun& run) {
  const std::filesystem::path path = options.model.empty()
                                         ? gguf_path(std::filesystem::path(options.run) / "export")
                                         : std::filesystem::path(options.model);
  require_exported(options, path);
  const GgufComparison found = compare_gguf(run, path, options.samples);
  print_weights(path, found);
  fmt::print("the file's model: {} of {} tokens have other logits\n", found.differing_tokens,
             found.tokens);
  return is_same(found) && found.differing_tokens == 0 ? kDone : kMismatch;
}

// A folder of transformers beside the model that it was written of.
ExitCode verify_huggingface(const VerifyArguments& options, const LoadedRun& run) {
  const std::filesystem::path folder = options.model.empty()
                                           ? std::filesystem::path(options.run) / "export"
                                           : std::filesystem::path(options.model);
  require_exported(options, folder);
  const HuggingfaceComparison found = compare_huggingface(run, folder, options.samples);
  if (!found.problem.empty()) {
    fmt::print("{}: {}\n", shown(folder), found.problem);
    return kMismatch;
  }
  print_weights(folder, found);
  if (found.tokens > 0) {
    fmt::print("the folder's weights in float: {} of {} tokens have other logits\n",
               found.differing_tokens, found.tokens);
  } else {
    fmt::print("logits: not compared, the inputs of layers are codes\n");
  }
  return is_same(found) && found.differing_tokens == 0 ? kDone : kMismatch;
}

ExitCode compare_all(const VerifyArguments& options, const Registries& registries) {
  const auto runtime = chosen_runtime(options);
  const LoadedRun run = load_run(options.run, options.checkpoint, registries, RunData::kTest);
  print_notes(run.notes);
  Experiment& experiment = *run.experiment;
  fmt::print("trained model: {}\n", shown(run.checkpoint));
  if (experiment.recipe().exports.target) return verify_gguf(options, run);
  if (experiment.recipe().model.huggingface) return verify_huggingface(options, run);
  const std::optional<deploy::Graph> graph = model_to_check(options, run);
  if (!graph) return kMismatch;
  const deploy::Interpreter interpreter(*graph);
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
  return result.first_mismatch() == nullptr ? onnx : kMismatch;
}

}  // namespace

ExitCode verify_run(const VerifyArguments& options, const Registries& registries) {
  const ExitCode code = compare_all(options, registries);
  return code == kDone ? code : report("failed", shown(options.run) + ": not verified", code);
}

Verb add_verify(CLI::App& app) {
  auto options = std::make_shared<VerifyArguments>();
  CLI::App* verb = app.add_subcommand(
      "verify", "Compare the deployed model with the trained one, tensor by tensor");
  verb->add_option("run", options->run, "The run's folder")->required();
  verb->add_option("--checkpoint", options->checkpoint, "last, best or a file (default: last)");
  verb->add_option("--model", options->model,
                   "The integer model (default: RUN/export/model.safetensors, if it is there)");
  verb->add_option("--samples", options->samples, "Test samples to compare (default: 10000)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  add_python(*verb, options->python);
  add_threads(*verb);
  return [options](const Registries& registries) { return verify_run(*options, registries); };
}

}  // namespace steelyard::cli
