#include "steelyard/recipes/runs/huggingface_export.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "steelyard/export/compressed_tensors.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/safetensors_folder.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/import/language/huggingface_decoder.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/forms/weighted_layers.h"
#include "steelyard/qat/model/named_quantizers.h"

namespace steelyard {
namespace {

using Json = nlohmann::ordered_json;
using Layers = std::map<std::string, qat::QuantizedLayer*>;  // by the name of their weight

constexpr const char* kWeights = "model.safetensors";
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

// Values in the type that the source has for them, if it holds them exactly.
Tensor in_type_of(const SafetensorsFolder& source, const std::string& name, const Tensor& values) {
  const SafetensorsEntry* entry = source.find(name);
  if (entry == nullptr || entry->dtype == DType::kF32) return values;
  Tensor narrow = values.to(entry->dtype);
  return differing_values(narrow.to(DType::kF32), values) == 0 ? narrow : values;
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
    throw InputError(printable(path.string()) + ": " + printable(error.what()));
  }
}

// The bits of the weights of each layer that a folder's config.json names.
std::map<std::string, int> bits_in(const Json& config, const std::string& file) {
  std::map<std::string, int> bits;
  try {
    if (!config.contains(deploy::kCompressionSection)) return bits;
    for (const auto& [name, group] :
         config.at(deploy::kCompressionSection).at("config_groups").items()) {
      for (const Json& target : group.at("targets")) {
        bits[target.get<std::string>()] = group.at("weights").at("num_bits").get<int>();
      }
    }
  } catch (const Json::exception& error) {
    throw InputError(file + ": " + deploy::kCompressionSection + ": " + printable(error.what()));
  }
  return bits;
}

// What is read of an exported folder.
class ExportedFolder {
 public:
  explicit ExportedFolder(const std::filesystem::path& folder)
      : name_(printable(folder.string())),
        bits_(bits_in(config_in(folder), name_)),
        tensors_(folder) {}

  Tensor read(const std::string& name, DType dtype, const Shape& shape) const {
    const SafetensorsEntry* entry = tensors_.find(name);
    if (entry == nullptr || entry->dtype != dtype || entry->shape != shape) {
      throw InputError(name_ + ": expected a tensor '" + name + "' " +
                       std::string(dtype_name(dtype)) + " " + shape_string(shape));
    }
    return tensors_.read(name);
  }

  // Values of a parameter that is in float.
  Tensor floats(const std::string& parameter, const Shape& shape) const {
    const std::string name = imports::huggingface_tensor(parameter);
    const SafetensorsEntry* entry = tensors_.find(name);
    return read(name, entry == nullptr ? DType::kF32 : entry->dtype, shape).to(DType::kF32);
  }

  // What the codes of a layer's weight stand for.
  Tensor dequantized(const std::string& module, const Shape& shape) const {
    const std::string layer = imports::huggingface_tensor(module);
    const Tensor codes = codes_of(layer, shape);
    const std::string name = layer + ".weight_scale";
    const SafetensorsEntry* entry = tensors_.find(name);
    const Shape grid = entry == nullptr ? Shape{1} : entry->shape;
    const Tensor scales = read(name, DType::kF32, grid);
    if (scales.size() == 0 || codes.size() % scales.size() != 0) {
      throw InputError(name_ + ": tensor '" + name + "': expected a divisor of the " +
                       std::to_string(codes.size()) + " weights, got " + shape_string(grid));
    }
    Tensor values = Tensor::empty(shape);
    const std::int64_t each = codes.size() / scales.size();
    for (std::int64_t i = 0; i < codes.size(); ++i) {
      values.data<float>()[i] =
          static_cast<float>(codes.data<std::int8_t>()[i]) * scales.data<float>()[i / each];
    }
    return values;
  }

 private:
  Tensor codes_of(const std::string& layer, const Shape& shape) const {
    if (tensors_.find(layer + ".weight") != nullptr) {
      return read(layer + ".weight", DType::kI8, shape);
    }
    const auto bits = bits_.find(layer);
    if (bits == bits_.end() || bits->second < 2 || bits->second > 8) {
      throw InputError(name_ + ": config.json: expected 2 to 8 bits of '" + layer + "'");
    }
    const std::int64_t words = (shape[1] * bits->second + 31) / 32;
    const Tensor packed = read(layer + ".weight_packed", DType::kI32, {shape[0], words});
    return deploy::unpack_bits(packed, bits->second, shape[1]);
  }

  std::string name_;
  std::map<std::string, int> bits_;
  SafetensorsFolder tensors_;
};

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

std::vector<std::filesystem::path> write_huggingface(const LoadedRun& run,
                                                     const std::filesystem::path& folder) {
  const std::filesystem::path source = source_huggingface(run);
  if (std::error_code error; std::filesystem::equivalent(source, folder, error)) {
    throw InputError(printable(folder.string()) +
                     ": is the float model (model.huggingface), which the new one would replace: "
                     "expected another folder");
  }
  Module& model = run.experiment->model();
  const SafetensorsFolder stored(source);
  const Layers layers = layers_of(model);
  std::vector<deploy::CompressedLayer> codes;
  std::vector<NamedTensor> tensors;
  for (const NamedParameter& p : stored_parameters(model)) {
    const auto layer = layers.find(p.name);
    if (layer == layers.end()) {
      const std::string name = imports::huggingface_tensor(p.name);
      tensors.push_back({name, in_type_of(stored, name, p.variable.value())});
    } else {
      codes.push_back(compressed(imports::huggingface_tensor(layer_of(p.name)), *layer->second));
    }
  }
  Json config = config_in(source);
  set_type(tensors, config);
  if (!codes.empty()) {
    std::vector<std::string> in_float;
    for (const NamedModule& entry : model.named_modules()) {
      if (dynamic_cast<const Linear*>(entry.module) != nullptr)
        in_float.push_back(imports::huggingface_tensor(entry.name));
    }
    if (config.value("tie_word_embeddings", false)) in_float.emplace_back("lm_head");
    config[deploy::kCompressionSection] = deploy::compression_config(codes, in_float);
  }
  for (const deploy::CompressedLayer& layer : codes) {
    for (NamedTensor& tensor : deploy::compressed_tensors(layer)) {
      tensors.push_back(std::move(tensor));
    }
  }
  std::vector<std::filesystem::path> written{folder / kWeights, folder / imports::kConfigFile};
  write_safetensors(written[0], {std::move(tensors), {{"format", "pt"}}});
  write_file_atomic(written[1], config.dump(2) + "\n");
  for (const char* name : kCopied) {
    if (!path_exists(source / name)) continue;
    written.push_back(folder / name);
    write_file_atomic(written.back(), read_file(source / name, kMostTokenizerBytes));
  }
  return written;
}

HuggingfaceComparison compare_huggingface(const LoadedRun& run, const std::filesystem::path& folder,
                                          std::int64_t samples) {
  Experiment& experiment = *run.experiment;
  const ExportedFolder exported(folder);
  const Layers layers = layers_of(experiment.model());
  HuggingfaceComparison result;
  std::vector<NamedTensor> values;
  bool in_float = true;
  const NoGradGuard no_grad;
  for (const NamedParameter& p : stored_parameters(experiment.model())) {
    const auto found = layers.find(p.name);
    if (found == layers.end()) {
      values.push_back({p.name, exported.floats(p.name, p.variable.shape())});
      result.others += p.variable.value().size();
      result.differing_others += differing_values(values.back().tensor, p.variable.value());
      continue;
    }
    qat::QuantizedLayer& layer = *found->second;
    in_float = in_float && layer.dynamic_input() == nullptr;
    values.push_back({p.name, exported.dequantized(layer_of(p.name), p.variable.shape())});
    ForwardContext evaluation;
    const Tensor ours = layer.weight_quantizer()->forward(p.variable, evaluation).value();
    result.values += ours.size();
    result.differing_values += differing_values(values.back().tensor, ours);
  }
  if (!in_float) return result;
  const std::shared_ptr<Module> theirs =
      imports::build(*experiment.network(), /*with_head=*/true, printable(folder.string()));
  for (const NamedBuffer& buffer : theirs->named_buffers()) {
    values.push_back({buffer.name, buffer.tensor});
  }
  load_into(*theirs, values, printable(folder.string()));
  const Dataset test =
      spread_samples(experiment.test(), std::min(samples, experiment.test().size()));
  const Tensor a = outputs_of(experiment.model(), test, {}, 1),
               b = outputs_of(*theirs, test, {}, 1);
  result.tokens = a.size() / a.dim(-1);
  result.differing_tokens = differing_tokens(a, b);
  return result;
}

}  // namespace steelyard
