#include "steelyard/framework/autograd/module.h"

#include <stdexcept>
#include <typeinfo>  // IWYU pragma: keep: for typeid
#include <unordered_set>

#include "steelyard/framework/autograd/tape_trace.h"

namespace steelyard {
namespace {

void require_input(const Module& module, const Variable& x) {
  if (!module.replaced_by().empty()) {
    throw std::logic_error("[" + module.type_name() + "] " + module.replaced_by() +
                           ": call the slot that register_child() gave, not the module");
  }
  if (x.defined()) return;
  throw std::invalid_argument("[" + module.type_name() +
                              "] expected an input, got an undefined variable");
}

// What a module at that path gave, which is a value.
Variable required_output(const Module& module, const std::string& name, Variable y) {
  if (y.defined()) return y;
  throw std::logic_error("[" + module.type_name() + "] " + (name.empty() ? "" : name + ": ") +
                         "forward gave an undefined variable");
}

// Marks an error whose message begins with the path of the module that it is of.
class OfModule {};

template <typename Error>
class ErrorOfModule : public Error, public OfModule {
 public:
  using Error::Error;
};

// To be called where `error` is handled, in the scope of the slot that it came to first.
template <typename Error>
[[noreturn]] void throw_with_path(const Error& error) {
  const std::string path = module_path();
  if (path.empty()) throw;
  throw ErrorOfModule<Error>(path + ": " + error.what());
}

// What call() gives; an error has the module's part before its message.
template <typename F>
Variable in_part_of(const Module& module, const F& call) {
  const auto& [text, rethrow] = module.part();
  if (rethrow == nullptr) return call();
  try {
    return call();
  } catch (const std::out_of_range& error) {  // callers look for those
    throw ErrorOfModule<std::out_of_range>(text + ": " + error.what());
  } catch (...) {
    rethrow(text);
    throw;
  }
}

}  // namespace

Slot::Slot(std::string name, std::shared_ptr<Module> module) : name_(std::move(name)) {
  replace(std::move(module));
}

void Slot::replace(std::shared_ptr<Module> module) {
  if (!module) throw std::invalid_argument("[module] null child for slot '" + name_ + "'");
  module_ = std::move(module);
}

Variable Slot::operator()(const Variable& x, ForwardContext& context) const {
  require_input(*module_, x);
  const TapeScope scope(name_);
  return in_part_of(*module_, [&] {
    try {
      Variable y = required_output(*module_, name_, module_->forward(x, context));
      watch_output(y);
      return y;
    } catch (const OfModule&) {
      throw;
    } catch (const std::out_of_range& error) {  // an index that no table has
      throw_with_path(error);
    } catch (const std::invalid_argument& error) {  // a shape that the module does not take
      if (typeid(error) != typeid(std::invalid_argument)) throw;
      throw_with_path(error);
    }
  });
}

std::vector<NamedParameter> distinct(std::vector<NamedParameter> parameters) {
  std::unordered_set<const GradNode*> known;
  std::erase_if(parameters, [&](const NamedParameter& p) {
    return !known.insert(p.variable.node().get()).second;
  });
  return parameters;
}

std::string join_path(const std::string& prefix, const std::string& name) {
  if (prefix.empty()) return name;
  return name.empty() ? prefix : prefix + "." + name;
}

Variable Module::operator()(const Variable& x, ForwardContext& context) {
  require_input(*this, x);
  return in_part_of(*this, [&] { return required_output(*this, "", forward(x, context)); });
}

Slot& Module::slot(std::string_view path) {
  for (const auto& child : children_) {
    const std::string& name = child->name();
    if (path == name) return *child;
    if (!name.empty() && path.starts_with(name) && path[name.size()] == '.') {
      return (*child)->slot(path.substr(name.size() + 1));
    }
  }
  for (const auto& child : children_) {
    if (!child->name().empty()) continue;
    try {
      return (*child)->slot(path);
    } catch (const std::out_of_range&) {
      // Several unnamed slots may be there: the next may hold it.
    }
  }
  throw std::out_of_range("[module] " + type_name() + " has no child '" + std::string(path) + "'");
}

std::vector<NamedParameter> Module::named_parameters(const std::string& prefix) const {
  std::vector<NamedParameter> all;
  for (const auto& p : parameters_) all.push_back({join_path(prefix, p->name), p->variable});
  for (const auto& child : children_) {
    for (auto& p : (*child)->named_parameters(join_path(prefix, child->name()))) {
      all.push_back(std::move(p));
    }
  }
  return all;
}

std::vector<NamedBuffer> Module::named_buffers(const std::string& prefix) const {
  std::vector<NamedBuffer> all;
  for (const auto& b : buffers_) all.push_back({join_path(prefix, b.name), b.tensor, b.on_host});
  for (const auto& child : children_) {
    for (auto& b : (*child)->named_buffers(join_path(prefix, child->name()))) {
      all.push_back(std::move(b));
    }
  }
  return all;
}

std::vector<NamedModule> Module::named_modules(const std::string& prefix) {
  std::vector<NamedModule> all{{prefix, this}};
  for (const auto& child : children_) {
    for (auto& m : (*child)->named_modules(join_path(prefix, child->name()))) all.push_back(m);
  }
  return all;
}

Variable& Module::register_parameter(std::string name, Tensor value) {
  require_free_name(name);
  parameters_.push_back(std::make_unique<Parameter>(
      Parameter{std::move(name), Variable(std::move(value), /*requires_grad=*/true)}));
  return parameters_.back()->variable;
}

Tensor Module::register_buffer(std::string name, Tensor value) {
  require_free_name(name);
  if (!value.defined()) {
    throw std::invalid_argument("[module] expected a tensor for the buffer '" + name +
                                "', got an undefined one");
  }
  buffers_.push_back({std::move(name), value});
  return value;
}

Tensor Module::register_host_buffer(std::string name, Tensor value) {
  register_buffer(std::move(name), value);
  buffers_.back().on_host = true;
  return value;
}

Slot& Module::register_child(std::string name, std::shared_ptr<Module> module) {
  if (!name.empty()) require_free_name(name);
  if (module != nullptr) {
    for (const NamedModule& inner : module->named_modules()) {
      if (inner.module == this) {
        throw std::invalid_argument("[module] child '" + name + "' has its own parent inside");
      }
    }
  }
  children_.push_back(std::make_unique<Slot>(std::move(name), std::move(module)));
  return *children_.back();
}

void Module::require_free_name(const std::string& name) const {
  bool taken = name.empty() || name.find_first_of("./") != std::string::npos;
  for (const auto& p : parameters_) taken = taken || p->name == name;
  for (const auto& b : buffers_) taken = taken || b.name == name;
  for (const auto& c : children_) taken = taken || c->name() == name;
  if (taken) {
    throw std::invalid_argument("[module] name '" + name + "' is empty, taken or holds '.' or '/'");
  }
}

void throw_null_module() {
  throw std::invalid_argument("[module] expected a module to call, got a null ModulePtr");
}

void clear_gradients(const Module& module) {
  for (NamedParameter& p : module.named_parameters()) p.variable.clear_grad();
}

void move_to(const Module& module, Device device) {
  clear_gradients(module);
  for (const NamedParameter& p : module.named_parameters()) p.variable.value().move_to(device);
  for (const NamedBuffer& b : module.named_buffers()) {
    if (!b.on_host) b.tensor.move_to(device);
  }
}

Device device_of(const Module& module) {
  const std::vector<NamedParameter> parameters = module.named_parameters();
  return parameters.empty() ? Device{} : parameters.front().variable.value().device();
}

}  // namespace steelyard
