#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "cli/prediction/prediction_chunks.h"
#include "cli/prediction/prediction_inputs.h"
#include "cli/prediction/prediction_output.h"
#include "cli/python.h"
#include "cli/run_output.h"
#include "cli/usage.h"
#include "cli/verbs.h"
#include "steelyard/export/onnx/onnx.h"
#include "steelyard/export/onnx/onnx_runtime.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/weighted/embedding.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/records/run_folder.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"

namespace steelyard::cli {
namespace {

constexpr std::int64_t kBatch = 256;
// Each batch starts a Python.
constexpr std::int64_t kOnnxBatchBytes = std::int64_t{1} << 28;

struct PredictArguments {
  std::string model;
  std::string file;
  std::string with;
  std::string format = "text";
  std::string python;
  bool strict = false;
};

// Computes outputs from a batch of inputs, which are as in the file.
struct Predictor {
  SampleForm form;
  OutputKind outputs = OutputKind::kLogits;
  std::int64_t batch = kBatch;
  BatchFunction run;
  std::int64_t characters = 0;                // of kCharacters, the blank included
  std::vector<std::string> value_names = {};  // of kValues; may be empty
  // Throws as `run` cannot for a sample that the model does not take. Absent: `run` does.
  BatchFunction check = {};
};

SampleForm form_of(const Experiment& experiment) {
  const InputFormat& input = experiment.input();
  const DataSpec& data = experiment.recipe().data;
  return {input.dtype, input.sample, input.names, data.transforms, data.table};
}

// What the outputs of an integer model's file are.
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
    case TargetKind::kTokens:
    case TargetKind::kValues:
      break;
  }
  return OutputKind::kValues;
}

// As they lie in a sample.
std::vector<NamedInput> inputs_of(const deploy::Graph& graph) {
  std::vector<deploy::PartPort> ports = graph.input_ports;
  std::sort(ports.begin(), ports.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<NamedInput> inputs;
  for (const deploy::PartPort& input : ports) inputs.push_back({input.port.name, input.shape});
  return inputs;
}

// "boxes_0", "boxes_1": the values of several outputs, which a sample's row has one after another.
std::vector<std::string> names_of_values(const std::vector<deploy::PartPort>& outputs) {
  std::vector<std::string> names;
  for (const deploy::PartPort& output : outputs) {
    const std::int64_t values = shape_size(output.shape);
    for (std::int64_t i = 0; i < values; ++i) {
      names.push_back(output.port.name + "_" + std::to_string(i));
    }
  }
  return names;
}

Predictor integer_predictor(deploy::Graph exported) {
  auto interpreter =
      std::make_shared<deploy::Interpreter>(std::move(exported), deploy::Engine::kLean);
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
          graph.characters,
          names_of_values(graph.output_ports)};
}

OutputKind outputs_of(const Experiment& experiment) {
  switch (experiment.target_kind()) {
    case TargetKind::kClass:
      return experiment.input().classes > 0 ? OutputKind::kLogits : OutputKind::kValues;
    case TargetKind::kMarks:
      return OutputKind::kLabels;
    case TargetKind::kText:
      return OutputKind::kCharacters;
    case TargetKind::kTokens:
    case TargetKind::kValues:
      break;
  }
  return OutputKind::kValues;
}

// What the outputs of a run's export are, which ends in the activation that training leaves to the
// loss.
OutputKind exported_outputs_of(const Experiment& experiment) {
  const OutputKind outputs = outputs_of(experiment);
  // The logarithms of shares are logits.
  if (!experiment.leaves_head() || experiment.network()->head == "LogSoftmax") return outputs;
  if (outputs == OutputKind::kLogits) return OutputKind::kProbabilities;
  return outputs == OutputKind::kLabels ? OutputKind::kLabelProbabilities : outputs;
}

// By the checkpoint's model, for normalized inputs.
Tensor run_model(Module& model, const Tensor& inputs) {
  const NoGradGuard no_grad;
  ForwardContext context;
  return model(Variable(inputs), context).value();
}

// Whether a sample holds indices, of which only the model knows how many there are.
bool holds_indices(Experiment& experiment) {
  for (const NamedModule& entry : experiment.model().named_modules()) {
    if (dynamic_cast<const Embedding*>(entry.module) != nullptr) return true;
  }
  if (!experiment.network()) return false;
  const std::vector<imports::PortSpec> ports = experiment.network()->input_ports();
  return std::any_of(ports.begin(), ports.end(), [](const auto& port) { return port.whole(); });
}

// With a run's preprocessing: `run` gets normalized inputs.
Predictor run_predictor(const std::shared_ptr<Experiment>& experiment, std::int64_t batch,
                        const BatchFunction& run) {
  return {form_of(*experiment),
          outputs_of(*experiment),
          batch,
          [experiment, run](const Tensor& inputs) {
            return run(normalized(inputs, experiment->normalization()));
          },
          experiment->input().classes,
          names_of_values(onnx_ports(*experiment).outputs)};
}

Predictor onnx_predictor(const std::shared_ptr<Experiment>& experiment,
                         const std::filesystem::path& path, const std::string& python) {
  const auto runtime = runtime_in(python);
  if (!runtime) throw InputError(deploy::kNoOnnxRuntime);
  const deploy::OnnxPorts ports = onnx_ports(*experiment);
  // A row for each sample; a sequence keeps its frames.
  Shape sample;
  if (const auto& network = experiment->network()) sample = network->output_sample;
  const std::int64_t batch =
      kOnnxBatchBytes / (shape_size(experiment->input().sample) * std::int64_t{sizeof(float)});
  Predictor predictor = run_predictor(
      experiment, std::max(kBatch, batch), [runtime, path, ports, sample](const Tensor& inputs) {
        const Tensor rows =
            deploy::run_onnx(*runtime, path, inputs, deploy::Session::kExact, ports);
        return sample.size() == 2 ? rows.reshape({inputs.dim(0), sample[0], sample[1]}) : rows;
      });
  predictor.outputs = exported_outputs_of(*experiment);
  if (holds_indices(*experiment)) {
    predictor.check = [experiment](const Tensor& inputs) {
      return run_model(experiment->model(), normalized(inputs, experiment->normalization()));
    };
  }
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
  return run_predictor(experiment, kBatch, [model = experiment->model_in_units()](const Tensor& x) {
    return run_model(*model, x);
  });
}

// The names of outputs: those of the classes, or of a regression's target columns where it was
// trained on a table.
std::vector<std::string> output_names(const Predictor& predictor) {
  if (predictor.outputs != OutputKind::kValues) return predictor.form.names.classes;
  if (!predictor.value_names.empty()) return predictor.value_names;
  return predictor.form.table ? predictor.form.table->target : std::vector<std::string>();
}

// The inputs of a model, its outputs for them, and their lines.
class Prediction {
 public:
  Prediction(const PredictArguments& options, const Predictor& predictor,
             const PredictionInputs& inputs)
      : options_(options),
        predictor_(predictor),
        source_(samples_of(inputs.samples)),
        named_(inputs.named),
        printer_(value_of<PredictionFormat>(options.format), predictor.outputs,
                 output_names(predictor), predictor.characters, !options.strict) {}

  // Returns the number of samples that have no prediction. Throws InputError where the input has
  // none that fits the model, and with --strict at the first that has none.
  std::int64_t print_all() {
    for (std::int64_t first = 0; first < source_->size(); first += predictor_.batch) {
      print(first, outputs_of(first, std::min(first + predictor_.batch, source_->size())));
    }
    printer_.finish();
    return failed_;
  }

 private:
  SampleChunk outputs_of(std::int64_t first, std::int64_t end) const {
    SampleChunk chunk = read_chunk(*source_, first, end);
    require_no_fault<InputError>(first, chunk);
    if (predictor_.check) chunk = accepted_by(chunk, predictor_.check);
    chunk = run_on_chunk(chunk, predictor_.run);
    require_no_fault<InputError>(first, chunk);
    // Finite inputs may still be too large for a model in float.
    chunk = finite_rows(std::move(chunk));
    require_no_fault<std::runtime_error>(first, chunk);
    return chunk;
  }

  template <typename Error>
  void require_no_fault(std::int64_t first, const SampleChunk& chunk) const {
    if (!options_.strict) return;
    const auto fault = std::find_if(chunk.faults.begin(), chunk.faults.end(),
                                    [](const std::string& f) { return !f.empty(); });
    if (fault == chunk.faults.end()) return;
    const std::int64_t sample = first + (fault - chunk.faults.begin());
    if (fault->starts_with(source_->name(sample))) throw Error(*fault);
    throw Error(fmt::format("{}: sample {}: {}", printable(options_.file), sample, *fault));
  }

  void print(std::int64_t first, const SampleChunk& chunk) {
    Tensor rows = chunk.rows;
    if (chunk.has_rows() && predictor_.outputs == OutputKind::kCharacters) {
      rows = frames_of(Variable(rows), predictor_.characters).value();
    }
    const std::size_t width = chunk.has_rows() ? row_size(rows) : 0;
    if (first == 0) {
      const bool names_values = options_.format == word_of(PredictionFormat::kCsv);
      printer_.begin(width > 0 || !names_values ? width : row_size(outputs_of_zeros()));
    }
    std::size_t row = 0;
    for (std::size_t i = 0; i < chunk.faults.size(); ++i) {
      const std::int64_t sample = first + static_cast<std::int64_t>(i);
      const std::string name = named_ ? source_->raw_name(sample) : std::to_string(sample);
      if (chunk.faults[i].empty()) {
        printer_.print(name, rows.span<float>().subspan(row++ * width, width));
      } else {
        printer_.print_error(name, without_name(sample, chunk.faults[i]));
        ++failed_;
      }
    }
  }

  // The line begins with the name already.
  std::string without_name(std::int64_t sample, const std::string& fault) const {
    const std::string name = source_->name(sample) + ": ";
    return fault.starts_with(name) ? fault.substr(name.size()) : fault;
  }

  // How many outputs there are, where no sample says it.
  Tensor outputs_of_zeros() const {
    Shape shape = source_->shape();
    shape.insert(shape.begin(), 1);
    return predictor_.run(Tensor::zeros(shape, source_->dtype()));
  }

  static std::size_t row_size(const Tensor& rows) {
    return static_cast<std::size_t>(rows.size() / rows.dim(0));
  }

  const PredictArguments& options_;
  const Predictor& predictor_;
  std::shared_ptr<const SampleSource> source_;
  bool named_;
  PredictionPrinter printer_;
  std::int64_t failed_ = 0;
};

ExitCode predict(const PredictArguments& options, const Registries& registries) {
  if (!options.python.empty() && options.with != "onnx") {
    throw InputError("predict: --python is for --with onnx");
  }
  const Predictor predictor = make_predictor(options, registries);
  const PredictionInputs inputs = read_prediction_inputs(
      options.file, predictor.form, options.strict ? BadInputs::kRefuse : BadInputs::kKeep);
  if (inputs.note) print_note(*inputs.note);
  const std::int64_t failed = Prediction(options, predictor, inputs).print_all();
  if (failed == 0) return kDone;
  return report("failed",
                fmt::format("{}: {} of {} samples have no prediction, their lines say why",
                            printable(options.file), failed, inputs.samples.size()),
                kFailed);
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
  verb->add_flag(
      "--strict", options->strict,
      "Stop at the first sample that has no prediction, such as a damaged image or a row "
      "with a category that training has not seen (default: a line for each, and exit "
      "code 1 at the end)");
  add_python(*verb, options->python);
  add_threads(*verb);
  return [options](const Registries& registries) { return predict(*options, registries); };
}

}  // namespace steelyard::cli
