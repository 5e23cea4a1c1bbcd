#include "steelyard/recipes/runs/records/run_record.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "steelyard/framework/data/tokens/token_dataset.h"
#include "steelyard/framework/files/json_integer.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/models/imported_model.h"
#include "steelyard/recipes/schema/recipe_options.h"
#include "steelyard/runtime/preprocessing_json.h"

namespace steelyard {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDataKey = "data";
constexpr const char* kRecipeKey = "recipe";
constexpr const char* kSourcesKey = "sources";
constexpr std::int64_t kMostValuesOfASample = std::int64_t{1} << 31;

// The paths of a role in every recipe, whatever layers and models there are.
const std::vector<std::string>& paths_of(OptionRole role) {
  static const auto paths = [] {
    const RecipeOption table = recipe_options(builtin_registries());
    return std::pair(paths_of_role(table, OptionRole::kFree),
                     paths_of_role(table, OptionRole::kNotEssential));
  }();
  return role == OptionRole::kFree ? paths.first : paths.second;
}

void remove_path(YamlNode& table, std::string_view path) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return remove_entry(table, path);
  if (YamlNode* child = table.find(path.substr(0, dot))) remove_path(*child, path.substr(dot + 1));
}

void require(bool condition, const std::string& what) {
  if (!condition) throw InputError(what);
}

std::int64_t channels_of(const Shape& sample) { return sample.empty() ? 0 : sample.back(); }

void validate(const InputFormat& input) {
  std::int64_t values = 1;
  bool fits = !input.sample.empty();
  for (const std::int64_t extent : input.sample) {
    fits = fits && extent > 0 && extent <= kMostValuesOfASample / values;
    if (fits) values *= extent;
  }
  require(fits, "a sample of shape " + shape_string(input.sample));
  require(input.classes >= 0 && input.classes <= std::max(kMaxClasses, kMaxTokens),
          std::to_string(input.classes) + " classes");
}

bool is_valid(const Normalization& normalization) {
  const auto& [mean, stddev] = normalization;
  const auto finite = [](float v) { return std::isfinite(v); };
  return mean.size() == stddev.size() && std::all_of(mean.begin(), mean.end(), finite) &&
         std::all_of(stddev.begin(), stddev.end(), [&](float v) { return finite(v) && v > 0; });
}

void validate(const Normalization& normalization, const Shape& sample) {
  const std::int64_t channels = std::ssize(normalization.mean);
  require(is_valid(normalization) && (channels == 0 || channels == channels_of(sample)),
          "a normalization that does not fit the samples");
}

void validate(const DatasetNames& names, const InputFormat& input) {
  const auto& [classes, columns, inputs] = names;
  const std::int64_t features = feature_count(columns);
  require(classes.empty() || std::ssize(classes) == input.classes,
          std::to_string(classes.size()) + " names of classes");
  require(columns.empty() || input.sample == Shape{features},
          "columns of " + std::to_string(features) + " features");
  std::int64_t left = inputs.empty() ? 0 : shape_size(input.sample);
  for (const NamedInput& one : inputs) {
    std::int64_t values = 1;
    for (const std::int64_t extent : one.shape) {
      require(extent > 0 && values <= left / extent, "inputs of more values than a sample has");
      values *= extent;
    }
    left -= values;
  }
  require(left == 0, "inputs of less values than a sample has");
}

// Only what the dataset has: other records are as they were without names.
void add_names(const DatasetNames& names, Json& data) {
  if (!names.classes.empty()) data["class_names"] = names.classes;
  if (!names.columns.empty()) data["columns"] = deploy::columns_json(names.columns);
  for (const NamedInput& input : names.inputs) {
    data["inputs"].push_back({{"name", input.name}, {"shape", input.shape}});
  }
}

DatasetNames names_in(const Json& data) {
  DatasetNames names;
  if (data.contains("class_names")) data.at("class_names").get_to(names.classes);
  if (data.contains("columns")) names.columns = deploy::columns_from(data.at("columns"));
  if (data.contains("inputs")) {
    for (const Json& input : data.at("inputs")) {
      names.inputs.push_back(
          {input.at("name").get<std::string>(), integers_of<std::int64_t>(input.at("shape"))});
    }
  }
  return names;
}

struct DataRecord {
  InputFormat input;
  Normalization normalization;
  std::string digest;
  Normalization target_normalization = {};
  std::vector<double> output_units = {};
};

DataRecord parsed_data(const std::string& text) {
  const Json json = Json::parse(text);
  DataRecord data;
  const auto dtype = json.at("dtype").get<std::string>();
  require(dtype == dtype_name(DType::kU8) || dtype == dtype_name(DType::kF32),
          "inputs of dtype " + quote_for_message(dtype));
  data.input.dtype = dtype == dtype_name(DType::kU8) ? DType::kU8 : DType::kF32;
  data.input.sample = integers_of<std::int64_t>(json.at("sample"));
  data.input.classes = integer_of<std::int64_t>(json.at("classes"));
  json.at("mean").get_to(data.normalization.mean);
  json.at("std").get_to(data.normalization.stddev);
  json.at("sha256").get_to(data.digest);
  data.input.names = names_in(json);
  if (json.contains("target_mean")) {
    json.at("target_mean").get_to(data.target_normalization.mean);
    json.at("target_std").get_to(data.target_normalization.stddev);
  }
  if (json.contains("output_units")) json.at("output_units").get_to(data.output_units);
  require(std::all_of(data.output_units.begin(), data.output_units.end(),
                      [](double unit) { return std::isfinite(unit) && unit > 0; }),
          "units of outputs that are not above 0");
  require(is_valid(data.target_normalization) &&
              (data.target_normalization.mean.empty() || data.input.classes == 0),
          "a normalization of targets that does not fit");
  validate(data.input);
  validate(data.input.names, data.input);
  validate(data.normalization, data.input.sample);
  return data;
}

// What `parse` gives. Throws InputError that names the file and the key where it throws.
template <typename Parse>
auto parsed_metadata(const char* key, const std::string& source, const Parse& parse) {
  const std::string begin = source + ": metadata '" + key + "' is not valid: ";
  try {
    return parse();
  } catch (const nlohmann::json::exception& error) {
    throw InputError(begin + printable(error.what()));
  } catch (const std::invalid_argument& error) {
    throw InputError(begin + printable(error.what()));
  } catch (const InputError& error) {
    throw InputError(begin + error.what());
  }
}

std::optional<DataRecord> data_in(const TensorFileMetadata& metadata, const std::string& source) {
  const auto found = metadata.find(kDataKey);
  if (found == metadata.end()) return std::nullopt;
  return parsed_metadata(kDataKey, source, [&] { return parsed_data(found->second); });
}

// The essential recipe of a record that an earlier version may have written.
YamlNode recipe_in(const std::string& text, const std::string& source,
                   const Registries& registries) {
  YamlNode document = parse_yaml(text, source);
  YamlNode any = yaml_scalar("any");
  set_entry(document, "name", any);
  if (YamlNode* model = document.find("model")) {
    const bool own = model->find("type") != nullptr || model->find("layers") != nullptr;
    const YamlNode* exports = document.find("export");
    const bool gguf = exports != nullptr && exports->find("target") != nullptr;
    if (!own) set_entry(*model, gguf ? "gguf" : "onnx", any);
  }
  if (YamlNode* train = document.find("train")) {
    YamlNode* distill = train->find("distill");
    if (distill != nullptr && distill->find("teacher") == nullptr) {
      set_entry(*distill, "checkpoint", any);
    }
  }
  return essential_recipe(parse_recipe(to_yaml(document), source, {}, registries));
}

std::string numbers_text(const std::vector<float>& values) {
  std::vector<std::string> texts;
  for (const float value : values) texts.push_back(format_number(value));
  return join(texts);
}

}  // namespace

std::string model_digest(std::vector<NamedTensor> tensors) {
  std::erase_if(tensors,
                [](const NamedTensor& t) { return t.name.find('/') != std::string::npos; });
  std::sort(tensors.begin(), tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  Sha256 hash;
  for (const NamedTensor& t : tensors) {
    const Tensor& values = t.tensor;
    hash.update(t.name + " " + std::string(dtype_name(values.dtype())) + " " +
                shape_string(values.shape()) + "\n");
    hash.update(values.raw(), static_cast<std::size_t>(values.bytes()));
  }
  return hash.hex();
}

Shape InputFormat::batch(std::int64_t count) const {
  Shape shape = sample;
  shape.insert(shape.begin(), count);
  return shape;
}

InputFormat input_format(const Dataset& dataset) {
  return {dataset.dtype(), dataset.sample_shape(), dataset.classes, dataset.names};
}

std::string to_string(const InputFormat& format) {
  const std::string outputs =
      format.classes > 0 ? std::to_string(format.classes) + " classes" : "regression";
  return sample_form_text(format.dtype, format.sample, format.names) + ", " + outputs;
}

std::string difference_of_names(const DatasetNames& trained_on, const DatasetNames& found) {
  const auto quoted = [](const std::vector<std::string>& names, std::size_t i) {
    return i < names.size() ? quote_for_message(names[i]) : std::string("absent");
  };
  const auto first = [&](const std::string& what, const std::vector<std::string>& a,
                         const std::vector<std::string>& b) {
    for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      if (quoted(a, i) == quoted(b, i)) continue;
      return "; its " + what + " " + std::to_string(i) + " is " + quoted(a, i) +
             ", the dataset's is " + quoted(b, i);
    }
    return std::string();
  };
  if (auto text = first("class", trained_on.classes, found.classes); !text.empty()) return text;
  if (trained_on.inputs != found.inputs) return "";  // whose texts differ
  const auto names = [](const std::vector<TableColumn>& columns) {
    std::vector<std::string> all;
    for (const TableColumn& column : columns) all.push_back(column.name);
    return all;
  };
  auto text = first("column", names(trained_on.columns), names(found.columns));
  if (!text.empty() || trained_on == found) return text;
  return "; categories or missing values of its columns differ";
}

YamlNode lasting_recipe(const Recipe& recipe) {
  YamlNode lasting = recipe.resolved;
  for (const std::string& path : paths_of(OptionRole::kFree)) remove_path(lasting, path);
  return lasting;
}

YamlNode essential_recipe(const Recipe& recipe) {
  YamlNode essential = lasting_recipe(recipe);
  for (const std::string& path : paths_of(OptionRole::kNotEssential)) remove_path(essential, path);
  return essential;
}

bool take_more_epochs(YamlNode& earlier, const YamlNode& later) {
  YamlNode& before = *earlier.find("train")->find("epochs");
  const YamlNode& after = *later.find("train")->find("epochs");
  if (parse_integer(after.text) <= parse_integer(before.text)) return false;
  before = after;
  return true;
}

void add_record(const RunRecord& record, TensorFileMetadata& metadata) {
  Json data{{"dtype", std::string(dtype_name(record.input.dtype))},
            {"sample", record.input.sample},
            {"classes", record.input.classes},
            {"mean", record.normalization.mean},
            {"std", record.normalization.stddev},
            {"sha256", record.data_digest}};
  if (!record.target_normalization.mean.empty()) {
    data["target_mean"] = record.target_normalization.mean;
    data["target_std"] = record.target_normalization.stddev;
  }
  if (!record.output_units.empty()) data["output_units"] = record.output_units;
  add_names(record.input.names, data);
  metadata[kDataKey] = data.dump();
  metadata[kRecipeKey] = to_yaml(record.recipe);
  if (!record.sources.empty()) metadata[kSourcesKey] = Json(record.sources).dump();
  if (!record.network.empty()) metadata[kNetworkKey] = record.network;
}

std::optional<RunRecord> record_in(const TensorFileMetadata& metadata, const std::string& source,
                                   const Registries& registries) {
  const std::optional<DataRecord> data = data_in(metadata, source);
  const auto recipe = metadata.find(kRecipeKey);
  if (!data || recipe == metadata.end()) return std::nullopt;
  return RunRecord{data->input,
                   data->normalization,
                   data->digest,
                   recipe_in(recipe->second, source + ": metadata 'recipe'", registries),
                   sources_in(metadata, source),
                   network_in(metadata),
                   data->target_normalization,
                   data->output_units};
}

std::map<std::string, std::string> sources_in(const TensorFileMetadata& metadata,
                                              const std::string& source) {
  const auto found = metadata.find(kSourcesKey);
  if (found == metadata.end()) return {};
  return parsed_metadata(kSourcesKey, source, [&] {
    return Json::parse(found->second).get<std::map<std::string, std::string>>();
  });
}

std::string network_in(const TensorFileMetadata& metadata) {
  const auto found = metadata.find(kNetworkKey);
  return found == metadata.end() ? std::string() : found->second;
}

std::optional<Normalization> normalization_in(const TensorFileMetadata& metadata,
                                              const std::string& source) {
  const std::optional<DataRecord> data = data_in(metadata, source);
  return data ? std::optional(data->normalization) : std::nullopt;
}

std::optional<Normalization> target_normalization_in(const TensorFileMetadata& metadata,
                                                     const std::string& source) {
  const std::optional<DataRecord> data = data_in(metadata, source);
  if (!data || data->input.classes > 0) return std::nullopt;
  return data->target_normalization;
}

std::vector<double> output_units_in(const TensorFileMetadata& metadata, const std::string& source) {
  const std::optional<DataRecord> data = data_in(metadata, source);
  return data ? data->output_units : std::vector<double>();
}

std::optional<DType> input_dtype_in(const TensorFileMetadata& metadata, const std::string& source) {
  const std::optional<DataRecord> data = data_in(metadata, source);
  return data ? std::optional(data->input.dtype) : std::nullopt;
}

DatasetNames dataset_names_in(const TensorFileMetadata& metadata, const std::string& source) {
  const std::optional<DataRecord> data = data_in(metadata, source);
  return data ? data->input.names : DatasetNames();
}

std::optional<std::string> data_digest_in(const TensorFileMetadata& metadata,
                                          const std::string& source) {
  const std::optional<DataRecord> data = data_in(metadata, source);
  return data ? std::optional(data->digest) : std::nullopt;
}

std::string normalize_text(const Normalization& normalization) {
  if (normalization.mean.empty()) return "none";
  return "{mean: [" + numbers_text(normalization.mean) + "], std: [" +
         numbers_text(normalization.stddev) + "]}";
}

}  // namespace steelyard
