#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>

#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/export/graph_file.h"
#include "steelyard/export/interpreter.h"
#include "steelyard/export/onnx.h"
#include "steelyard/export/onnx_runtime.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/idx.h"
#include "steelyard/framework/data/safetensors_dataset.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/file_kind.h"
#include "steelyard/framework/files.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"

namespace steelyard::cli {
namespace {

constexpr std::int64_t kBatch = 256;
constexpr std::int64_t kWholeFile = INT64_MAX;

struct Options {
  std::string model;
  std::string file;
  std::string with;
  int threads = 0;
};

// Computes outputs from a batch of inputs, which are as in the file.
struct Predictor {
  DType dtype = DType::kU8;
  Shape sample;
  bool classifies = true;
  std::int64_t batch = kBatch;
  std::function<Tensor(const Tensor&)> run;
  bool shares = false;  // the outputs are probabilities, else logits
};

Predictor integer_predictor(deploy::Graph exported) {
  auto interpreter =
      std::make_shared<deploy::Interpreter>(std::move(exported), deploy::Engine::kFast);
  const deploy::Graph& graph = interpreter->graph();
  const Shape& output = graph.values[graph.output].shape;
  return {graph.preprocessing.dtype,
          graph.values[graph.input].shape,
          graph.classifies && output.size() == 1 && output[0] > 1,
          kBatch,
          [interpreter](const Tensor& inputs) { return interpreter->run_raw(inputs); },
          !graph.nodes.empty() && graph.nodes.back().op == deploy::Op::kSoftmax};
}

// With a run's preprocessing: `run` gets normalized inputs.
Predictor run_predictor(const std::shared_ptr<Experiment>& experiment, std::int64_t batch,
                        const std::function<Tensor(const Tensor&)>& run) {
  const InputFormat& input = experiment->input();
  return {input.dtype, input.sample, input.classes > 0, batch,
          [experiment, run](const Tensor& inputs) {
            return run(normalized(inputs, experiment->normalization()));
          }};
}

Predictor onnx_predictor(const std::shared_ptr<Experiment>& experiment,
                         const std::filesystem::path& path) {
  const auto runtime = deploy::find_onnx_runtime();
  if (!runtime) {
    throw InputError(
        "no Python with onnxruntime: scripts/python_env makes one, and "
        "$STEELYARD_PYTHON may name another");
  }
  const auto& network = experiment->network();
  const bool channels_last = network && network->input.channels_last;
  Predictor predictor =
      run_predictor(experiment, kWholeFile, [runtime, path, channels_last](const Tensor& inputs) {
        return deploy::run_onnx(*runtime, path, inputs, deploy::Session::kExact, channels_last);
      });
  predictor.shares = experiment->leaves_head();
  return predictor;
}

// The run may have been trained further since it was exported. Files of older versions do not tell.
void require_own_export(const std::string& run, const std::filesystem::path& path,
                        const std::string& model_sha256) {
  if (model_sha256.empty() || checkpoint_of_digest(run, model_sha256)) return;
  throw InputError(printable(path.string()) + ": was exported from another checkpoint than " +
                   printable(run) + " has now: export again");
}

Predictor make_predictor(const Options& options) {
  if (!is_folder(options.model)) {
    if (options.with != "integer" && !options.with.empty()) {
      throw InputError(printable(options.model) + ": is not a run's folder, which --with " +
                       options.with + " needs");
    }
    return integer_predictor(deploy::load_graph(options.model));
  }
  const std::filesystem::path exported = std::filesystem::path(options.model) / "export";
  if (options.with == "integer") {
    const std::filesystem::path path = export_path(exported, "safetensors");
    deploy::Graph graph = deploy::load_graph(path);
    require_own_export(options.model, path, graph.model_sha256);
    return integer_predictor(std::move(graph));
  }
  const Registries registries;
  LoadedRun loaded = load_run(options.model, "last", registries, RunData::kNone);
  print_notes(loaded.notes);
  const std::shared_ptr<Experiment> experiment = std::move(loaded.experiment);
  if (options.with == "onnx") {
    const std::filesystem::path path = export_path(exported, "onnx");
    if (path_exists(path)) {
      require_own_export(options.model, path, deploy::onnx_model_sha256(path));
    }
    return onnx_predictor(experiment, path);
  }
  if (const auto difference = difference_from_plan(*experiment)) print_note(*difference);
  return run_predictor(experiment, kBatch, [experiment](const Tensor& inputs) {
    const NoGradGuard no_grad;
    ForwardContext context;
    return experiment->model().forward(Variable(inputs), context).value();
  });
}

Tensor read_inputs(const std::string& file) {
  const std::string kind = kind_of(InputFile(file));
  if (kind != kSafetensorsKind && !file.ends_with(".safetensors")) return read_idx_images(file);
  return load_safetensors_inputs(file);
}

void require_inputs_fit(const std::string& file, const Tensor& inputs, const Predictor& predictor) {
  Shape expected = predictor.sample;
  expected.insert(expected.begin(), inputs.rank() > 0 ? inputs.dim(0) : 0);
  if (inputs.shape() == expected && inputs.dtype() == predictor.dtype) {
    if (inputs.dim(0) > 0) return;
    throw InputError(printable(file) + ": expected 1 sample or more, got inputs " +
                     shape_string(inputs.shape()));
  }
  std::string shape = shape_string(expected);
  if (inputs.rank() != std::ssize(expected)) {  // which of its sizes is the number of samples?
    shape = "[samples" + std::string(expected.size() > 1 ? ", " : "") +
            shape_string(predictor.sample).substr(1);
  }
  throw InputError(fmt::format("{}: expected inputs {} {}, got {} {}", printable(file),
                               dtype_name(predictor.dtype), shape, dtype_name(inputs.dtype()),
                               shape_string(inputs.shape())));
}

// Finite inputs may still be too large for a model in float.
void require_finite_outputs(const std::string& file, std::int64_t first, const Tensor& outputs) {
  const auto values = outputs.span<float>();
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return;
  const std::int64_t width = outputs.size() / outputs.dim(0);
  throw std::runtime_error(fmt::format("{}: sample {}: an output of the model is {}",
                                       printable(file), first + (bad - values.begin()) / width,
                                       *bad));
}

// "3  class 9  0.981", or the values of a regression.
void print_row(std::int64_t index, const Predictor& predictor, std::span<const float> outputs) {
  if (!predictor.classifies) {
    fmt::print("{}", index);
    for (const float value : outputs) fmt::print("  {}", value);
    fmt::print("\n");
    return;
  }
  const auto best = std::max_element(outputs.begin(), outputs.end());
  double sum = 0;
  for (const float value : outputs) sum += std::exp(static_cast<double>(value) - *best);
  fmt::print("{}  class {}  {:.3f}\n", index, best - outputs.begin(),
             predictor.shares ? static_cast<double>(*best) : 1.0 / sum);
}

ExitCode predict(const Options& options) {
  if (options.threads > 0) kernels::set_num_threads(options.threads);
  const Predictor predictor = make_predictor(options);
  const Tensor inputs = read_inputs(options.file);
  require_inputs_fit(options.file, inputs, predictor);
  require_finite(inputs, printable(options.file) + ": inputs");
  const std::int64_t count = inputs.dim(0);
  Dataset data{inputs, Tensor::zeros({count}, DType::kI64), 1};
  const std::int64_t batch = std::min(predictor.batch, std::max<std::int64_t>(count, 1));
  for (std::int64_t begin = 0; begin < count; begin += batch) {
    std::vector<std::int64_t> samples;
    for (std::int64_t i = begin; i < std::min(begin + batch, count); ++i) samples.push_back(i);
    const Tensor outputs = predictor.run(select_samples(data, samples).inputs);
    require_finite_outputs(options.file, begin, outputs);
    const auto width = static_cast<std::size_t>(outputs.size() / outputs.dim(0));
    for (std::size_t i = 0; i < samples.size(); ++i) {
      print_row(samples[i], predictor, outputs.span<float>().subspan(i * width, width));
    }
  }
  return kDone;
}

}  // namespace

Verb add_predict(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("predict", "Class and probability of every sample in a file");
  verb->add_option("run", options->model, "The run's folder, or an exported model.safetensors")
      ->required();
  verb->add_option("file", options->file,
                   "IDX images, plain or gzip, or a safetensors file with `inputs`")
      ->required();
  verb->add_option("--with", options->with,
                   "For a run, what computes: its checkpoint, the exported integer model or the "
                   "ONNX file (default: checkpoint)")
      ->check(CLI::IsMember({"checkpoint", "integer", "onnx"}));
  add_threads(*verb, options->threads);
  return [options] { return predict(*options); };
}

}  // namespace steelyard::cli
