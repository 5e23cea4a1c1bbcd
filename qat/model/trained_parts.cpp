#include "steelyard/qat/model/trained_parts.h"

#include <algorithm>
#include <set>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/suggest.h"
#include "steelyard/qat/model/target_match.h"

namespace steelyard::qat {

TrainedParts::TrainedParts(Module& model, const std::vector<std::string>& targets,
                           const std::vector<std::string>& places, const std::string& key)
    : everything_(false) {
  const std::vector<NamedModule> modules = model.named_modules();
  std::set<std::string> names;
  for (const NamedModule& entry : modules) {
    if (entry.module->named_parameters().empty()) continue;
    names.insert(entry.module->type_name());
    if (!entry.name.empty()) names.insert(entry.name);
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    std::string where = i < places.size() ? places[i] : key;
    if (!where.ends_with(key)) where += ": " + key;  // an override's place is its key
    const TargetPattern target(targets[i], where);
    bool matches = false, trains = false;
    for (const NamedModule& entry : modules) {
      if (entry.name.empty() || !target.matches(entry.name, entry.module->type_name())) continue;
      matches = true;
      if (entry.module->named_parameters().empty()) continue;
      trains = true;
      paths_.push_back(entry.name);
    }
    if (trains) continue;
    const std::string nearest = nearest_word(target.text, {names.begin(), names.end()});
    std::string problem = "matches no module";
    if (matches) {
      problem = "names only modules without parameters";
    } else if (!nearest.empty()) {
      problem += " (did you mean '" + nearest + "'?)";
    }
    throw InputError(target.where + ": '" + target.text + "' " + problem);
  }
}

bool TrainedParts::contain(const std::string& path) const {
  return everything_ || std::any_of(paths_.begin(), paths_.end(), [&](const std::string& part) {
           return path == part || path.starts_with(part + ".");
         });
}

std::int64_t freeze_rest(Module& model, const TrainedParts& trained) {
  const std::vector<NamedParameter> parameters = model.named_parameters();
  // One of several names is enough.
  std::set<const GradNode*> trains;
  for (const NamedParameter& p : parameters) {
    if (trained.contain(p.name)) trains.insert(p.variable.node().get());
  }
  std::int64_t count = 0;
  for (NamedParameter& p : distinct(parameters)) {
    const bool is_trained = trains.contains(p.variable.node().get());
    p.variable.set_requires_grad(is_trained);
    if (is_trained) count += p.variable.value().size();
  }
  return count;
}

}  // namespace steelyard::qat
