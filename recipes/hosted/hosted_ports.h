// The inputs and the output of an imported network, between its file's layouts and the engine's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/import/graph_spec.h"

namespace steelyard {

// An input or the output as the file has it.
struct HostedPort {
  std::string name;
  Shape sample;        // without the batch; images as [C, H, W] unless the file has them otherwise
  bool whole = false;  // whole numbers, such as indices
  bool rotates = false;    // an image whose channels come first: the engine holds [H, W, C]
  std::int64_t first = 0;  // of its values in a sample of the network
  std::vector<std::int64_t> free = {};  // dimensions of `sample` that may have other sizes
};

class HostedPorts {
 public:
  explicit HostedPorts(const imports::GraphSpec& network);

  const std::vector<HostedPort>& inputs() const { return inputs_; }
  const HostedPort& output() const { return output_; }

  // The network's samples from its inputs, f32 and in the file's order and layouts. Throws
  // std::invalid_argument naming the input.
  Variable joined(const std::vector<Variable>& inputs) const;
  // The network's output in the file's layout.
  Variable given(const Variable& output) const;

 private:
  void require_fit(const std::vector<Variable>& inputs) const;

  std::vector<HostedPort> inputs_;
  HostedPort output_;
  Shape sample_;
  bool reads_parts_;
};

}  // namespace steelyard
