// Sequences for a network with states: inputs that are outputs of the step before. The float
// network gives the states that its integers are calibrated and trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/data/dataset_names.h"
#include "steelyard/import/graph/graph_spec.h"
#include "steelyard/recipes/searches/fidelity.h"
#include "steelyard/recipes/searches/found_recipe.h"

namespace steelyard {

// One or more sequences of as many steps, in the other inputs than states.
struct Sequences {
  std::int64_t count = 0;
  std::int64_t steps = 0;
  std::vector<NamedInput> inputs = {};  // of one step
  Tensor values = {};                   // f32 [count, steps, values of all inputs]
};

class StateSteps {
 public:
  // Reads the sequences of `given.data`, an array for each input that is no state: [steps, ...] of
  // one sequence or [sequences, steps, ...]. Imports the network, whose states are `given.states`,
  // "h=hn" each: the input h is the output hn of the step before. Throws InputError.
  explicit StateSteps(const FileAndData& given);

  // A line for the user.
  std::string text() const;
  // Runs the float network over all sequences, from states of zeros on, and writes the inputs of
  // all steps, states too: f32 safetensors [sequences * steps, ...], sequences one after another.
  void write(const std::filesystem::path& file) const;
  // How near a network is over some of the sequences, each network fed with its own states.
  Fidelity in_a_row(Module& quantized) const;
  std::string in_a_row_text() const;  // "8 sequences of 40 steps"

 private:
  // Values among those of a step's inputs.
  struct Part {
    std::int64_t first, size;
  };
  struct StateSpan {
    std::int64_t input, output;  // the first of its values there
    std::int64_t size;
  };
  struct Rolled {
    Tensor inputs;   // f32 [sequences, steps, values]
    Tensor outputs;  // likewise
  };
  Rolled roll(Module& network, const std::vector<std::int64_t>& sequences,
              std::int64_t steps) const;
  std::int64_t reported_sequences() const;
  std::int64_t reported_steps() const;

  std::vector<std::string> pairs_;  // "h=hn"
  Sequences sequences_;
  std::vector<NamedInput> inputs_;  // all of a step, in the file's order
  std::vector<Part> data_;          // those that are no states
  std::vector<StateSpan> states_;
  imports::GraphSpec graph_;
  std::shared_ptr<Module> float_;
};

}  // namespace steelyard
