#include "steelyard/recipes/searches/found_recipe.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/graph/cut.h"
#include "steelyard/import/onnx/onnx_file.h"
#include "steelyard/qat/quantizers/words.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/runs/recipe_data.h"

namespace steelyard {
namespace {

constexpr std::int64_t kFewestSamples = 8;
constexpr std::int64_t kMostHeldOut = 256;  // for each, the test and the validation split

YamlNode quoted(const std::string& text) {
  YamlNode node = yaml_scalar(text);
  node.quoted = true;
  return node;
}

YamlNode numbers(const std::vector<double>& values) {
  YamlNode list = yaml_list({});
  for (const double value : values) list.items.push_back(yaml_scalar(format_number(value)));
  return list;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool is_array(const std::filesystem::path& path) {
  const std::string end = lower(path.extension().string());
  return end == ".npy" || end == ".npz";
}

// What images become: [height, width, channels], and where the file leaves sizes free nothing.
struct ImageInput {
  std::int64_t channels = 3;
  std::optional<std::array<std::int64_t, 2>> size = {};
};

ImageInput image_input(const imports::OnnxModel& model) {
  const imports::OnnxPort& port = model.inputs[0];
  const std::string what = "--data: the input '" + printable(port.name) + "' of the model, " +
                           imports::to_string(port.dims) + ", ";
  if (port.dims.size() != 4 && port.dims.size() != 3) {
    throw InputError(what + "is no image: expected arrays (.npy, .npz, .safetensors)");
  }
  const auto size = [&](std::size_t axis) { return port.dims[axis].size; };
  if (port.dims.size() == 3) {
    return {1, size(1) && size(2) ? std::optional(std::array{*size(1), *size(2)}) : std::nullopt};
  }
  const auto colours = [](const std::optional<std::int64_t>& count) {
    return count && (*count == 1 || *count == 3);
  };
  const bool last = colours(size(3)) && !colours(size(1));
  const std::size_t height = last ? 1 : 2, channels = last ? 3 : 1;
  if (!colours(size(channels))) {
    throw InputError(what + "has no dimension of 1 or 3 channels: images have one");
  }
  ImageInput input{*size(channels)};
  if (size(height) && size(height + 1)) input.size = {*size(height), *size(height + 1)};
  return input;
}

// Refuses what cannot be meant: numbers for values up to 1 where these go to 255, or the other way
// round.
void require_in_range(const FileAndData& given) {
  for (const double stddev : given.stddev) {
    if (stddev > 0 && std::isfinite(stddev)) continue;
    throw InputError("--std: expected numbers above 0, got " + format_number(stddev));
  }
  const auto all_within_one = [](const std::vector<double>& values) {
    return std::all_of(values.begin(), values.end(),
                       [](double value) { return std::abs(value) < 1; });
  };
  if (given.range == ImageRange::kByte) {
    const bool of_ones = !given.stddev.empty() && all_within_one(given.stddev);
    if (!of_ones || !all_within_one(given.mean)) return;
    throw InputError("--std " + format_number(given.stddev[0]) +
                     ": is for values from 0 to 1, and with --range 255 the model reads values "
                     "from 0 to 255: leave --range out");
  }
  const auto beyond = std::find_if(given.mean.begin(), given.mean.end(),
                                   [](double mean) { return std::abs(mean) > 1; });
  if (beyond == given.mean.end()) return;
  throw InputError("--mean " + format_number(*beyond) +
                   ": is beyond 1, the largest value of --range 1: add --range 255 where the model "
                   "reads values from 0 to 255 before --mean and --std");
}

// In units of the values that the network reads: what data.normalize takes, of values from 0 to 1.
YamlNode normalize_of(const FileAndData& given, std::int64_t channels) {
  require_in_range(given);
  const auto of_channels = [&](std::vector<double> values, const char* option, double otherwise) {
    if (values.empty()) values = {otherwise};
    if (values.size() == 1) {
      values.resize(static_cast<std::size_t>(channels), values[0]);
    }
    if (static_cast<std::int64_t>(values.size()) != channels) {
      throw InputError(std::string(option) + ": expected a number for each of the " +
                       std::to_string(channels) + " channels, got " +
                       std::to_string(values.size()));
    }
    return values;
  };
  const bool bytes = given.range == ImageRange::kByte;
  if (given.mean.empty() && given.stddev.empty() && !bytes) return yaml_scalar("none");
  std::vector<double> mean = of_channels(given.mean, "--mean", 0);
  std::vector<double> stddev = of_channels(given.stddev, "--std", 1);
  for (std::vector<double>* values : {&mean, &stddev}) {
    for (double& value : *values) value /= bytes ? 255 : 1;
  }
  return yaml_table({{"mean", numbers(mean)}, {"std", numbers(stddev)}});
}

// Samples of a batch: as many as have about the values of 32 images of 224 x 224.
std::int64_t batch_size_for(std::int64_t values) {
  constexpr std::int64_t kValues = std::int64_t{32} * 224 * 224 * 3;
  return std::clamp<std::int64_t>(kValues / std::max<std::int64_t>(values, 1), 1, 32);
}

std::string size_text(const std::array<std::int64_t, 2>& size) {
  return std::to_string(size[0]) + " x " + std::to_string(size[1]);
}

// Adds what images become; returns lines for the user.
std::vector<std::string> describe_images(YamlNode& data, const FileAndData& given,
                                         const imports::OnnxModel& model) {
  const ImageInput input = image_input(model);
  const auto size = given.resize ? given.resize : input.size;
  YamlNode transforms = yaml_table({});
  if (size) {
    YamlNode sides = yaml_list({});
    for (const std::int64_t side : *size) sides.items.push_back(yaml_scalar(std::to_string(side)));
    set_entry(transforms, "resize", std::move(sides));
  }
  if (input.channels == 1) set_entry(transforms, "grey", yaml_scalar("true"));
  if (!transforms.entries.empty()) set_entry(data, "transforms", std::move(transforms));
  YamlNode normalize = normalize_of(given, input.channels);
  std::string preprocessing = input.channels == 1 ? "grey" : "RGB";
  preprocessing += size ? ", resized to " + size_text(*size) : ", in their own size";
  preprocessing += given.range == ImageRange::kByte ? ", bytes as they are" : ", bytes / 255";
  if (normalize.kind == YamlNode::Kind::kTable && !(given.mean.empty() && given.stddev.empty())) {
    preprocessing += ", then (x - mean) / std";
  }
  set_entry(data, "normalize", std::move(normalize));
  return {"images: " + preprocessing +
          (given.mean.empty() && given.stddev.empty() && given.range == ImageRange::kOne
               ? " (--mean, --std and --range say otherwise)"
               : "")};
}

void require_no_image_options(const FileAndData& given) {
  const char* option = !given.mean.empty()                ? "--mean"
                       : !given.stddev.empty()            ? "--std"
                       : given.resize                     ? "--resize"
                       : given.range == ImageRange::kByte ? "--range"
                                                          : nullptr;
  if (option == nullptr) return;
  throw InputError(std::string(option) + ": is for images, --data has arrays or a table");
}

// The samples of the data, all of them, as the recipe reads them.
Dataset all_samples(const YamlNode& document, const Registries& registries) {
  const Recipe recipe = read_recipe(document, registries);
  const DatasetSplits splits =
      load_splits(recipe, registries.datasets, DatasetParts::kAll, nullptr, std::nullopt);
  return splits.train;
}

// Refuses, before the search, a cut whose two parts would not fit together.
void require_joinable(const imports::Cut& cut, const imports::OnnxModel& model,
                      const FileAndData& given) {
  const std::string where =
      printable(given.model.string()) + ": cut " + imports::to_string(cut, model);
  for (const auto* ports : {&model.inputs, &model.outputs}) {
    for (const imports::OnnxPort& port : *ports) {
      if (port.type != "float16" && port.type != "double" && port.type != "bfloat16") continue;
      throw InputError(where + "; they read float32 then, and '" + printable(port.name) + "' is " +
                       port.type + ": --output leaves them out, or give a float32 file");
    }
  }
  for (const std::string& text : given.choices.freeze) {
    const std::string name = text.substr(0, text.find('='));
    if (std::find(cut.constants.begin(), cut.constants.end(), name) == cut.constants.end())
      continue;
    throw InputError(where + "; they read the frozen input '" + printable(name) +
                     "', which would stay an input: --output leaves them out");
  }
}

// Makes the values behind which the graph is cut the run's outputs, where it must be.
void cut_graph(FoundRecipe& found, const imports::OnnxModel& model,
               const imports::SampleSpec& sample, const FileAndData& given) {
  const auto cut = imports::cut_of(model, sample);
  if (!cut) return;
  require_joinable(*cut, model, given);
  found.cut = cut->values;
  OnnxChoices choices = given.choices;
  choices.outputs = cut->values;
  add_choices(*found.document.find("model"), choices);
  found.lines.push_back("cut " + imports::to_string(*cut, model));
}

YamlNode export_of(const FileAndData& given) {
  YamlNode exports = yaml_table({{"formats", yaml_list({"safetensors", "onnx"})},
                                 {"profile", yaml_scalar(word_of(given.profile))}});
  if (given.portable) set_entry(exports, "reduce_range", yaml_scalar("true"));
  return exports;
}

}  // namespace

std::string dataset_of(const std::filesystem::path& path) {
  if (!path_exists(path)) throw InputError("--data: there is no " + printable(path.string()));
  const auto of_file = [](const std::filesystem::path& file) -> std::string {
    const std::string end = lower(file.extension().string());
    if (is_array(file)) return "arrays";
    if (end == ".safetensors") return "safetensors";
    if (end == ".csv" || end == ".tsv") return "table";
    if (end == ".tar") return "shards";
    return "";
  };
  if (!is_folder(path)) {
    const std::string found = of_file(path);
    return found.empty() ? "images" : found;
  }
  std::set<std::string> kinds;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (const std::string kind = of_file(entry.path()); !kind.empty()) kinds.insert(kind);
  }
  if (kinds.size() > 1) {
    throw InputError("--data: " + printable(path.string()) + " has files of several kinds (" +
                     join({kinds.begin(), kinds.end()}) + "): name one of them");
  }
  return kinds.empty() ? "images" : *kinds.begin();
}

std::string plain_name(const std::filesystem::path& file) {
  std::string name = file.stem().string();
  for (char& c : name) {
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = '_';
  }
  return name.empty() || name[0] == '-' || name[0] == '.' ? "_" + name : name;
}

std::string run_name(const std::filesystem::path& file) {
  std::string name = plain_name(file);
  for (char& c : name) {
    const bool legal = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.';
    if (!legal) c = '_';
  }
  return name;
}

FoundRecipe found_recipe(const FileAndData& given, const Registries& registries) {
  imports::OnnxModel model = imports::read_onnx(given.model);
  choose(model, given.choices, "--batch-axis");
  if (model.inputs.empty()) throw InputError(printable(given.model.string()) + ": has no input");
  FoundRecipe found;
  for (const imports::OnnxPort& port : model.outputs) found.outputs.push_back(port.name);
  const std::string dataset = dataset_of(given.data);
  YamlNode data = yaml_table({{"dataset", yaml_scalar(dataset)},
                              {"path", quoted(given.data.string())},
                              {"labels", yaml_scalar("false")},
                              {"test", yaml_scalar("1")},
                              {"validation", yaml_scalar("0")},
                              {"batch_size", yaml_scalar("1")}});
  const bool images = dataset == "images" || dataset == "shards";
  if (images) {
    found.lines = describe_images(data, given, model);
  } else {
    require_no_image_options(given);
    set_entry(data, "normalize", yaml_scalar("none"));
  }
  if (model.inputs.size() > 1) {
    std::vector<std::string> names;
    for (const imports::OnnxPort& port : model.inputs) names.push_back(port.name);
    set_entry(data, "inputs", yaml_list(names));
  }
  YamlNode network = yaml_table({{"onnx", quoted(given.model.string())}});
  add_choices(network, given.choices);
  found.document = yaml_table(
      {{"version", yaml_scalar("1")},
       {"name", yaml_scalar(run_name(given.model))},
       {"device", yaml_scalar(given.device)},
       {"data", std::move(data)},
       {"model", std::move(network)},
       {"train", yaml_table({{"epochs", yaml_scalar("1")},
                             {"loss", yaml_scalar("fidelity")},
                             {"optimizer", yaml_table({{"type", yaml_scalar("adamw")},
                                                       {"lr", yaml_scalar("0.00001")}})}})}});
  found.document = placed_at(std::move(found.document), "quantize");
  const Dataset samples = all_samples(found.document, registries);
  found.samples = samples.size() + 1;  // one was the test set
  if (!images && samples.dtype() == DType::kU8) {
    found.lines.push_back("bytes / 255 (an array of floats is read as it is)");
  }
  if (found.samples < kFewestSamples) {
    throw InputError("--data: " + printable(given.data.string()) + ": expected at least " +
                     std::to_string(kFewestSamples) + " samples, got " +
                     std::to_string(found.samples));
  }
  if (given.choices.outputs.empty()) {
    cut_graph(found, model, {samples.sample_shape(), samples.names.inputs}, given);
  }
  const std::int64_t held_out = std::clamp<std::int64_t>(found.samples / 5, 1, kMostHeldOut);
  const std::int64_t batch =
      std::min(batch_size_for(shape_size(samples.sample_shape())), found.samples - 2 * held_out);
  YamlNode& kept = *found.document.find("data");
  set_entry(kept, "test", yaml_scalar(std::to_string(held_out)));
  set_entry(kept, "validation", yaml_scalar(std::to_string(held_out)));
  set_entry(kept, "batch_size", yaml_scalar(std::to_string(batch)));
  set_entry(found.document, "export", export_of(given));
  found.lines.insert(found.lines.begin(),
                     std::to_string(found.samples) + " samples " +
                         sample_form_text(samples.dtype(), samples.sample_shape(), samples.names) +
                         " of " + printable(given.data.string()) + " (" + dataset +
                         "): " + std::to_string(found.samples - 2 * held_out) +
                         " to calibrate and train on, " + std::to_string(held_out) +
                         " to choose by, " + std::to_string(held_out) + " to report on");
  return found;
}

}  // namespace steelyard
