#include "steelyard/recipes/models/onnx_choices.h"

#include <charconv>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/onnx/freeze.h"
#include "steelyard/import/translate.h"
#include "steelyard/recipes/language/yaml_edit.h"

namespace steelyard {
namespace {

imports::BatchAxis batch_axis_from(const std::string& text, const std::string& what) {
  const std::size_t equals = text.rfind('=');
  const std::size_t begin = equals == std::string::npos ? 0 : equals + 1;
  imports::BatchAxis given{text.substr(0, begin == 0 ? 0 : equals)};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + begin, end, given.axis);
  if (error == std::errc() && at == end) return given;
  throw InputError(what + ": expected a dimension such as 1 or state=1, got '" + printable(text) +
                   "'");
}

}  // namespace

void choose(imports::OnnxModel& model, const OnnxChoices& choices, const std::string& batch_axis) {
  imports::freeze_inputs(model, choices.freeze);
  imports::choose_outputs(model, choices.outputs);
  std::vector<imports::BatchAxis> axes;
  for (const std::string& text : choices.batch_axes) {
    axes.push_back(batch_axis_from(text, batch_axis));
  }
  imports::choose_batch_axes(model, axes);
}

void add_choices(YamlNode& table, const OnnxChoices& choices) {
  if (!choices.outputs.empty()) set_entry(table, "output", yaml_list(choices.outputs));
  if (!choices.batch_axes.empty()) set_entry(table, "batch_axis", yaml_list(choices.batch_axes));
  if (!choices.freeze.empty()) set_entry(table, "freeze", yaml_list(choices.freeze));
}

}  // namespace steelyard
