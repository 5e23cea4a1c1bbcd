// Modules: parameters, buffers and named child slots.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/tensor/named_tensor.h"
#include "steelyard/framework/tensor/rng.h"

namespace steelyard {

// What a forward pass depends on besides its input: there is no hidden mode inside modules.
struct ForwardContext {
  bool training = false;     // batch statistics, dropout and observers are active
  Rng* rng = nullptr;        // source of randomness; required by Dropout in training
  bool calibrating = false;  // observers are active, nothing else of training is
};

class Module;

// What a program or a plugin calls the module that it made. Errors of its passes go, while they are
// being caught, through `rethrow`, which throws them on with `text` before their message.
struct ModulePart {
  std::string text = {};
  void (*rethrow)(const std::string& text) = nullptr;  // null: a module of the library
};

// A named place for a child module. Parents call the slot, so a replaced child leaves nothing
// dangling. A slot with an empty name adds nothing to the paths of what lies below.
class Slot {
 public:
  Slot(std::string name, std::shared_ptr<Module> module);
  const std::string& name() const { return name_; }
  Module& operator*() const { return *module_; }
  Module* operator->() const { return module_.get(); }
  const std::shared_ptr<Module>& module() const { return module_; }
  void replace(std::shared_ptr<Module> module);
  Variable operator()(const Variable& x, ForwardContext& context) const;
  Variable operator()(const Variable& x, ForwardContext&& context) const {
    return (*this)(x, context);
  }

 private:
  std::string name_;
  std::shared_ptr<Module> module_;
};

struct NamedParameter {
  std::string name;  // path joined by dots: "layer1.0.conv1.weight", as PyTorch writes it
  Variable variable;
};
// Each variable once, under its first name: a module in two slots lists its parameters twice.
std::vector<NamedParameter> distinct(std::vector<NamedParameter> parameters);

using NamedBuffer = NamedTensor;
struct NamedModule {
  std::string name;
  Module* module;
};

// Base of every layer. A subclass registers parameters, buffers and children in its constructor and
// computes forward(); it keeps no mode and no activations.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Variable forward(const Variable& x, ForwardContext& context) = 0;
  // forward() with a context of this call alone. It is hidden where a class declares its own
  // forward: a layer of known type is called as module(x, {.training = true}).
  Variable forward(const Variable& x, ForwardContext&& context) { return forward(x, context); }
  // forward(). Throws std::invalid_argument where x is undefined, and std::logic_error where
  // forward() gives an undefined variable.
  Variable operator()(const Variable& x, ForwardContext& context);
  Variable operator()(const Variable& x, ForwardContext&& context) { return (*this)(x, context); }
  // Of modules that are made by name, which messages about their passes say.
  const ModulePart& part() const { return part_; }
  void set_part(ModulePart part) { part_ = std::move(part); }
  // What has put another module in this one's place, so that calling this one is an error: it would
  // compute with parameters that nobody trains. "": nothing.
  const std::string& replaced_by() const { return replaced_by_; }
  void set_replaced_by(std::string what) { replaced_by_ = std::move(what); }
  // The type's name in recipes and plans: "Conv2d".
  virtual std::string type_name() const = 0;
  // One line for people: "Conv2d(1, 32, kernel 3x3, stride 1x1, padding 1x1)".
  virtual std::string description() const { return type_name(); }

  // Own children, in order of registration.
  const std::vector<std::unique_ptr<Slot>>& children() const { return children_; }
  // Throws std::out_of_range naming the path's missing part. "layer1.0.conv1" descends.
  Slot& slot(std::string_view path);

  // Everything below, depth first, paths prefixed by `prefix`. A module in two slots is listed with
  // both paths.
  std::vector<NamedParameter> named_parameters(const std::string& prefix = "") const;
  std::vector<NamedBuffer> named_buffers(const std::string& prefix = "") const;
  // This module first (name: prefix), then its descendants.
  std::vector<NamedModule> named_modules(const std::string& prefix = "");

 protected:
  // The returned reference stays valid for the module's life.
  Variable& register_parameter(std::string name, Tensor value);
  // The handle shares storage with the registered buffer: writes through it are the state.
  Tensor register_buffer(std::string name, Tensor value);
  // A buffer whose values the host needs: it stays on the CPU when the module moves to another
  // device.
  Tensor register_host_buffer(std::string name, Tensor value);
  Slot& register_child(std::string name, std::shared_ptr<Module> module);

 private:
  struct Parameter {
    std::string name;
    Variable variable;
  };
  void require_free_name(const std::string& name) const;

  ModulePart part_;
  std::string replaced_by_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<NamedBuffer> buffers_;
  std::vector<std::unique_ptr<Slot>> children_;
};

[[noreturn]] void throw_null_module();

// A module that is called like a function, with shared ownership: what builders return and
// containers keep. A signature tells about ownership: Module& uses a module during the call, a
// pointer keeps it.
template <typename M = Module>
class ModulePtr : public std::shared_ptr<M> {
 public:
  using std::shared_ptr<M>::shared_ptr;
  ModulePtr(std::shared_ptr<M> module) : std::shared_ptr<M>(std::move(module)) {}  // NOLINT

  // Throws std::invalid_argument where the pointer is null or x undefined.
  Variable operator()(const Variable& x, ForwardContext& context) const {
    if (*this == nullptr) throw_null_module();
    return (**this)(x, context);
  }
  Variable operator()(const Variable& x, ForwardContext&& context) const {
    return (*this)(x, context);
  }
};

// As std::make_shared: make_module<Linear>(options, rng).
template <typename M, typename... Arguments>
ModulePtr<M> make_module(Arguments&&... arguments) {
  return std::make_shared<M>(std::forward<Arguments>(arguments)...);
}

// "a" + "b" -> "a.b"; an empty side adds no dot.
std::string join_path(const std::string& prefix, const std::string& name);

// Marks every gradient as absent.
void clear_gradients(const Module& module);

// Moves all parameters and buffers except host buffers, and everything that shares their storage,
// to a device. Gradients are cleared.
void move_to(const Module& module, Device device);

// The device of the module's parameters; the CPU if it has none.
Device device_of(const Module& module);

}  // namespace steelyard
