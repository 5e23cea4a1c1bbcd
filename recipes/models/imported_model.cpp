#include "steelyard/recipes/models/imported_model.h"

#include "steelyard/framework/checkpoint.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/file_kind.h"
#include "steelyard/framework/files.h"
#include "steelyard/import/onnx_file.h"
#include "steelyard/import/translate.h"

namespace steelyard {
namespace {

ImportedModel of_checkpoint(const std::filesystem::path& path) {
  const std::string name = printable(path.string());
  const TensorFileMetadata metadata = load_checkpoint_metadata(path);
  const auto found = metadata.find(kNetworkKey);
  if (found == metadata.end()) {
    throw InputError(name +
                     ": expected an ONNX file or a checkpoint of a run that began with one, "
                     "got another checkpoint");
  }
  return {.graph = imports::graph_from(found->second, name)};
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

ImportedModel read_imported_model(const std::filesystem::path& path, const Shape& sample,
                                  const std::string& output) {
  if (kind_of(InputFile(path)) == kSafetensorsKind) return of_checkpoint(path);
  imports::OnnxModel model = imports::read_onnx(path);
  imports::choose_output(model, output);
  imports::Imported imported = imports::translate(model, sample);
  return {std::move(imported.graph), std::move(imported.weights), model.sha256};
}

std::shared_ptr<Module> build_imported_model(const imports::GraphSpec& graph, const ModelSpec& spec,
                                             const Shape& sample, std::int64_t classes,
                                             bool with_head) {
  const std::string& place = spec.options.find("onnx")->place;
  if (graph.sample != sample) {
    fail_at(place, "model.onnx: the network takes samples of " + shape_string(graph.sample) +
                       ", the dataset has " + shape_string(sample));
  }
  const std::int64_t asked = spec.classes.value_or(classes);
  if (asked != 0 && shape_size(graph.output_sample) != asked) {
    fail_at(place, "model.onnx: expected a network of " + std::to_string(asked) + " outputs, got " +
                       shape_string(graph.output_sample));
  }
  return imports::build(graph, with_head, place + ": model.onnx");
}

std::shared_ptr<Module> with_output_activation(const imports::GraphSpec& graph,
                                               std::shared_ptr<Module> model) {
  return std::make_shared<WithOutputActivation>(std::move(model), imports::build_head(graph));
}

}  // namespace steelyard
