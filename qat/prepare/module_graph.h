// A model as one graph of the modules that compute, whatever containers they lie in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/model/target_match.h"

namespace steelyard::qat {

// A module with a quantized form, one that stays as it is, or a container whose forward is unknown.
struct ModuleNode {
  // Stands for a value that no node computes.
  static constexpr std::size_t kModelInput = SIZE_MAX;
  static constexpr std::size_t kUnknown = SIZE_MAX - 1;  // inside a container of unknown forward

  // A reader of the output: a node, and which of its operands.
  struct Reader {
    std::size_t node;
    std::size_t operand;
  };

  Slot* slot;
  std::string path;
  const QuantizedForm* form;        // null where there is none
  TargetMatcher::Scope container;   // the innermost
  TargetMatcher::Scope scope;       // its own; kNoScope for a weighted layer
  std::vector<std::size_t> inputs;  // indices of nodes, or one of the above
  std::vector<Reader> readers{};
  bool is_output = false;  // of the model
};

// A parameter of the module itself, and its value; undefined where it has none of that name.
Variable own_variable(const Module& module, const std::string& name);
Tensor own_parameter(const Module& module, const std::string& name);

// The nodes, each after those whose outputs it reads. Every module is entered into `targets` but
// weighted layers, with the forms of the profile. A GraphModule is taken apart; the children of any
// other container are nodes that read kUnknown, after the container's own.
std::vector<ModuleNode> module_graph(Slot& root, const QuantizedForms& own_forms,
                                     TargetMatcher& targets, Profile profile = Profile::kOrt);

// The node that alone reads the output of nodes[i], in the same container; null if there is none.
const ModuleNode* sole_reader(const std::vector<ModuleNode>& nodes, std::size_t i);

// Whether the output of nodes[i] is read only to be divided by, or for a square root, logarithm or
// power, a constant added or multiplied before: as the variance of a norm is. Small values of it
// count, which a code would make 0. Returns the type of such a reader; "" if there is another.
std::string reads_small_values(const std::vector<ModuleNode>& nodes, std::size_t i);

}  // namespace steelyard::qat
