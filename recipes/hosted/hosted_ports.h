// The inputs and the output of an imported network, between its file's layouts and the engine's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/import/graph/graph_spec.h"

namespace steelyard {

// An input or an output as the file has it.
struct HostedPort {
  std::string name;
  Shape shape = {};                      // of one sample, with the batch's dimension, -1
  std::vector<std::int64_t> order = {};  // file_order() of it
  bool whole = false;                    // whole numbers, such as indices
  std::int64_t first = 0;                // of its values in a sample of the network, or in a row
  std::vector<std::int64_t> free = {};   // dimensions of `shape` that may have other sizes
};

class HostedPorts {
 public:
  explicit HostedPorts(const imports::GraphSpec& network);

  const std::vector<HostedPort>& inputs() const { return inputs_; }
  const HostedPort& output() const { return output_; }  // several: a row of all of them
  const std::vector<HostedPort>& outputs() const { return outputs_; }  // each, in the file's order

  // The network's samples from its inputs, f32 and in the file's order and layouts. Throws
  // std::invalid_argument naming the input.
  Variable joined(const std::vector<Variable>& inputs) const;
  // The network's output in the file's layout.
  Variable given(const Variable& output) const;
  // Each output in the file's layout, of what given() gives.
  std::vector<Tensor> parts(const Tensor& given) const;
  // Back, for their gradients: one for each output, undefined where there is none. Throws
  // std::invalid_argument, naming the output, for another number, dtype, shape or device than
  // parts() of `like` has, and where all are undefined.
  Tensor joined_gradients(const std::vector<Tensor>& gradients, const Tensor& like) const;

 private:
  void require_fit(const std::vector<Variable>& inputs) const;

  std::vector<HostedPort> inputs_;
  HostedPort output_;
  std::vector<HostedPort> outputs_;
  Shape sample_;
  bool reads_parts_;
  bool joins_outputs_;
};

}  // namespace steelyard
