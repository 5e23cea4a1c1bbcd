#include "steelyard/recipes/runs/deployment.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "steelyard/export/stream.h"
#include "steelyard/export/trace.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "steelyard/recipes/models/models.h"
#include "steelyard/recipes/runs/deployable.h"
#include "steelyard/recipes/runs/device_costs.h"
#include "steelyard/runtime/preprocessing_json.h"

namespace steelyard {
namespace {

constexpr std::string_view kPrefix = "export: ";  // of messages

// A sample that gives a model its ranges; nothing where all of those tried are divided by 0, or the
// like.
std::optional<Tensor> calibrated_on(Module& model, const Shape& sample) {
  for (const float value : kTrialValues) {
    const Tensor input = Tensor::full(sample, value);
    try {
      qat::calibrate(model, 1, [&](std::int64_t) { return input; });
      return input;
    } catch (const TrainingDiverged&) {
      // values that are not finite
    }
  }
  return std::nullopt;
}

// Grey where samples of images have one channel.
std::optional<ImageTransforms> transforms_of(const Experiment& experiment) {
  std::optional<ImageTransforms> transforms = experiment.recipe().data.transforms;
  const Shape& sample = experiment.input().sample;
  if (transforms && sample.size() == 3) transforms->grey = sample[2] == 1;
  return transforms;
}

ExportedData data_to_export(const Experiment& experiment) {
  const DatasetNames& names = experiment.input().names;
  ExportedData data{{experiment.input().dtype, experiment.normalization()},
                    experiment.target_kind(),
                    names.classes};
  data.preprocessing.transforms = transforms_of(experiment);
  if (const auto& table = experiment.recipe().data.table; table && !names.columns.empty()) {
    data.preprocessing.table = {*table, names.columns};
  }
  return data;
}

// What the graph of a model tells before it is trained.
struct Trial {
  std::optional<std::string> refusal = {};  // why it cannot be exported
  std::optional<DeviceCosts> costs = {};
};

bool asks_for_exports(const ExportSpec& exports) {
  return !exports.formats.empty() || exports.limits || exports.stream;
}

Trial tried(const Experiment& experiment, const Registries& registries) {
  const ExportSpec& exports = experiment.recipe().exports;
  const std::vector<std::string> formats =
      exports.formats.empty() ? deploy::default_format_names(exports.profile) : exports.formats;
  const std::shared_ptr<Module> model = experiment.make_trial_model(registries);
  const std::optional<Tensor> input = calibrated_on(*model, experiment.input().batch(1));
  if (!input) return {};  // the trained weights are checked when they are exported
  try {
    const std::shared_ptr<Module> deployed = experiment.as_deployed(model);
    deploy::Graph graph = deploy::trace(*deployed, *input, experiment.recipe().name).graph;
    deploy::require_constants(graph, *deployed, *input);
    graph.preprocessing = data_to_export(experiment).preprocessing;
    return {refusal_of(graph, formats), device_costs(graph, exports.stream)};
  } catch (const InputError& error) {
    return {error.what()};
  } catch (const deploy::WeightFault&) {
    // The fault is in weights that nobody trained.
  } catch (const std::invalid_argument& error) {
    return {std::string(kPrefix) + error.what()};  // "[graph] node (operation): ..."
  }
  return {};
}

void note_costs(Experiment& experiment, const Trial& trial) {
  if (trial.costs) experiment.note("the program in C has " + text_of(*trial.costs));
}

// Throws InputError where the program is larger than the recipe allows.
void require_within_limits(const Experiment& experiment, const Trial& trial) {
  const auto& limits = experiment.recipe().exports.limits;
  if (!limits) return;
  const std::string place = experiment.place("export", "limits");
  if (!trial.costs) {
    fail_at(place, "export.limits: the model has no program in C before it is trained" +
                       (trial.refusal ? ": " + *trial.refusal : ""));
  }
  if (const auto exceeded = exceeded_limits(*trial.costs, *limits)) fail_at(place, *exceeded);
}

// Empty where the model reads samples as one input.
std::vector<deploy::PartPort> input_ports(const Experiment& experiment) {
  if (const auto& network = experiment.network()) return input_ports_of(*network);
  std::vector<deploy::PartPort> ports;
  if (!reads_input_parts(experiment.recipe().model)) return ports;
  std::int64_t first = 0;
  for (const NamedInput& part : experiment.input().names.inputs) {
    ports.push_back({deploy::Port{part.name}, first, part.shape});
    first += shape_size(part.shape);
  }
  return ports;
}

}  // namespace

std::optional<std::string> difference_from_plan(Experiment& experiment) {
  const std::vector<qat::NamedQuantizer> quantizers = qat::named_quantizers(experiment.model());
  std::optional<std::string> first;
  std::int64_t count = 0;
  for (const qat::NamedQuantizer& entry : quantizers) {
    auto difference = yet_to_change(entry);
    if (!difference) continue;
    ++count;
    if (!first) first = std::move(difference);
  }
  if (!first) return std::nullopt;
  return "not quantized as planned yet: " + *first + " (" + std::to_string(count) + " of " +
         std::to_string(quantizers.size()) + " quantizers)";
}

deploy::OnnxPorts onnx_ports(const Experiment& experiment) {
  deploy::OnnxPorts ports{.inputs = input_ports(experiment)};
  if (const auto& network = experiment.network()) {
    ports.input = port_of(network->input);
    ports.output = port_of(network->output);
    ports.outputs = output_ports_of(*network);
  }
  return ports;
}

namespace {

// Whether the data are normalized by a mean for each position of a dimension that the network
// leaves free: then its size is that of the data.
bool normalizes_positions(const Experiment& experiment) {
  const imports::PortSpec& input = experiment.network()->input;
  const auto last = static_cast<std::int64_t>(experiment.network()->sample.size()) - 1;
  return experiment.normalization().mean.size() > 1 && input.free.contains(last);
}

// What the graph says besides its operations.
void describe(deploy::Graph& graph, const Experiment& experiment) {
  ExportedData data = data_to_export(experiment);
  graph.preprocessing = std::move(data.preprocessing);
  graph.target = data.target;
  if (graph.target == TargetKind::kText) graph.characters = experiment.input().classes;
  graph.class_names = std::move(data.class_names);
  graph.input_ports = input_ports(experiment);
  if (const auto& network = experiment.network()) describe_ports(graph, *network);
}

}  // namespace

deploy::Graph deployed_graph(Experiment& experiment) {
  const auto& network = experiment.network();
  return traced_graph({.trained = experiment.model(),
                       .deployed = experiment.deployed_model(),
                       .network = network ? &*network : nullptr,
                       .batch = experiment.input().batch(1),
                       .name = experiment.recipe().name,
                       .free_sizes = !network || !normalizes_positions(experiment)},
                      [&](deploy::Graph& graph) { describe(graph, experiment); });
}

std::string difference_in_data(const ExportedData& exported, const Experiment& experiment) {
  const ExportedData own = data_to_export(experiment);
  const auto in_file = deploy::preprocessing_json(exported.preprocessing);
  const auto in_run = deploy::preprocessing_json(own.preprocessing);
  for (const char* key : {"dtype", "mean", "stddev", "transforms", "table"}) {
    const auto is_in_file = in_file.find(key);
    if (is_in_file == in_file.end()) continue;  // not said by exports of older versions
    if (*is_in_file != in_run.value(key, nlohmann::ordered_json())) return key;
  }
  const bool named = !exported.class_names.empty();  // the same
  return named && exported.class_names != own.class_names ? "class_names" : "";
}

std::optional<std::string> note_of_fixed_sizes(const deploy::Graph& graph,
                                               const std::vector<std::string>& formats,
                                               const deploy::OnnxOptions& options) {
  if (std::find(formats.begin(), formats.end(), "onnx") == formats.end()) return std::nullopt;
  const std::string why = deploy::why_sizes_are_fixed(graph, options);
  if (why.empty()) return std::nullopt;
  return "the ONNX file has fixed sizes of its input: on them depends " + why;
}

deploy::Graph deployed_graph(const LoadedRun& run) {
  deploy::Graph graph = deployed_graph(*run.experiment);
  graph.model_sha256 = run.model_sha256;
  return graph;
}

void require_exportable(Experiment& experiment, const Registries& registries) {
  const ExportSpec& exports = experiment.recipe().exports;
  if (!asks_for_exports(exports)) return;
  const std::string place = experiment.place("export", "formats");
  for (const std::string& name : exports.formats) {
    const deploy::ExportFormat& format = deploy::export_format(name);
    if (format.can_write()) continue;
    fail_at(place, "export.formats: this build writes no " + std::string(format.title) + " files");
  }
  const Trial trial = tried(experiment, registries);
  if (exports.stream && !trial.costs) {
    fail_at(experiment.place("export", "stream"),
            trial.refusal.value_or(
                "export.stream: the model has no program in C before it is trained"));
  }
  if (trial.refusal && !exports.formats.empty()) fail_at(place, *trial.refusal);
  require_within_limits(experiment, trial);
  note_costs(experiment, trial);
}

void note_exportability(Experiment& experiment, const Registries& registries) {
  if (asks_for_exports(experiment.recipe().exports)) return;
  if (!experiment.plan() && !experiment.network()) return;    // our own architectures can be
  if (experiment.recipe().model.is_language_model()) return;  // which have files of their own
  const Trial trial = tried(experiment, registries);
  if (trial.refusal) {
    const std::string& why = *trial.refusal;
    experiment.note("the model cannot be exported: " +
                    why.substr(why.starts_with(kPrefix) ? kPrefix.size() : 0));
  }
  note_costs(experiment, trial);
}

std::filesystem::path export_path(const std::filesystem::path& folder, const std::string& format) {
  return folder / ("model" + std::string(deploy::export_format(format).suffix));
}

std::vector<std::filesystem::path> write_exports(const deploy::Graph& graph,
                                                 const std::vector<std::string>& formats,
                                                 const std::filesystem::path& folder,
                                                 const deploy::ExportOptions& options) {
  if (const auto why = refusal_of(graph, formats)) throw InputError(*why);
  if (options.stream) deploy::stream_of(graph, *options.stream);  // throws
  create_folders(folder);
  std::vector<std::filesystem::path> written;
  for (const std::string& format : formats) {
    const auto paths =
        deploy::export_format(format).write(export_path(folder, format), graph, options);
    written.insert(written.end(), paths.begin(), paths.end());
  }
  return written;
}

}  // namespace steelyard
