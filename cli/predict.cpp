#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>

#include "cli/prediction_inputs.h"
#include "cli/prediction_output.h"
#include "cli/python.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/export/graph_file.h"
#include "steelyard/export/interpreter.h"
#include "steelyard/export/onnx.h"
#include "steelyard/export/onnx_runtime.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/files.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/run_folder.h"

namespace steelyard::cli {
namespace {

constexpr std::int64_t kBatch = 256;
constexpr std::int64_t kWholeFile = INT64_MAX;

struct PredictArguments {
  std::string model;
  std::string file;
  std::string with;
  std::string format = "text";
  std::string python;
};

// Computes outputs from a batch of inputs, which are as in the file.
struct Predictor {
  SampleForm form;
  OutputKind outputs = OutputKind::kLogits;
  std::int64_t batch = kBatch;
  std::function<Tensor(const Tensor&)> run;
  std::int64_t characters = 0;  // of kCharacters, the blank included
};

SampleForm form_of(const Experiment& experiment) {
  const InputFormat& input = experiment.input();
  const DataSpec& data = experiment.recipe().data;
  return {input.dtype, input.sample, input.names, data.transforms, data.table};
}

// Of an integer model's file.
OutputKind outputs_of(const deploy::Graph& graph) {
  const auto last = graph.nodes.empty() ? deploy::Op::kFlatten : graph.nodes.back().op;
  const Shape& output = graph.values[graph.output].shape;
  switch (graph.target) {
    case TargetKind::kClass:
      // One row of classes, also as the channels of one pixel.
      if (shape_size(output) < 2 || shape_size(output) != output.back()) return OutputKind::kValues;
      return last == deploy::Op::kSoftmax ? OutputKind::kProbabilities : OutputKind::kLogits;
    case TargetKind::kMarks:
      return last == deploy::Op::kSigmoid ? OutputKind::kLabelProbabilities : OutputKind::kLabels;
    case TargetKind::kText:
      return OutputKind::kCharacters;
    case TargetKind::kValues:
      break;
  }
  return OutputKind::kValues;
}

// As they lie in a sample.
std::vector<NamedInput> inputs_of(const deploy::Graph& graph) {
  std::vector<deploy::InputPort> ports = graph.input_ports;
  std::sort(ports.begin(), ports.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<NamedInput> inputs;
  for (const deploy::InputPort& input : ports) inputs.push_back({input.port.name, input.shape});
  return inputs;
}

Predictor integer_predictor(deploy::Graph exported) {
  auto interpreter =
      std::make_shared<deploy::Interpreter>(std::move(exported), deploy::Engine::kFast);
  const deploy::Graph& graph = interpreter->graph();
  const deploy::Preprocessing& preprocessing = graph.preprocessing;
  DatasetNames names{.classes = graph.class_names};
  std::optional<TableOptions> table;
  if (preprocessing.table) {
    table = preprocessing.table->options;
    names.columns = preprocessing.table->columns;
  }
  if (graph.input_ports.size() > 1) names.inputs = inputs_of(graph);
  return {{preprocessing.dtype, graph.values[graph.input].shape, names, preprocessing.transforms,
           table},
          outputs_of(graph),
          kBatch,
          [interpreter](const Tensor& inputs) { return interpreter->run_raw(inputs); },
          graph.characters};
}

OutputKind outputs_of(const Experiment& experiment) {
  switch (experiment.target_kind()) {
    case TargetKind::kClass:
      return experiment.input().classes > 0 ? OutputKind::kLogits : OutputKind::kValues;
    case TargetKind::kMarks:
      return OutputKind::kLabels;
    case TargetKind::kText:
      return OutputKind::kCharacters;
    case TargetKind::kValues:
      break;
  }
  return OutputKind::kValues;
}

// Of an export, which ends in the activation that training leaves to the loss.
OutputKind exported_outputs_of(const Experiment& experiment) {
  const OutputKind outputs = outputs_of(experiment);
  // The logarithms of shares are logits.
  if (!experiment.leaves_head() || experiment.network()->head == "LogSoftmax") return outputs;
  if (outputs == OutputKind::kLogits) return OutputKind::kProbabilities;
  return outputs == OutputKind::kLabels ? OutputKind::kLabelProbabilities : outputs;
}

// With a run's preprocessing: `run` gets normalized inputs.
Predictor run_predictor(const std::shared_ptr<Experiment>& experiment, std::int64_t batch,
                        const std::function<Tensor(const Tensor&)>& run) {
  return {form_of(*experiment), outputs_of(*experiment), batch,
          [experiment, run](const Tensor& inputs) {
            return run(normalized(inputs, experiment->normalization()));
          },
          experiment->input().classes};
}

Predictor onnx_predictor(const std::shared_ptr<Experiment>& experiment,
                         const std::filesystem::path& path, const std::string& python) {
  const auto runtime = runtime_in(python);
  if (!runtime) throw InputError(deploy::kNoOnnxRuntime);
  const deploy::OnnxPorts ports = onnx_ports(*experiment);
  // A row for each sample; a sequence keeps its frames.
  Shape sample;
  if (const auto& network = experiment->network()) sample = network->output_sample;
  Predictor predictor =
      run_predictor(experiment, kWholeFile, [runtime, path, ports, sample](const Tensor& inputs) {
        const Tensor rows =
            deploy::run_onnx(*runtime, path, inputs, deploy::Session::kExact, ports);
        return sample.size() == 2 ? rows.reshape({inputs.dim(0), sample[0], sample[1]}) : rows;
      });
  predictor.outputs = exported_outputs_of(*experiment);
  return predictor;
}

// The run may have been trained further since it was exported. Files of older versions do not tell.
void require_own_export(const std::string& run, const std::filesystem::path& path,
                        const std::string& model_sha256) {
  if (model_sha256.empty() || checkpoint_of_digest(run, model_sha256)) return;
  throw InputError(printable(path.string()) + ": was exported from another checkpoint than " +
                   printable(run) + " has now: export again");
}

void require_export(const PredictArguments& options, const std::filesystem::path& path,
                    const std::string& export_options) {
  if (path_exists(path)) return;
  throw InputError(printable(path.string()) + ": is missing; steelyard export " +
                   printable(options.model) + export_options + " writes it");
}

Predictor make_predictor(const PredictArguments& options, const Registries& registries) {
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
    require_export(options, path, "");
    deploy::Graph graph = deploy::load_graph(path);
    require_own_export(options.model, path, graph.model_sha256);
    Predictor predictor = integer_predictor(std::move(graph));
    // Exports of earlier versions do not say how images and tables became their inputs; the run
    // does, where it is still there.
    if (path_exists(std::filesystem::path(options.model) / run_files::kLast)) {
      const LoadedRun run = load_run(options.model, "last", registries, RunData::kNone);
      predictor.form = form_of(*run.experiment);
      if (predictor.outputs == OutputKind::kValues) {
        predictor.outputs = exported_outputs_of(*run.experiment);
      }
      predictor.characters = run.experiment->input().classes;
    }
    return predictor;
  }
  LoadedRun loaded = load_run(options.model, "last", registries, RunData::kNone);
  print_notes(loaded.notes);
  const std::shared_ptr<Experiment> experiment = std::move(loaded.experiment);
  if (options.with == "onnx") {
    const std::filesystem::path path = export_path(exported, "onnx");
    require_export(options, path, " --format onnx");
    require_own_export(options.model, path, deploy::onnx_model_sha256(path));
    return onnx_predictor(experiment, path, options.python);
  }
  if (const auto difference = difference_from_plan(*experiment)) print_note(*difference);
  return run_predictor(experiment, kBatch, [experiment](const Tensor& inputs) {
    const NoGradGuard no_grad;
    ForwardContext context;
    return experiment->model().forward(Variable(inputs), context).value();
  });
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

// Samples may hold indices that no table of an imported network has.
Tensor outputs_of(const Predictor& predictor, const Tensor& inputs, const std::string& file,
                  std::int64_t first) {
  try {
    return predictor.run(inputs);
  } catch (const std::out_of_range& error) {
    throw InputError(fmt::format("{}: samples {} to {}: {}", printable(file), first,
                                 first + inputs.dim(0) - 1, error.what()));
  }
}

// Of a regression, those of the columns that it was trained on, where they were those of a table.
std::vector<std::string> output_names(const Predictor& predictor) {
  if (predictor.outputs != OutputKind::kValues) return predictor.form.names.classes;
  return predictor.form.table ? predictor.form.table->target : std::vector<std::string>();
}

ExitCode predict(const PredictArguments& options, const Registries& registries) {
  if (!options.python.empty() && options.with != "onnx") {
    throw InputError("predict: --python is for --with onnx");
  }
  const Predictor predictor = make_predictor(options, registries);
  const PredictionInputs inputs = read_prediction_inputs(options.file, predictor.form);
  const std::int64_t count = inputs.samples.size();
  PredictionPrinter printer(value_of<PredictionFormat>(options.format), predictor.outputs,
                            output_names(predictor), predictor.characters);
  const std::int64_t batch = std::min(predictor.batch, std::max<std::int64_t>(count, 1));
  for (std::int64_t begin = 0; begin < count; begin += batch) {
    std::vector<std::int64_t> samples;
    for (std::int64_t i = begin; i < std::min(begin + batch, count); ++i) samples.push_back(i);
    const Tensor raw = load_samples(select_samples(inputs.samples, samples)).inputs;
    require_finite(raw, printable(options.file) + ": inputs from sample " + std::to_string(begin));
    Tensor outputs = outputs_of(predictor, raw, options.file, begin);
    if (predictor.outputs == OutputKind::kCharacters) {
      outputs = frames_of(Variable(outputs), predictor.characters).value();
    }
    require_finite_outputs(options.file, begin, outputs);
    const auto width = static_cast<std::size_t>(outputs.size() / outputs.dim(0));
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::string name =
          inputs.named ? inputs.samples.source->name(samples[i]) : std::to_string(samples[i]);
      printer.print(name, outputs.span<float>().subspan(i * width, width));
    }
  }
  printer.finish();
  return kDone;
}

}  // namespace

Verb add_predict(CLI::App& app) {
  auto options = std::make_shared<PredictArguments>();
  CLI::App* verb = app.add_subcommand(
      "predict", "Class and probability of every image, row or sample in a file or folder");
  verb->add_option("run", options->model, "The run's folder, or an exported model.safetensors")
      ->required();
  verb->add_option(
          "file", options->file,
          "An image, a folder of images, a table (.csv, .tsv), an array (.npy, .npz), IDX images, "
          "plain or gzip, or a safetensors file with `inputs`")
      ->required();
  verb->add_option("--with", options->with,
                   "For a run, what computes the predictions: its checkpoint, the exported integer "
                   "model or the ONNX file (default: checkpoint)")
      ->check(CLI::IsMember({"checkpoint", "integer", "onnx"}));
  verb->add_option("--format", options->format,
                   "text, or csv or json with the probabilities of all classes (default: text)")
      ->check(CLI::IsMember(all_words<PredictionFormat>()));
  add_python(*verb, options->python);
  add_threads(*verb);
  return [options](const Registries& registries) { return predict(*options, registries); };
}

}  // namespace steelyard::cli
