#include "steelyard/recipes/schema/registries.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/framework/train/training_words.h"
#include "steelyard/qat/layers/form_table.h"

namespace steelyard {

void rethrow_of_part(const std::string& part) {
  const std::string begin = part + ": ";
  try {
    throw;
  } catch (const InputError&) {
    throw;
  } catch (const DeviceError& error) {
    throw DeviceError(begin + error.what());
  } catch (const TrainingDiverged& error) {
    throw TrainingDiverged(begin + error.what());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(begin + error.what());
  } catch (...) {
    throw std::runtime_error(begin + "threw something that is no std::exception");
  }
}

void Registries::add_metric(MetricInfo metric) {
  const std::string part = note_part(PartKind::kMetric, metric.name);
  if (!metric.value) throw std::invalid_argument("[registries] " + part + " computes nothing");
  metric.value = [part, value = std::move(metric.value)](const Predictions& predictions,
                                                         const Dataset& dataset) {
    return in_part(part, [&] { return value(predictions, dataset); });
  };
  own_metrics.push_back(std::move(metric));
}

void Registries::add_form(qat::QuantizedForm form) {
  const auto taken = [&](const qat::QuantizedForms& all) {
    return std::any_of(all.begin(), all.end(), [&](const auto& f) { return f.type == form.type; });
  };
  if (taken(qat::builtin_forms()) || taken(own_forms)) {
    throw std::invalid_argument("[registries] " + form.type + " has a quantized form already");
  }
  const std::string part =
      "the quantized form of " + form.type + (adding.empty() ? "" : " of the plugin " + adding);
  form.make = [part, make = std::move(form.make)](const Module& module,
                                                  const qat::FormRequest& request) {
    std::shared_ptr<Module> made = in_part(part, [&] { return make(module, request); });
    if (made) made->set_part({part, rethrow_of_part});
    return made;
  };
  own_forms.push_back(std::move(form));
}

std::vector<std::string> Registries::names(PartKind kind) const {
  std::vector<std::string> names;
  switch (kind) {
    case PartKind::kDataset:
      return datasets.names();
    case PartKind::kModel:
      return models.model_types();
    case PartKind::kLayer:
      return models.layer_types();
    case PartKind::kLoss:
      names = all_words<Loss::Type>();
      for (const auto& row : own_losses) names.push_back(row.described.value);
      return names;
    case PartKind::kMetric:
      for (const MetricInfo& metric : metric_table()) names.emplace_back(metric.name);
      for (const MetricInfo& metric : own_metrics) names.emplace_back(metric.name);
      return names;
    case PartKind::kObserver:
      names = observers::observer_names();
      for (const auto& row : own_observers) names.push_back(row.described.value);
      return names;
  }
  throw std::logic_error("[registries] unknown kind of part");
}

bool Registries::has(PartKind kind, const std::string& name) const {
  const std::vector<std::string> all = names(kind);
  return std::find(all.begin(), all.end(), name) != all.end();
}

std::vector<OwnPart> Registries::own_parts() const {
  std::vector<OwnPart> parts;
  for (const Word<PartKind>& kind : words_of(PartKind{})) {
    for (const std::string& name : names(kind.value)) {
      if (builtin_registries().has(kind.value, name)) continue;
      parts.push_back({kind.value, name, plugin_of(kind.value, name)});
    }
  }
  return parts;
}

std::string Registries::plugin_of(PartKind kind, const std::string& name) const {
  for (const OwnPart& part : of_plugins) {
    if (part.kind == kind && part.name == name) return part.plugin;
  }
  return "";
}

std::string Registries::digest_of_plugins() const {
  std::string digests;
  for (const LoadedPlugin& plugin : plugins) digests += plugin.sha256;
  return digests.empty() ? "" : sha256_of(digests);
}

std::string Registries::text_of(PartKind kind, const std::string& name) const {
  const std::string plugin = plugin_of(kind, name);
  return "the " + word_of(kind) + " '" + name + "'" +
         (plugin.empty() ? "" : " of the plugin " + plugin);
}

std::string Registries::note_part(PartKind kind, const std::string& name) {
  if (name.empty()) {
    throw std::invalid_argument("[registries] expected a name of the " + word_of(kind) +
                                ", got none");
  }
  if (has(kind, name)) {
    const std::string plugin = plugin_of(kind, name);
    throw std::invalid_argument("[registries] the " + word_of(kind) + " '" + name +
                                "' is taken: by " +
                                (builtin_registries().has(kind, name) ? "the library"
                                 : plugin.empty()                     ? "the program"
                                                                      : "the plugin " + plugin));
  }
  if (!adding.empty()) of_plugins.push_back({kind, name, adding});
  return text_of(kind, name);
}

LossInfo Registries::named_loss(const std::string& part, const std::string& name, LossInfo loss) {
  if (!loss.compute) throw std::invalid_argument("[registries] " + part + " computes nothing");
  loss.name = name;
  loss.type = Loss::Type::kOwn;
  loss.compute = [part, compute = std::move(loss.compute)](const Loss& of, const Variable& outputs,
                                                           const Tensor& targets,
                                                           const LossPart& rows) {
    return in_part(part, [&] { return compute(of, outputs, targets, rows); });
  };
  if (loss.of_zero_outputs) {
    loss.of_zero_outputs = [part, of_zeros = std::move(loss.of_zero_outputs)](
                               const Loss& of, const Dataset& dataset) {
      return in_part(part, [&] { return of_zeros(of, dataset); });
    };
  }
  return loss;
}

const Registries& builtin_registries() {
  static const Registries registries;
  return registries;
}

}  // namespace steelyard
