// What prepare() decides before it changes anything: for every module of the graph whether it is
// quantized, how, and if not, why.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/qat/prepare/module_graph.h"
#include "steelyard/qat/quantizers/qconfig.h"

namespace steelyard::qat {

inline constexpr const char* kInputName = "(input)";  // of the model, in the plan

// How a value of the graph is represented, and by which quantizer.
struct Flow {
  enum class Kind { kModelInput, kQuantized, kFloat, kUnknown };
  Kind kind = Kind::kModelInput;
  std::string source = kInputName;             // the quantizer's owner
  std::optional<QuantizerConfig> config = {};  // of a quantized one
};

struct Decision {
  enum class Kind {
    kWeighted,       // becomes a QuantizedLayer, with the norm and the activation that it takes
    kWeightedFloat,  // stays in float, with what it would have taken
    kPassesThrough,  // works on its input's codes
    kOwnOutput,      // its output has a quantizer of its own
    kContinues,      // its reader has the quantizer: `reason` is that one's path
    kFloat,          // has a quantized form, and stays in float
    kNoForm,
    kContainer,  // of unknown forward: its children are quantized one by one
    kIdentity
  };

  Kind kind = Kind::kIdentity;
  std::size_t node = 0;                         // of the graph
  std::optional<std::size_t> norm, activation;  // nodes that it takes along
  Flow in{};                                    // its input; of several the first
  std::string reason{};                         // why it stays in float
  QConfig config{};                             // kWeighted: of its group
  std::string place{};                          // kWeighted: of the target, for messages
  // kWeighted: why its output stays in float although its group has activations; kOwnOutput: the
  // note in the plan.
  std::string note{};
  // kWeighted: what quantizes the values that it multiplies; none where they are floats.
  std::optional<QuantizerConfig> multiplied{};
  bool quantizes_input = false;  // kWeighted: by a quantizer of its own
  QuantizerConfig output{};      // kOwnOutput
  kernels::Activation activated = kernels::Activation::kNone;  // the function of `activation`
};

struct Decisions {
  std::vector<ModuleNode> nodes;
  std::vector<Decision> decisions;         // each after those whose outputs it reads
  std::optional<QuantizerConfig> input{};  // of the model's input
};

// Decides for the modules below `root`. Throws InputError as prepare() does.
Decisions decide(Slot& root, const QuantizeConfig& config, const QuantizedForms& own_forms);

}  // namespace steelyard::qat
