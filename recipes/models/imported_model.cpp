#include "steelyard/recipes/models/imported_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "steelyard/export/compressed_tensors.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/gguf/gguf.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/import/language/gguf_decoder.h"
#include "steelyard/import/language/huggingface_decoder.h"
#include "steelyard/import/onnx/onnx_file.h"

namespace steelyard {
namespace {

ImportedModel of_checkpoint(const std::filesystem::path& path, const ModelSpec& spec) {
  const std::string name = printable(path.string());
  const OnnxChoices& choices = spec.choices;
  const TensorFileMetadata metadata = load_checkpoint_metadata(path);
  const auto found = metadata.find(kNetworkKey);
  if (found == metadata.end()) {
    throw InputError(name +
                     ": expected an ONNX file or a checkpoint of a run that began with one, "
                     "got another checkpoint");
  }
  ImportedModel model{.graph = imports::graph_from(found->second, name)};
  if (!choices.batch_axes.empty()) {
    throw InputError(name +
                     ": model.batch_axis: is for ONNX files, the network of a checkpoint has "
                     "its batches in their places");
  }
  if (!choices.freeze.empty()) {
    throw InputError(
        name +
        ": model.freeze: is for ONNX files, the network of a checkpoint has the inputs "
        "that it was imported with");
  }
  std::vector<std::string> own;
  for (const imports::PortSpec& port : model.graph.output_ports()) own.push_back(port.name);
  if (choices.outputs.empty() || choices.outputs == own) return model;
  throw InputError(name + ": model.output: expected " + printable(join(own)) +
                   ", as the checkpoint's network has, got " + printable(join(choices.outputs)));
}

// The length of sequences.
std::int64_t length_of(const imports::SampleSpec& sample, const std::filesystem::path& model) {
  if (sample.shape.size() == 1) return sample.shape[0];
  throw InputError(printable(model.string()) +
                   ": a language model takes sequences [length] of tokens (data.dataset: "
                   "tokens), the dataset has samples " +
                   shape_string(sample.shape));
}

// The token that ends documents, by the options or as the file has it; `place` names that.
std::optional<std::int64_t> border_of(const std::optional<TokenOptions>& tokens,
                                      const std::function<std::optional<std::int64_t>()>& stored,
                                      const std::function<std::string()>& place) {
  if (!tokens || tokens->documents != TokenDocuments::kSeparate) return std::nullopt;
  if (tokens->end) return tokens->end;
  if (const auto number = stored()) return number;
  throw InputError(place() +
                   ": expected the token that ends a document, the file has none: "
                   "data.tokens.end says it");
}

ImportedModel of_gguf(const std::filesystem::path& path, const imports::SampleSpec& sample,
                      const std::optional<TokenOptions>& tokens) {
  const std::int64_t length = length_of(sample, path);
  const GgufReader file(path);
  imports::Imported imported = imports::import_decoder(file, length, document_border(tokens, file));
  return {std::move(imported.graph), std::move(imported.weights), sha256_of_file(path)};
}

ImportedModel of_huggingface(const std::filesystem::path& folder, const imports::SampleSpec& sample,
                             const std::optional<TokenOptions>& tokens) {
  const std::int64_t length = length_of(sample, folder);
  require_float_folder(folder);
  imports::Imported imported =
      imports::import_huggingface(folder, length, document_border(tokens, folder));
  return {std::move(imported.graph), std::move(imported.weights),
          imports::digest_of_huggingface(folder)};
}

// Whether the inputs of samples with several lie where the network looks for them.
bool has_inputs_of(const imports::GraphSpec& graph, const imports::SampleSpec& sample) {
  std::int64_t first = 0;
  for (const NamedInput& input : sample.inputs) {
    const bool read =
        std::any_of(graph.parts.begin(), graph.parts.end(), [&](const imports::PartSpec& part) {
          return part.port.name == input.name && part.first == first &&
                 shape_size(part.shape) == shape_size(input.shape);
        });
    if (!read) return false;
    first += shape_size(input.shape);
  }
  return !sample.inputs.empty() || graph.parts.size() <= 1;
}

std::string inputs_text(const imports::GraphSpec& graph) {
  DatasetNames names;
  if (graph.parts.size() > 1) {
    for (const auto& part : graph.parts) names.inputs.push_back({part.port.name, part.shape});
  }
  return sample_form_text(DType::kF32, graph.sample, names);
}

// Where there are not as many outputs as the recipe or, where it is silent, the data asks for.
std::string problem_of_outputs(const imports::GraphSpec& graph, const ModelSpec& spec,
                               std::int64_t classes) {
  const Shape& sample = graph.output_sample;
  const std::int64_t outputs = shape_size(sample);
  const std::int64_t asked = spec.classes.value_or(classes);
  constexpr const char* kHint = ": data.class_names can list all classes";
  if (asked == outputs && classes != 0 && classes != asked) {
    return "model.classes is " + std::to_string(asked) + ", the data has " +
           std::to_string(classes) + " classes" + (asked > classes ? kHint : "");
  }
  if (asked == 0 || outputs == asked) return "";
  if (!graph.output_parts.empty()) {
    return "expected " + std::to_string(asked) + " outputs for the classes, the network has " +
           imports::outputs_text(graph) + ": model.output names one of them";
  }
  const std::string found =
      sample.size() == 1 ? std::to_string(outputs) + " outputs" : "outputs " + shape_string(sample);
  if (spec.classes) {
    return "model.classes is " + std::to_string(asked) + ", the network has " + found;
  }
  return "the data has " + std::to_string(asked) + " classes, the network " + found +
         (outputs > asked ? kHint : "");
}

// Paths below the model are its own.
class WithOutputActivation : public Module {
 public:
  WithOutputActivation(std::shared_ptr<Module> model, std::shared_ptr<Module> activation)
      : model_(register_child("", std::move(model))),
        activation_(register_child("output_activation", std::move(activation))) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    return activation_(model_(x, context), context);
  }
  std::string type_name() const override { return "WithOutputActivation"; }

 private:
  Slot &model_, &activation_;
};

}  // namespace

std::optional<std::int64_t> document_border(const std::optional<TokenOptions>& tokens,
                                            const GgufReader& file) {
  constexpr const char* kEnd = "tokenizer.ggml.eos_token_id";
  const auto stored = [&] {
    const GgufValue* value = file.header().find(kEnd);
    return value == nullptr ? std::nullopt : value->whole_number();
  };
  return border_of(tokens, stored,
                   [&] { return file.name() + ": metadata '" + std::string(kEnd) + "'"; });
}

std::optional<std::int64_t> document_border(const std::optional<TokenOptions>& tokens,
                                            const std::filesystem::path& folder) {
  const auto stored = [&] {
    const std::vector<std::int64_t> ends = imports::ends_of_text(folder);
    return ends.empty() ? std::nullopt : std::optional(ends[0]);
  };
  return border_of(tokens, stored, [&] {
    return printable((folder / imports::kConfigFile).string()) + ": 'eos_token_id'";
  });
}

void require_float_folder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / imports::kConfigFile;
  const auto config = nlohmann::json::parse(read_file(path, imports::kMostConfigBytes), nullptr,
                                            /*allow_exceptions=*/false);
  const auto found = config.is_object() ? config.find(deploy::kCompressionSection) : config.end();
  if (!config.is_object() || found == config.end() || found->is_null()) return;
  throw InputError(printable(path.string()) + ": '" + deploy::kCompressionSection +
                   "': expected none: the weights of this folder are codes already");
}

ImportedModel read_imported_model(const ModelSpec& spec, const imports::SampleSpec& sample,
                                  const std::optional<TokenOptions>& tokens) {
  const std::filesystem::path path = spec.file().value();
  if (spec.huggingface && is_folder(path)) return of_huggingface(path, sample, tokens);
  if (kind_of(InputFile(path)) == kSafetensorsKind) return of_checkpoint(path, spec);
  if (spec.huggingface) {
    throw InputError(printable(path.string()) +
                     ": expected a folder with config.json, or a checkpoint of a run that began "
                     "with one");
  }
  if (spec.gguf) return of_gguf(path, sample, tokens);
  imports::OnnxModel model = imports::read_onnx(path);
  choose(model, spec.choices, "model.batch_axis");
  imports::Imported imported = imports::translate(model, sample);
  return {std::move(imported.graph), std::move(imported.weights), model.sha256,
          std::move(imported.notes)};
}

std::shared_ptr<Module> build_imported_model(const imports::GraphSpec& graph, const ModelSpec& spec,
                                             const imports::SampleSpec& sample,
                                             std::int64_t classes, bool with_head) {
  const std::string& place = spec.options.find(spec.file_key())->place;
  const std::string key = "model." + spec.file_key();
  if (graph.sample != sample.shape || !has_inputs_of(graph, sample)) {
    fail_at(place, key + ": the network takes samples of " + inputs_text(graph) +
                       ", the dataset has " +
                       sample_form_text(DType::kF32, sample.shape, {.inputs = sample.inputs}));
  }
  if (const std::string problem = problem_of_outputs(graph, spec, classes); !problem.empty()) {
    fail_at(place, key + ": " + problem);
  }
  return imports::build(graph, with_head, place + ": " + key);
}

std::shared_ptr<Module> with_output_activation(const imports::GraphSpec& graph,
                                               std::shared_ptr<Module> model) {
  return std::make_shared<WithOutputActivation>(std::move(model), imports::build_head(graph));
}

}  // namespace steelyard
