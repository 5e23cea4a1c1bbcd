// The recipe that quantizes an ONNX file on data without labels, made of what the two say.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/qat/quantizers/qconfig.h"
#include "steelyard/recipes/language/yaml_document.h"
#include "steelyard/recipes/models/onnx_choices.h"
#include "steelyard/recipes/schema/registries.h"

namespace steelyard {

// The largest value of images as a network reads them.
enum class ImageRange {
  kOne,  // bytes are divided by 255
  kByte  // as they are
};

// What an ONNX file and its data do not say themselves.
struct FileAndData {
  std::filesystem::path model;
  std::filesystem::path data;
  OnnxChoices choices = {};
  std::vector<std::string> states = {};  // inputs that are outputs of the step before: "h=hn"
  // Of images: what each channel is normalized with, in the units of `range`.
  std::vector<double> mean = {}, stddev = {};
  ImageRange range = ImageRange::kOne;
  // [height, width]; absent: that of the model's input, else of the data.
  std::optional<std::array<std::int64_t, 2>> resize = {};
  std::string device = "auto";
  qat::Profile profile = qat::Profile::kOrt;
  bool portable = false;  // weights of 7 bits, for processors without VNNI
};

struct FoundRecipe {
  YamlNode document;               // without `quantize` and `calibrate`
  std::vector<std::string> lines;  // what was found and decided, for the user
  std::int64_t samples = 0;        // of the data
  // Where a graph is cut that cannot be imported as a whole: the outputs of the run, behind which
  // nodes of the file stay as they are.
  std::vector<std::string> cut = {};
  std::vector<std::string> outputs = {};  // of the file
};

// The dataset that reads such a file or folder: "images". Throws InputError where it is not there.
std::string dataset_of(const std::filesystem::path& path);

// The name of a file without its end, as that of another file: it neither begins with '-' or '.'
// nor has control characters.
std::string plain_name(const std::filesystem::path& file);
// The same of letters, digits, '-', '.' and '_', as the name of a run.
std::string run_name(const std::filesystem::path& file);

// Reads the ports of the model and counts the samples. Throws InputError that names the option or
// the file.
FoundRecipe found_recipe(const FileAndData& given, const Registries& registries);

}  // namespace steelyard
