// A byte for the shape of samples, then an ONNX file: what can be imported is written as text, read
// back and, where it is small, built. So is what an own export says of its data.
#include <array>
#include <nlohmann/json.hpp>

#include "steelyard/import/onnx/onnx_file.h"
#include "steelyard/import/translate.h"
#include "steelyard/recipes/models/exported_data.h"
#include "steelyard/runtime/preprocessing_json.h"
#include "tests/fuzz/fuzz.h"

namespace steelyard::imports {
namespace {

constexpr std::int64_t kMostWeights = 100'000;

// Sizes of weights and of what modules give are bounded by what a run may take.
bool is_small(const Imported& imported) {
  std::int64_t weights = 0;
  for (const NamedTensor& tensor : imported.weights) weights += tensor.tensor.size();
  return weights <= kMostWeights && imported.graph.nodes.size() <= 64 &&
         shape_size(imported.graph.output_sample) <= kMostWeights;
}

void check(const Imported& imported) {
  const std::string text = text_of(imported.graph);
  const GraphSpec again = graph_from(text, "text");
  fuzz::require(text_of(again) == text, "a network that was written reads otherwise");
  if (is_small(imported)) build(again, true, "text");
}

void check_data(const std::filesystem::path& path) {
  const auto data = exported_data_in(path);
  if (!data) return;
  const deploy::Preprocessing& preprocessing = data->preprocessing;
  const auto same = [](const auto& json, const auto& again) {
    fuzz::require(json.dump() == again(nlohmann::json::parse(json.dump())).dump(),
                  "preprocessing that was written reads otherwise");
  };
  if (preprocessing.transforms) {
    same(deploy::transforms_json(*preprocessing.transforms), [](const nlohmann::json& json) {
      return deploy::transforms_json(deploy::transforms_from(json));
    });
  }
  if (preprocessing.table) {
    same(deploy::table_json(*preprocessing.table),
         [](const nlohmann::json& json) { return deploy::table_json(deploy::table_from(json)); });
  }
}

}  // namespace
}  // namespace steelyard::imports

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  if (size < 1 || !imports::can_read_onnx()) return 0;
  static const std::array<Shape, 4> samples{Shape{2}, {4, 4, 2}, {6, 5, 3}, {3, 8}};
  static fuzz::MemoryFile input;
  const std::filesystem::path& file = input.holding(fuzz::view(data + 1, size - 1));
  fuzz::accepted([&] { imports::check_data(file); });
  fuzz::accepted([&] {
    imports::OnnxModel model = imports::read_onnx(file);
    const bool one = model.inputs.size() == 1;
    imports::check(
        imports::translate(model, one ? imports::SampleSpec(samples[data[0] % samples.size()])
                                      : imports::sample_of(model)));
  });
  return 0;
}
