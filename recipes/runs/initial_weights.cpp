#include "steelyard/recipes/runs/initial_weights.h"

#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/qat/model/target_match.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/runs/torch_recurrent.h"

namespace steelyard {
namespace {

// Training state of Steelyard's own checkpoints is no tensor of a model.
bool is_of_model(const NamedTensor& tensor) { return tensor.name.find('/') == std::string::npos; }

std::string quoted(const std::string& text) { return quote_for_message(text); }

void rename(std::vector<NamedTensor>& tensors, const InitSpec::Rename& rule,
            const std::string& file) {
  RE2::Options options;
  options.set_log_errors(false);
  const RE2 pattern(rule.from, options);
  std::string error = pattern.error();
  if (pattern.ok() && pattern.CheckRewriteString(rule.to, &error)) error.clear();
  if (!error.empty()) {
    throw InputError("init.rename: " + quoted(rule.from) + " to " + quoted(rule.to) +
                     ": bad regular expression: " + printable(error));
  }
  bool used = false;
  for (NamedTensor& tensor : tensors) {
    if (is_of_model(tensor) && RE2::GlobalReplace(&tensor.name, pattern, rule.to) > 0) used = true;
  }
  if (used) return;
  throw InputError("init.rename: " + quoted(rule.from) + " matches no tensor of " +
                   printable(file));
}

void require_unique(const std::vector<NamedTensor>& renamed,
                    const std::vector<NamedTensor>& original) {
  std::map<std::string, std::size_t> first;
  for (std::size_t i = 0; i < renamed.size(); ++i) {
    const auto [found, is_new] = first.emplace(renamed[i].name, i);
    if (is_new) continue;
    throw InputError("init.rename: " + quoted(original[found->second].name) + " and " +
                     quoted(original[i].name) + " both become " + quoted(renamed[i].name));
  }
}

// Whether the pattern names the tensor or a module around it.
bool names(const qat::TargetPattern& pattern, const std::string& tensor) {
  for (std::size_t end = tensor.size(); end != std::string::npos && end > 0;
       end = tensor.rfind('.', end - 1)) {
    if (pattern.matches(tensor.substr(0, end), "")) return true;
  }
  return false;
}

// Replaces what is skipped by the model's own values; the file may have more than the model.
void skip(std::vector<NamedTensor>& tensors, const std::vector<NamedTensor>& state,
          const InitSpec& init, const std::string& file) {
  std::set<std::string> in_file, left;
  for (const NamedTensor& t : tensors) {
    if (is_of_model(t)) in_file.insert(t.name);
  }
  left = in_file;
  for (const std::string& text : init.skip) {
    const qat::TargetPattern pattern(text, "init.skip");
    const auto skipped = [&](const std::string& name) { return names(pattern, name); };
    std::erase_if(tensors, [&](const NamedTensor& t) { return skipped(t.name); });
    std::erase_if(left, skipped);
    bool used = std::any_of(in_file.begin(), in_file.end(), skipped);
    for (const NamedTensor& own : state) {
      if (!names(pattern, own.name)) continue;
      tensors.push_back({own.name, own.tensor.clone()});
      used = true;
    }
    if (used) continue;
    std::vector<std::string> modules;
    for (const NamedTensor& own : state) modules.push_back(own.name.substr(0, own.name.rfind('.')));
    throw InputError("init.skip: " + quoted(text) + " names nothing of the model or of " +
                     printable(file) + did_you_mean(text, modules));
  }
  if (left.empty() && !init.skip.empty()) {
    throw InputError("init.skip: leaves nothing of " + printable(file) +
                     " to load: without init the weights are random");
  }
}

// What to do where a layer has other sizes than the file's, such as the last one for other classes.
std::string advice(const std::vector<NamedTensor>& tensors, const std::vector<NamedTensor>& state) {
  constexpr std::size_t kMostLayers = 2;
  std::map<std::string, Shape> own;
  for (const NamedTensor& t : state) own.emplace(t.name, t.tensor.shape());
  std::set<std::string> layers;
  for (const NamedTensor& t : tensors) {
    if (t.name.find("_quantizer.") != std::string::npos) {
      return "; these are the weights of a quantized model, those of a float one are needed";
    }
    const auto found = own.find(t.name);
    if (found != own.end() && found->second != t.tensor.shape()) {
      layers.insert(t.name.substr(0, t.name.rfind('.')));
    }
  }
  if (layers.empty() || layers.size() > kMostLayers) return "";
  std::string list;
  for (const std::string& layer : layers) list += (list.empty() ? "" : ", ") + layer;
  return "; init.skip: [" + list + "] trains " + (layers.size() == 1 ? "it" : "them") +
         " from random values";
}

}  // namespace

WeightsFile load_initial_weights(Module& model, const std::string& file, const InitSpec& init) {
  WeightsFile weights = read_weights(file);
  const std::vector<NamedTensor> state = module_state(model);
  std::vector<NamedTensor> tensors = weights.tensors;
  for (const InitSpec::Rename& rule : init.rename) rename(tensors, rule, file);
  require_unique(tensors, weights.tensors);
  from_torch_recurrent(tensors, model);
  skip(tensors, state, init, file);
  try {
    load_into(model, tensors, file);
  } catch (const InputError& error) {
    throw InputError(error.what() + advice(tensors, state));
  }
  require_trained_values(tensors, file);
  return weights;
}

}  // namespace steelyard
