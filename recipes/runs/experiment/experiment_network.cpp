// The network of a run that was imported from an ONNX file.
#include <algorithm>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/train/training_words.h"
#include "steelyard/import/unsupported.h"
#include "steelyard/recipes/models/imported_model.h"
#include "steelyard/recipes/models/target_units.h"
#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {

std::string Experiment::network_text() const {
  return network_ ? imports::text_of(*network_) : std::string();
}

std::string Experiment::file_key() const { return "model." + recipe_.model.file_key(); }

std::string Experiment::place_of_file() const { return place("model", recipe_.model.file_key()); }

void Experiment::load_network(const std::string& text) {
  const auto& tokens = recipe_.data.tokens;
  if (tokens && tokens->documents == TokenDocuments::kSeparate &&
      !recipe_.model.is_language_model()) {
    fail_at(place("data", "tokens"),
            "data.tokens.documents: separate needs model.gguf or model.huggingface");
  }
  if (!recipe_.model.file()) return;
  const std::string place = place_of_file();
  if (!text.empty()) {
    network_ = imports::graph_from(text, place + ": " + file_key() + ": the checkpoint");
    return require_whole_numbers();
  }
  ImportedModel imported = [&] {
    try {
      return read_imported_model(recipe_.model, {input_.sample, input_.names.inputs}, tokens);
    } catch (const imports::UnsupportedGraph&) {
      throw;  // has a list of its own
    } catch (const InputError& error) {
      fail_at(place, file_key() + ": " + error.what());
    }
  }();
  network_ = std::move(imported.graph);
  imported_weights_ = std::move(imported.weights);
  if (!imported.sha256.empty()) sources_[file_key()] = imported.sha256;
  for (std::string& note : imported.notes) notes_.push_back(std::move(note));
  require_whole_numbers();
}

// Indices are what the samples hold: anything that is computed of them would be others.
void Experiment::require_whole_numbers() const {
  if (!network_) return;
  const std::vector<imports::PortSpec> ports = network_->input_ports();
  const auto port = std::find_if(ports.begin(), ports.end(),
                                 [](const imports::PortSpec& in) { return in.whole(); });
  if (port == ports.end()) return;
  const std::string why = ": the input '" + printable(port->name) + "' of the network is " +
                          port->type + ", whole numbers such as indices";
  if (normalization() != Normalization{}) {
    fail_at(place("data", "normalize"), "data.normalize: expected none" + why);
  }
  if (loader_options_.augment.mixes()) {
    fail_at(place("data", "augment"), "data.augment: expected no mixup" + why);
  }
  if (input_.dtype != DType::kF32) {
    fail_at(place_of_file(), file_key() + ": expected samples of f32, which hold them, got " +
                                 std::string(dtype_name(input_.dtype)) +
                                 ", which is divided by 255" + why);
  }
}

// What the file holds, unless other weights are asked for.
void Experiment::load_imported_weights(Module& model) {
  const std::string& file = *recipe_.model.file();
  if (!imported_weights_) {
    load_source(file_key(), file, place_of_file(), model);
  } else {
    at_place(place_of_file(), [&] { load_into(model, *imported_weights_, file); });
    if (!exported_) note_unknown_normalization(printable(file));
  }
}

std::shared_ptr<Module> Experiment::as_deployed(std::shared_ptr<Module> model) const {
  return in_units(leaves_head() ? with_output_activation(*network_, std::move(model)) : model);
}

std::shared_ptr<Module> Experiment::in_units(std::shared_ptr<Module> model) const {
  return in_units_of_targets(std::move(model), target_normalization_);
}

std::string Experiment::activation_of_loss() const {
  switch (target_kind()) {
    case TargetKind::kClass:
    case TargetKind::kText:
    case TargetKind::kTokens:
      return "Softmax";
    case TargetKind::kMarks:
      return "Sigmoid";
    case TargetKind::kValues:
      break;
  }
  return "none";
}

std::string Experiment::last_activation() const {
  if (network_) return imports::output_activation(*network_);
  const YamlNode* layer = last_layer();
  return layer == nullptr ? "" : layer->find("type")->text;
}

// The last one of `model.layers` that computes in evaluation; null for another model.
const YamlNode* Experiment::last_layer() const {
  const YamlNode* layers = recipe_.model.options.find("layers");
  if (network_ || layers == nullptr) return nullptr;
  const auto computes = [](const YamlNode& layer) {
    const YamlNode* type = layer.find("type");
    return type != nullptr && !imports::moves_values(type->text) && type->text != "Dropout";
  };
  const auto last = std::find_if(layers->items.rbegin(), layers->items.rend(), computes);
  return last == layers->items.rend() ? nullptr : &*last;
}

void Experiment::note_activation() {
  const std::string of_loss = activation_of_loss(), own = last_activation();
  const bool gives_chances = own == "Softmax" || own == "Sigmoid";
  if (of_loss == "none" || !gives_chances || leaves_head()) return;
  if (own == of_loss && !network_) return;  // see require_logits()
  notes_.push_back(
      (network_ ? file_key() : std::string("model.layers")) + ": the model ends in " + own + ", " +
      (own == of_loss
           ? "which the loss " + loss_name(loss()) + " contains too: it is computed twice"
           : "whose outputs the loss " + loss_name(loss()) +
                 " takes for logits: it computes their " + of_loss));
}

void Experiment::require_logits() const {
  const YamlNode* layer = last_layer();
  if (layer == nullptr) return;
  const YamlNode& type = *layer->find("type");
  const std::string own = activation_of_loss();
  if (type.text != own) return;
  fail_at(type.place, "model.layers: the model ends in " + own + ", which the loss " +
                          loss_name(loss()) + " contains: leave it out");
}

bool Experiment::leaves_head() const {
  if (!network_) return false;
  const Shape& output = network_->output_sample;
  const bool shares = network_->head == "Softmax" || network_->head == "LogSoftmax";
  if (loss_.type == Loss::Type::kFidelity) return shares;
  switch (target_kind()) {
    case TargetKind::kClass:
      return shares && !output.empty() && shape_size(output) == output.back();
    case TargetKind::kText:
    case TargetKind::kTokens:
      return shares;
    case TargetKind::kMarks:
      return network_->head == "Sigmoid";
    case TargetKind::kValues:
      break;
  }
  return false;
}

}  // namespace steelyard
