// A network and its passes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "steelyard/c/steelyard_c.h"
#include "steelyard/c/views.h"
#include "steelyard/recipes/hosted/hosted_network.h"

struct steelyard_network {
  std::shared_ptr<steelyard::HostedNetwork> hosted;
  std::vector<std::string> buffer_names;  // they are made anew by each question for buffers
  std::string text;                       // that was given last
};

struct steelyard_pass {
  std::shared_ptr<steelyard::HostedNetwork> hosted;  // the tape points to its parts
  steelyard::HostedPass pass;
};

namespace steelyard::c {

// Throws std::invalid_argument where the context asks for TF32 and the network is on the CPU.
void require_precision(const steelyard_context& context, const HostedNetwork& network);

// The engine's copies of `count` tensors of the caller's, on the network's device.
std::vector<Tensor> copied_inputs(const HostedNetwork& network, std::size_t count,
                                  const DLTensor* const* inputs);

}  // namespace steelyard::c
