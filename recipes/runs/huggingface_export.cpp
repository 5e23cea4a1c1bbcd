#include "steelyard/recipes/runs/huggingface_export.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "steelyard/export/compressed_tensors.h"
#include "steelyard/framework/autograd/headed_model.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/json_problem.h"
#include "steelyard/framework/files/safetensors_folder.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/import/language/huggingface_decoder.h"
#include "steelyard/qat/forms/weighted_layers.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/recipes/models/imported_model.h"

namespace steelyard {
namespace {

using Json = nlohmann::ordered_json;
using Layers = std::map<std::string, qat::QuantizedLayer*>;  // by the name of their weight

constexpr std::uint64_t kMostTokenizerBytes = std::uint64_t{256} << 20;
// Beside the weights and config.json: what tokenizes, and how text is made.
constexpr std::array kCopied = {"tokenizer.json",     "tokenizer_config.json",
                                "tokenizer.model",    "special_tokens_map.json",
                                "added_tokens.json",  "vocab.json",
                                "merges.txt",         "chat_template.jinja",
                                "chat_template.json", "generation_config.json"};

Layers layers_of(Module& model) {
  Layers layers;
  for (const qat::NamedLayer& entry : qat::layers_with_quantized_weights(model)) {
    layers[entry.name + ".weight"] = entry.layer;
  }
  return layers;
}

std::string layer_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

// The parameters that the float network has, too: without learned scales.
std::vector<NamedParameter> stored_parameters(Module& model) {
  std::set<std::string> quantizers;
  for (const qat::NamedQuantizer& entry : qat::named_quantizers(model)) {
    quantizers.insert(entry.name);
  }
  std::vector<NamedParameter> parameters;
  for (NamedParameter& p : model.named_parameters()) {
    if (!quantizers.contains(layer_of(p.name))) parameters.push_back(std::move(p));
  }
  return parameters;
}

qat::QConfig config_of(const qat::QuantizedLayer& layer) {
  qat::QConfig config;
  config.weights = layer.weight_quantizer()->config();
  if (const observers::QScheme* inputs = layer.dynamic_input()) {
    config.activations.emplace().scheme = *inputs;
  }
  return config;
}

deploy::CompressedLayer compressed(const std::string& name, qat::QuantizedLayer& layer) {
  const qat::WeightCodes codes = layer.evaluated_weights(Variable(Tensor::zeros({1, 1})));
  deploy::CompressedLayer made{name, config_of(layer), codes.codes, codes.qparams.scale};
  // A row that is shorter than a group is one.
  std::int64_t& group = made.config.weights->scheme.group_size;
  group = std::min(group, made.codes.dim(1));
  return made;
}

// Values in the type that the source has for them, unless one would be infinite in it.
Tensor in_type_of(const SafetensorsFolder& source, const std::string& name, const Tensor& values) {
  const SafetensorsEntry* entry = source.find(name);
  if (entry == nullptr || entry->dtype == DType::kF32) return values;
  Tensor narrow = values.to(entry->dtype);
  const Tensor held = narrow.to(DType::kF32);
  const auto span = held.span<float>();
  const bool finite =
      std::all_of(span.begin(), span.end(), [](float value) { return std::isfinite(value); });
  return finite ? narrow : values;
}

// Where config.json names a type, it is that of the floats in the file.
void set_type(const std::vector<NamedTensor>& floats, Json& config) {
  const bool same = std::all_of(floats.begin(), floats.end(), [&](const NamedTensor& t) {
    return t.tensor.dtype() == floats[0].tensor.dtype();
  });
  const DType dtype = same && !floats.empty() ? floats[0].tensor.dtype() : DType::kF32;
  const char* name = dtype == DType::kBF16  ? "bfloat16"
                     : dtype == DType::kF16 ? "float16"
                                            : "float32";
  bool named = false;
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!config.contains(key)) continue;
    config[key] = name;
    named = true;
  }
  if (!named) config["torch_dtype"] = name;
}

Json config_in(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / imports::kConfigFile;
  try {
    return Json::parse(read_file(path, imports::kMostConfigBytes));
  } catch (const Json::exception& error) {
    throw InputError(json_problem(printable(path.string()), error));
  }
}

// The bits of the weights of each layer that config.json's section names.
std::map<std::string, int> bits_in(const Json& section, const std::string& file) {
  std::map<std::string, int> bits;
  if (section.is_null()) return bits;
  try {
    for (const auto& [name, group] : section.at("config_groups").items()) {
      for (const Json& target : group.at("targets")) {
        bits[target.get<std::string>()] = group.at("weights").at("num_bits").get<int>();
      }
    }
  } catch (const Json::exception& error) {
    throw InputError(json_problem(file + ": " + deploy::kCompressionSection, error));
  }
  return bits;
}

// What is read of an exported folder: its floats, and what codes stand for.
class ExportedFolder final : public imports::DecoderWeights {
 public:
  explicit ExportedFolder(const std::filesystem::path& folder)
      : name_(printable(folder.string())), tensors_(folder) {
    const Json config = config_in(folder);
    if (config.contains(deploy::kCompressionSection)) {
      section_ = config.at(deploy::kCompressionSection);
    }
    bits_ = bits_in(section_, name_);
  }

  const Json& section() const { return section_; }
  std::string file() const override { return name_; }
  bool has(const std::string& parameter) const override {
    const std::string name = imports::huggingface_tensor(parameter);
    return tensors_.find(name) != nullptr || tensors_.find(name + "_packed") != nullptr;
  }
  Tensor read(const std::string& parameter, const Shape& shape) override {
    const std::string name = imports::huggingface_tensor(parameter);
    if (tensors_.find(name + "_scale") != nullptr) return dequantized(name, shape);
    const SafetensorsEntry* entry = tensors_.find(name);
    return read(name, entry == nullptr ? DType::kF32 : entry->dtype, shape).to(DType::kF32);
  }
  // Values as the type rounds them that a parameter's tensor has.
  Tensor rounded(const std::string& parameter, const Tensor& values) const {
    const SafetensorsEntry* entry = tensors_.find(imports::huggingface_tensor(parameter));
    if (entry == nullptr || !is_floating(entry->dtype)) return values;
    return values.to(entry->dtype).to(DType::kF32);
  }
  // A tensor that was not read, "" without one.
  std::string unread() const {
    for (const std::string& name : tensors_.tensors()) {
      if (!read_.contains(name)) return name;
    }
    return "";
  }

 private:
  Tensor read(const std::string& name, DType dtype, const Shape& shape) {
    const SafetensorsEntry* entry = tensors_.find(name);
    if (entry == nullptr || entry->dtype != dtype || entry->shape != shape) {
      throw InputError(name_ + ": expected a tensor '" + name + "' " +
                       std::string(dtype_name(dtype)) + " " + shape_string(shape));
    }
    read_.insert(name);
    return tensors_.read(name);
  }

  Tensor dequantized(const std::string& weight, const Shape& shape) {
    const Tensor codes = codes_of(weight, shape);
    const std::string name = weight + "_scale";
    // One, or a column for each group of a row's weights.
    const Shape given = tensors_.find(name)->shape;
    const bool whole = given == Shape{1};
    const std::int64_t groups = given.size() == 2 ? std::max<std::int64_t>(given[1], 1) : 1;
    const Tensor scales = read(name, DType::kF32, whole ? given : Shape{shape[0], groups});
    if (codes.size() % scales.size() != 0) {
      throw InputError(name_ + ": tensor '" + name + "': expected a divisor of the " +
                       std::to_string(shape[1]) + " weights of a row, got " + shape_string(given));
    }
    Tensor values = Tensor::empty(shape);
    const std::int64_t each = codes.size() / scales.size();
    for (std::int64_t i = 0; i < codes.size(); ++i) {
      values.data<float>()[i] =
          static_cast<float>(codes.data<std::int8_t>()[i]) * scales.data<float>()[i / each];
    }
    return values;
  }

  Tensor codes_of(const std::string& weight, const Shape& shape) {
    if (tensors_.find(weight) != nullptr) return read(weight, DType::kI8, shape);
    const std::string layer = layer_of(weight);
    const auto bits = bits_.find(layer);
    if (bits == bits_.end() || bits->second < 2 || bits->second > 8) {
      throw InputError(name_ + ": config.json: expected 2 to 8 bits of '" + layer + "'");
    }
    const Tensor stored = read(weight + "_shape", DType::kI64, {2});
    const auto sizes = stored.span<std::int64_t>();
    if (!std::equal(sizes.begin(), sizes.end(), shape.begin())) {
      throw InputError(name_ + ": tensor '" + weight + "_shape': expected " + shape_string(shape) +
                       ", got " + shape_string({sizes[0], sizes[1]}));
    }
    const std::int64_t words = (shape[1] * bits->second + 31) / 32;
    const Tensor packed = read(weight + "_packed", DType::kI32, {shape[0], words});
    return deploy::unpack_bits(packed, bits->second, shape[1]);
  }

  std::string name_;
  SafetensorsFolder tensors_;
  Json section_;  // null where all is float
  std::map<std::string, int> bits_;
  std::set<std::string> read_;  // tensors
};

// What a run's weights are in a folder.
struct Stored {
  std::vector<NamedTensor> floats;
  std::vector<deploy::CompressedLayer> codes;
  Json section;  // null without codes
};

Stored stored_form(Module& model,
                   const std::function<Tensor(const std::string&, const Tensor&)>& in_type) {
  const Layers layers = layers_of(model);
  Stored stored;
  for (const NamedParameter& p : stored_parameters(model)) {
    const std::string name = imports::huggingface_tensor(p.name);
    const auto layer = layers.find(p.name);
    if (layer == layers.end()) {
      stored.floats.push_back({name, in_type(name, p.variable.value())});
    } else {
      stored.codes.push_back(compressed(layer_of(name), *layer->second));
    }
  }
  if (stored.codes.empty()) return stored;
  std::vector<std::string> in_float;
  for (const NamedModule& entry : model.named_modules()) {
    if (dynamic_cast<const RowLayer*>(entry.module) != nullptr) {
      in_float.push_back(imports::huggingface_tensor(entry.name));
    }
  }
  stored.section = deploy::compression_config(stored.codes, in_float);
  return stored;
}

// What was trained becomes what the folder's types have room for.
void round_floats(Module& model, const ExportedFolder& exported) {
  const Layers layers = layers_of(model);
  for (const NamedParameter& p : stored_parameters(model)) {
    if (layers.contains(p.name)) continue;
    const Tensor& values = p.variable.value();
    values.copy_from(exported.rounded(p.name, values));
  }
}

void compare_weights(Module& model, const std::vector<NamedTensor>& theirs,
                     WeightComparison& result) {
  std::map<std::string, Tensor> values;
  for (const NamedTensor& t : theirs) values[t.name] = t.tensor;
  const Layers layers = layers_of(model);
  for (const NamedParameter& p : stored_parameters(model)) {
    const auto layer = layers.find(p.name);
    if (layer == layers.end()) {
      result.others += p.variable.value().size();
      result.differing_others += differing_values(values.at(p.name), p.variable.value());
      continue;
    }
    ForwardContext evaluation;
    const Tensor ours = layer->second->weight_quantizer()->forward(p.variable, evaluation).value();
    result.values += ours.size();
    result.differing_values += differing_values(values.at(p.name), ours);
  }
}

}  // namespace

std::filesystem::path source_huggingface(const LoadedRun& run) {
  const std::filesystem::path source = run.experiment->recipe().model.huggingface.value();
  if (!is_folder(source)) {
    throw InputError(printable(source.string()) +
                     ": model.huggingface: expected the folder that the run began with, whose "
                     "tokenizer and config.json the new one has");
  }
  const auto known = run.sources.find("model.huggingface");
  if (known != run.sources.end() && imports::digest_of_huggingface(source) != known->second) {
    throw InputError(printable(source.string()) +
                     ": model.huggingface: expected the folder that the run began with (sha256 " +
                     known->second + ")");
  }
  return source;
}

HuggingfaceFiles write_huggingface(const LoadedRun& run, const std::filesystem::path& folder) {
  const std::filesystem::path source = source_huggingface(run);
  if (std::error_code error; std::filesystem::equivalent(source, folder, error)) {
    throw InputError(printable(folder.string()) +
                     ": is the float model (model.huggingface), which the new one would replace: "
                     "expected another folder");
  }
  if (path_exists(folder / kWeightsIndexFile)) {
    throw InputError(printable((folder / kWeightsIndexFile).string()) +
                     ": belongs to another model in this folder, whose files readers would take: "
                     "expected another folder");
  }
  const SafetensorsFolder before(source);
  HuggingfaceFiles files;
  Stored stored = stored_form(run.experiment->model(), [&](const auto& name, const Tensor& values) {
    Tensor typed = in_type_of(before, name, values);
    files.floats += values.size();
    files.rounded += differing_values(typed.to(DType::kF32), values);
    return typed;
  });
  Json config = config_in(source);
  set_type(stored.floats, config);
  if (!stored.section.is_null()) config[deploy::kCompressionSection] = stored.section;
  std::vector<NamedTensor> tensors = std::move(stored.floats);
  for (const deploy::CompressedLayer& layer : stored.codes) {
    for (NamedTensor& tensor : deploy::compressed_tensors(layer)) {
      tensors.push_back(std::move(tensor));
    }
  }
  std::vector<std::filesystem::path>& written = files.paths;
  written = {folder / kWeightsFile, folder / imports::kConfigFile};
  write_safetensors(written[0], {std::move(tensors), {{"format", "pt"}}});
  write_file_atomic(written[1], config.dump(2) + "\n");
  for (const char* name : kCopied) {
    if (!path_exists(source / name)) continue;
    written.push_back(folder / name);
    write_file_atomic(written.back(), read_file(source / name, kMostTokenizerBytes));
  }
  return files;
}

HuggingfaceComparison compare_huggingface(const LoadedRun& run, const std::filesystem::path& folder,
                                          std::int64_t samples) {
  Experiment& experiment = *run.experiment;
  ExportedFolder exported(folder);
  HuggingfaceComparison result;
  const NoGradGuard no_grad;
  const Stored ours = stored_form(experiment.model(),
                                  [](const std::string&, const Tensor& values) { return values; });
  const imports::GraphSpec& network = *experiment.network();
  const imports::Imported theirs = imports::import_huggingface(
      folder, network.sample[0], document_border(experiment.recipe().data.tokens, folder),
      exported);
  if (imports::text_of(theirs.graph) != imports::text_of(network)) {
    result.problem = "config.json: describes another network than the run's";
  } else if (exported.section() != ours.section) {
    result.problem = std::string("config.json: '") + deploy::kCompressionSection +
                     "' is not that of the run's layers";
  } else if (const std::string more = exported.unread(); !more.empty()) {
    result.problem = "model.safetensors: tensor '" + printable(more) + "' is none of the run's";
  }
  if (!result.problem.empty()) return result;
  round_floats(experiment.model(), exported);
  compare_weights(experiment.model(), theirs.weights, result);
  const auto layers = qat::layers_with_quantized_weights(experiment.model());
  const bool in_float = std::ranges::all_of(
      layers, [](const auto& entry) { return entry.layer->dynamic_input() == nullptr; });
  if (!in_float) return result;
  const std::string name = printable(folder.string());
  const std::shared_ptr<Module> model = imports::build(theirs.graph, /*with_head=*/true, name);
  load_into(*model, theirs.weights, name);
  const Dataset test =
      spread_samples(experiment.test(), std::min(samples, experiment.test().size()));
  const Tensor a = outputs_of(experiment.model(), test, {}, 1), b = outputs_of(*model, test, {}, 1);
  result.tokens = a.size() / a.dim(-1);
  result.differing_tokens = differing_tokens(a, b);
  return result;
}

}  // namespace steelyard
