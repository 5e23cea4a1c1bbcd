#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>

#include "cli/progress.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/import/graph/cut.h"
#include "steelyard/import/onnx/onnx_file.h"
#include "steelyard/import/translate.h"
#include "steelyard/recipes/language/overrides.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/models/imported_model.h"
#include "steelyard/recipes/runs/run.h"
#include "steelyard/recipes/schema/recipe.h"
#include "steelyard/recipes/searches/found_recipe.h"

namespace steelyard::cli {
namespace {

struct ImportArguments {
  std::string file;
  std::string architecture;  // of a file of weights alone
  std::string recipe;
  std::vector<std::string> overrides;
  std::string run_dir;
  std::vector<std::string> samples;
  OnnxChoices choices;
  bool dry_run = false;
};

// What training needs and nobody said: an import trains nothing.
constexpr const char* kDefaultRecipe = R"(version: 1
data: {validation: 0}
train: {epochs: 1, optimizer: {type: sgd, lr: 0.001}}
)";

std::string ports_text(const imports::OnnxPort& port) {
  return fmt::format("{} {} {}", shown(port.name), port.type, to_string(port.dims));
}

// "48,192,3", or "ids=16" of one of several inputs.
std::vector<NamedInput> shapes_from(const std::vector<std::string>& texts) {
  std::vector<NamedInput> inputs;
  for (const std::string& text : texts) {
    const std::size_t equals = text.rfind('=');
    NamedInput input;
    if (equals != std::string::npos) input.name = text.substr(0, equals);
    std::string sizes = equals == std::string::npos ? text : text.substr(equals + 1);
    for (std::size_t begin = 0; begin <= sizes.size();) {
      const std::size_t end = std::min(sizes.find(',', begin), sizes.size());
      std::int64_t size = 0;
      const auto [at, error] = std::from_chars(sizes.data() + begin, sizes.data() + end, size);
      if (error != std::errc() || at != sizes.data() + end || size < 1) {
        throw InputError("--sample: expected sizes such as 48,192,3 or ids=16, got '" +
                         shown(text) + "'");
      }
      input.shape.push_back(size);
      begin = end + 1;
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::string samples_text(const imports::SampleSpec& sample) {
  if (sample.inputs.empty()) return shape_string(sample.shape);
  return sample_form_text(DType::kF32, sample.shape, {.inputs = sample.inputs});
}

// The network as it would be imported, or why it is not.
ExitCode show_network(const ImportArguments& options) {
  imports::OnnxModel model = imports::read_onnx(options.file);
  fmt::print("{}: operation set {}, by {}\n", shown(options.file), model.opset,
             model.producer.empty() ? "an unnamed producer" : shown(model.producer));
  for (const auto& port : model.inputs) fmt::print("input  {}\n", ports_text(port));
  for (const auto& port : model.outputs) fmt::print("output {}\n", ports_text(port));
  choose(model, options.choices, "--batch-axis");
  const imports::SampleSpec sample = imports::sample_of(model, shapes_from(options.samples));
  if (const auto cut = imports::cut_of(model, sample)) {
    fmt::print("steelyard quantize cuts it {}\n", imports::to_string(*cut, model));
  }
  const imports::Imported imported = imports::translate(model, sample);
  imports::build(imported.graph, /*with_head=*/true, shown(options.file));  // as a run would
  std::int64_t parameters = 0;
  for (const NamedTensor& tensor : imported.weights) parameters += tensor.tensor.size();
  fmt::print("samples {} -> {}, {} modules of {} nodes, {} weights\n{}", samples_text(sample),
             imports::outputs_text(imported.graph), imported.graph.nodes.size(), model.nodes.size(),
             parameters, to_string(imported.graph));
  for (const imports::PartSpec& part : imported.graph.output_parts) {
    fmt::print("output {} {} from value {} on\n", shown(part.port.name), shape_string(part.shape),
               part.first);
  }
  for (const auto& [axis, name] : imported.graph.input.free) {
    fmt::print("exports leave dimension {} of samples free{}\n", axis + 1,
               name.empty() ? "" : ": " + shown(name));
  }
  for (const std::string& note : imported.notes) fmt::print("note: {}\n", shown(note));
  return kDone;
}

// What the user has not written has no line: messages about it name the command.
YamlNode without_lines(YamlNode node) { return placed_at(std::move(node), "import"); }

// The number of outputs is the data's, whatever the model is.
void set_model(YamlNode& document, YamlNode model) {
  model = without_lines(std::move(model));
  if (const YamlNode* before = document.find("model")) copy_entry(model, *before, "classes");
  set_entry(document, "model", std::move(model));
}

void require_data(YamlNode document, const std::vector<std::string>& overrides) {
  for (const std::string& override : overrides) apply_override(document, override);
  const YamlNode* data = document.find("data");
  if (data != nullptr && data->find("dataset") != nullptr) return;
  throw InputError(
      "import needs data: --set data.dataset=... or --recipe FILE (--dry-run needs none)");
}

// A recipe with the file as its model.
Recipe recipe_of(const ImportArguments& options, const Registries& registries) {
  YamlNode document;
  if (!options.recipe.empty()) {
    document = load_recipe(options.recipe, {}, registries).given;
    for (const char* section : {"quantize", "calibrate", "schedule", "export", "init"}) {
      remove_entry(document, section);
    }
  } else {
    document = without_lines(parse_yaml(kDefaultRecipe, "import"));
    require_data(document, options.overrides);
  }
  set_entry(document, "name", without_lines(yaml_scalar(run_name(options.file))));
  YamlNode path = yaml_scalar(options.file);
  path.quoted = true;
  if (options.architecture.empty()) {
    YamlNode model = yaml_table({{"onnx", std::move(path)}});
    add_choices(model, options.choices);
    set_model(document, std::move(model));
  } else {
    set_model(document, yaml_table({{"type", yaml_scalar(options.architecture)}}));
    set_entry(document, "init", without_lines(yaml_table({{"checkpoint", std::move(path)}})));
  }
  for (const std::string& override : options.overrides) apply_override(document, override);
  return read_recipe(std::move(document), registries);
}

// A file of weights alone does not say of which network they are.
void require_network(const ImportArguments& options) {
  const std::string kind = kind_of(InputFile(options.file));
  const bool weights_alone =
      kind == kTorchKind ||
      (kind == kSafetensorsKind &&
       !SafetensorsReader(options.file).header().metadata.contains(kNetworkKey));
  if (weights_alone && options.architecture.empty()) {
    throw InputError(
        shown(options.file) +
        ": holds weights only: name their network with --architecture (resnet18, ...)");
  }
  if (!options.architecture.empty() && options.dry_run) {
    throw InputError("import: --dry-run is for ONNX files; 'steelyard inspect' lists weights");
  }
  if (!options.architecture.empty() && options.choices.any()) {
    throw InputError(
        "import: --output, --batch-axis and --freeze are for ONNX files, not for an "
        "--architecture");
  }
}

void require_no_run(const ImportArguments& options) {
  if (options.recipe.empty() && options.overrides.empty() && options.run_dir.empty()) return;
  throw InputError("import: --dry-run makes no run: expected no --recipe, --set or --run-dir");
}

ExitCode import_model(const ImportArguments& options, const Registries& registries) {
  require_network(options);
  if (options.dry_run) {
    require_no_run(options);
    return show_network(options);
  }
  if (!options.samples.empty()) {
    throw InputError("import: --sample needs --dry-run: otherwise the data gives the shape");
  }
  Recipe recipe = recipe_of(options, registries);
  const std::string folder = options.run_dir.empty() ? "runs/" + recipe.name : options.run_dir;
  Run run(std::move(recipe),
          {.folder = folder, .tested = [&](const Metrics& final) { print_result(run, final); }},
          registries);
  run.require_folder();
  show(model_text(run.experiment(), run.device()));
  print_notes(run.experiment().notes());
  run.save_untrained();
  return kDone;
}

}  // namespace

void add_choices(CLI::App& verb, OnnxChoices& choices) {
  verb.add_option("--output", choices.outputs,
                  "An output of the ONNX file, or a value inside, that is kept; may be given "
                  "several times (default: all outputs)")
      ->allow_extra_args(false);
  verb.add_option(
          "--batch-axis", choices.batch_axes,
          "Which dimension of an input of the ONNX file is the batch, the first being 0, if "
          "the file does not say it: state=1 of the input state, or 1 of the only one")
      ->allow_extra_args(false);
  verb.add_option("--freeze", choices.freeze,
                  "An input of the ONNX file that becomes a constant, and its value: sr=16000")
      ->allow_extra_args(false);
}

Verb add_import(CLI::App& app) {
  auto options = std::make_shared<ImportArguments>();
  CLI::App* verb = app.add_subcommand("import",
                                      "Make a float run of a model that was trained elsewhere, to "
                                      "evaluate, calibrate, fine-tune and "
                                      "export");
  verb->add_option("file", options->file,
                   "An ONNX file, or weights (safetensors, PyTorch's .pt) with --architecture")
      ->required();
  verb->add_option("--architecture", options->architecture,
                   "The built-in architecture of the weights: resnet18, mobilenet_v2, ...");
  verb->add_option("--recipe", options->recipe,
                   "A recipe or preset with the data and training of the run");
  verb->add_option("--set", options->overrides,
                   "Set or override one value: --set data.dataset=safetensors")
      ->allow_extra_args(false);
  verb->add_option("--run-dir", options->run_dir, "The run's folder (default: runs/<file>)");
  verb->add_flag("--dry-run", options->dry_run,
                 "Only print the network, or each node that cannot be imported and why");
  verb->add_option("--sample", options->samples,
                   "With --dry-run: the shape of a sample, such as 48,192,3 (height, width, "
                   "channels), if the file leaves it free; of one of several inputs, ids=16")
      ->allow_extra_args(false);
  add_choices(*verb, options->choices);
  add_threads(*verb);
  return [options](const Registries& registries) { return import_model(*options, registries); };
}

}  // namespace steelyard::cli
