#include "steelyard/framework/files/checkpoint.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "steelyard/framework/autograd/state_check.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/suggest.h"

namespace steelyard {
namespace {

// Counts of batches that older files do not have.
bool may_be_absent(const std::string& name) { return name.ends_with("num_batches_tracked"); }

bool converts(DType from, DType to) { return from == to || (is_floating(from) && is_floating(to)); }

// What disagrees between a module and a list of tensors, by kind.
class Disagreements {
 public:
  void add(const std::string& kind, const std::string& what) { lists_[kind].push_back(what); }

  // `given`: the names of a source's tensors that the module does not have.
  void throw_if_any(const std::string& source_name, const std::vector<std::string>& given) {
    std::string text;
    std::vector<std::string>& missing = lists_["missing"];
    std::sort(missing.begin(), missing.end());
    for (std::size_t i = 0; i < std::min(missing.size(), kShown); ++i) {
      const std::string near = near_name(missing[i], given);
      if (!near.empty()) missing[i] += " (the file has '" + printable(near) + "')";
    }
    for (const char* kind :
         {"missing", "unexpected", "undefined", "given twice", "wrong shape", "wrong dtype"}) {
      if (lists_[kind].empty()) continue;
      std::sort(lists_[kind].begin(), lists_[kind].end());
      text += (text.empty() ? "" : "; ") + std::string(kind) + ": " + joined(lists_[kind]);
    }
    if (!text.empty()) {
      throw InputError(printable(source_name) + ": tensors do not fit the model: " + text);
    }
  }

 private:
  static constexpr std::size_t kShown = 5;  // of each kind

  // "fc.weight" is near "module.fc.weight", as wrappers name it, and "fc1.weight".
  static std::string near_name(const std::string& name, const std::vector<std::string>& given) {
    for (const std::string& other : given) {
      if (other.ends_with("." + name) || name.ends_with("." + other)) return other;
    }
    return nearest_word(name, given);
  }

  static std::string joined(const std::vector<std::string>& items) {
    std::string text;
    for (std::size_t i = 0; i < std::min(items.size(), kShown); ++i) {
      text += (i == 0 ? "" : ", ") + items[i];
    }
    if (items.size() <= kShown) return text;
    return text + " and " + std::to_string(items.size() - kShown) + " more, " +
           std::to_string(items.size()) + " in all";
  }

  std::map<std::string, std::vector<std::string>> lists_;
};

// `given`: the tensors that are about to be loaded, by their names in the module.
void check_states(Module& module, const std::map<std::string, Tensor>& given,
                  const std::string& source_name) {
  for (const NamedModule& entry : module.named_modules()) {
    const auto* check = dynamic_cast<const StateCheck*>(entry.module);
    if (check == nullptr) continue;
    std::map<std::string, Tensor> state;
    for (const NamedTensor& own : module_state(*entry.module)) {
      const auto found = given.find(join_path(entry.name, own.name));
      if (found != given.end()) {
        state.emplace(own.name, found->second.to(Device{}).to(own.tensor.dtype()));
      }
    }
    try {
      check->check_state(state);
    } catch (const std::invalid_argument& error) {
      throw InputError(printable(source_name) + ": " + join_path(entry.name, error.what()));
    }
  }
}

// Under every name: a module in two slots has two for each tensor.
std::vector<NamedTensor> all_state(const Module& module) {
  std::vector<NamedTensor> state;
  for (const NamedParameter& p : module.named_parameters()) {
    state.push_back({p.name, p.variable.value()});
  }
  for (NamedBuffer& b : module.named_buffers()) state.push_back(std::move(b));
  return state;
}

// What tells a tensor from others that have elements.
using TensorIdentity = std::pair<const void*, Shape>;
TensorIdentity identity_of(const Tensor& tensor) { return {tensor.raw(), tensor.shape()}; }

}  // namespace

std::vector<NamedTensor> module_state(const Module& module) {
  std::vector<NamedTensor> state = all_state(module);
  std::set<TensorIdentity> known;
  std::erase_if(state, [&](const NamedTensor& named) {
    return named.tensor.size() > 0 && !known.insert(identity_of(named.tensor)).second;
  });
  return state;
}

void load_into(Module& module, const std::vector<NamedTensor>& tensors,
               const std::string& source_name) {
  Disagreements disagreements;
  std::map<std::string, Tensor> given;
  for (const NamedTensor& t : tensors) {
    if (t.name.find('/') != std::string::npos) continue;
    if (!t.tensor.defined()) {
      disagreements.add("undefined", printable(t.name));
    } else if (!given.emplace(t.name, t.tensor).second) {
      disagreements.add("given twice", printable(t.name));
    }
  }
  std::vector<std::pair<Tensor, Tensor>> copies;  // destination, source
  std::map<std::string, Tensor> fitting;
  std::map<TensorIdentity, Tensor> shared;  // what was given for a tensor, under whichever name
  const std::vector<NamedTensor> states = all_state(module);
  for (const NamedTensor& state : states) {
    const auto found = given.find(state.name);
    if (found == given.end() || state.tensor.size() == 0) continue;
    shared.emplace(identity_of(state.tensor), found->second);
  }
  for (const NamedTensor& state : states) {
    const auto found = given.find(state.name);
    const auto other = shared.find(identity_of(state.tensor));
    if (found == given.end() && other == shared.end()) {
      if (!may_be_absent(state.name)) disagreements.add("missing", state.name);
      continue;
    }
    const Tensor source = found == given.end() ? other->second : found->second;
    if (found != given.end()) given.erase(found);
    if (source.shape() != state.tensor.shape()) {
      disagreements.add("wrong shape", state.name + " expected " +
                                           shape_string(state.tensor.shape()) + " got " +
                                           shape_string(source.shape()));
    } else if (!converts(source.dtype(), state.tensor.dtype())) {
      disagreements.add("wrong dtype", state.name + " expected " +
                                           std::string(dtype_name(state.tensor.dtype())) + " got " +
                                           std::string(dtype_name(source.dtype())));
    } else {
      copies.emplace_back(state.tensor, source);
      fitting.emplace(state.name, source);
    }
  }
  std::vector<std::string> unexpected;
  for (const auto& [name, tensor] : given) {
    disagreements.add("unexpected", printable(name));
    unexpected.push_back(name);
  }
  disagreements.throw_if_any(source_name, unexpected);
  check_states(module, fitting, source_name);
  for (const auto& [destination, source] : copies) {
    destination.copy_from(source.dtype() == destination.dtype() ? source
                                                                : source.to(destination.dtype()));
  }
}

}  // namespace steelyard
