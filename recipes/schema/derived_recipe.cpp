#include "steelyard/recipes/schema/derived_recipe.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "steelyard/observers/registry.h"
#include "steelyard/qat/layers/form_table.h"
#include "steelyard/qat/model/target_match.h"
#include "steelyard/qat/quantizers/words.h"

namespace steelyard {
namespace {

YamlNode of_width(YamlNode quantizer, int bits) {
  set_entry(quantizer, "num_bits", yaml_scalar(std::to_string(bits)));
  return quantizer;
}

// Removes the keys of the former observer; dynamic scales have no observer.
YamlNode observed_by(YamlNode quantizer, const std::string& observer,
                     const Registries& registries = builtin_registries()) {
  const YamlNode* dynamic = quantizer.find("dynamic");
  if (dynamic != nullptr && dynamic->text == "true") return quantizer;
  for (const observers::ObserverRow& row : observers::observer_rows()) {
    for (const observers::ObserverOption& own : row.options) remove_entry(quantizer, own.name);
  }
  for (const auto& row : registries.own_observers) {
    for (const RecipeOption& own : row.described.options) remove_entry(quantizer, own.name);
  }
  set_entry(quantizer, "observer", yaml_scalar(observer));
  return quantizer;
}

const YamlNode* groups_in(const Recipe& recipe) {
  const YamlNode* quantize = recipe.resolved.find("quantize");
  return quantize == nullptr ? nullptr : quantize->find("groups");
}

// The groups that a float recipe gets.
YamlNode default_groups(const std::vector<std::string>& targets, const ObserverNames& observers) {
  YamlNode groups = yaml_list({});
  groups.items.push_back(
      yaml_table({{"targets", yaml_list(targets)},
                  {"weights", observed_by(yaml_table({}), observers.weights)},
                  {"activations", observed_by(yaml_table({}), observers.activations)}}));
  return groups;
}

// A target for one layer. A path that equals a type's name would select all layers of that type.
std::string target_of(const LayerWidth& layer) {
  const qat::QuantizedForms& forms = qat::builtin_forms();
  const bool is_type = std::any_of(forms.begin(), forms.end(), [&](const qat::QuantizedForm& form) {
    return form.type == layer.path;
  });
  return is_type ? "re:" + layer.path : layer.path;
}

bool matches(const YamlNode& group, const LayerWidth& layer) {
  const std::vector<YamlNode>& targets = group.find("targets")->items;
  return std::any_of(targets.begin(), targets.end(), [&](const YamlNode& target) {
    return qat::TargetPattern(target.text, "targets").matches(layer.path, layer.type);
  });
}

}  // namespace

std::vector<std::string> quantizable_types(Module& model, const qat::QuantizedForms& own_forms) {
  std::set<std::string> types;
  for (const NamedModule& entry : model.named_modules()) {
    const qat::QuantizedForm* form = qat::find_form(own_forms, *entry.module);
    if (form != nullptr && form->kind == qat::FormKind::kWeighted) types.insert(form->type);
  }
  return {types.begin(), types.end()};
}

YamlNode groups_of_width(const Recipe& recipe, const FloatDefaults& defaults, int bits,
                         const ObserverNames& observers, const Registries& registries) {
  const YamlNode* given = groups_in(recipe);
  YamlNode groups = given != nullptr ? *given : default_groups(defaults.targets, observers);
  const bool narrow =
      recipe.quantize ? narrow_range_by_default(*recipe.quantize) : defaults.narrow_range;
  for (YamlNode& group : groups.items) {
    YamlNode* of_weights = group.find("weights");
    const YamlNode* symmetric = of_weights != nullptr ? of_weights->find("symmetric") : nullptr;
    const bool affine = symmetric != nullptr && symmetric->text == "false";
    if (of_weights != nullptr && !affine && of_weights->find("narrow_range") == nullptr) {
      set_entry(*of_weights, "narrow_range", yaml_scalar(narrow ? "true" : "false"));
    }
    for (const bool weights : {true, false}) {
      if (YamlNode* quantizer = group.find(weights ? "weights" : "activations")) {
        *quantizer =
            of_width(observed_by(std::move(*quantizer),
                                 weights ? observers.weights : observers.activations, registries),
                     bits);
      }
    }
  }
  return groups;
}

YamlNode groups_of_widths(const Recipe& recipe, const std::vector<LayerWidth>& layers,
                          std::optional<int> activation_bits, const ObserverNames& observers) {
  const YamlNode* given = groups_in(recipe);
  YamlNode groups = yaml_list({});
  std::vector<LayerWidth> left = layers;
  for (YamlNode group : given != nullptr ? given->items : default_groups({}, observers).items) {
    YamlNode* activations = group.find("activations");
    if (activations != nullptr && activation_bits) {
      *activations = of_width(std::move(*activations), *activation_bits);
    }
    std::map<int, std::vector<std::string>, std::greater<>> paths;
    std::erase_if(left, [&](const LayerWidth& layer) {
      const bool here = given == nullptr || matches(group, layer);
      if (here) paths[layer.weight_bits].push_back(target_of(layer));
      return here;
    });
    if (paths.empty() || group.find("weights") == nullptr) {
      groups.items.push_back(std::move(group));
      continue;
    }
    for (const auto& [bits, targets] : paths) {
      YamlNode part = group;
      set_entry(part, "targets", yaml_list(targets));
      set_entry(part, "weights", of_width(*group.find("weights"), bits));
      groups.items.push_back(std::move(part));
    }
  }
  return groups;
}

std::string measuring_recipe(const Recipe& recipe, const std::optional<YamlNode>& groups,
                             const std::string& init_checkpoint) {
  YamlNode document = yaml_table({});
  for (const char* key : {"version", "name", "seed", "device", "data", "model"}) {
    copy_entry(document, recipe.resolved, key);
  }
  if (init_checkpoint == recipe.init_checkpoint) {
    copy_entry(document, recipe.resolved, "init");
  } else if (!init_checkpoint.empty()) {
    YamlNode path = yaml_scalar(init_checkpoint);
    path.quoted = true;
    set_entry(document, "init", yaml_table({{"checkpoint", std::move(path)}}));
  }
  YamlNode train = yaml_table({});
  for (const char* key : {"epochs", "optimizer", "loss", "huber_delta", "zero_infinity"}) {
    copy_entry(train, *recipe.resolved.find("train"), key);
  }
  for (const std::string& key : recipe.train.own_loss_keys) {
    copy_entry(train, *recipe.resolved.find("train"), key);
  }
  set_entry(document, "train", std::move(train));
  if (!groups) return to_yaml(document);
  YamlNode quantize = yaml_table({{"groups", *groups}});
  if (const YamlNode* given = recipe.resolved.find("quantize")) {
    copy_entry(quantize, *given, "ignore");
    copy_entry(quantize, *given, "bn_fold");
  }
  set_entry(document, "quantize", std::move(quantize));
  // Fixed point has no activations of fewer bits, whose cost its rounding does not tell either.
  const qat::Profile profile =
      qat::is_fixed_point(recipe.exports.profile) ? qat::Profile::kOrt : recipe.exports.profile;
  set_entry(
      document, "export",
      yaml_table({{"profile", yaml_scalar(word_of(profile))},
                  {"reduce_range", yaml_scalar(recipe.exports.reduce_range ? "true" : "false")}}));
  return to_yaml(document);
}

}  // namespace steelyard
