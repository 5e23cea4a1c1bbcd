#include "steelyard/recipes/hosted/hosted_ports.h"

#include <algorithm>
#include <stdexcept>

#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

// `held`: the shape as the engine has it.
HostedPort port_from(const imports::PortSpec& spec, const Shape& held, std::int64_t first) {
  HostedPort port{.name = spec.name, .sample = held, .whole = spec.whole(), .first = first};
  port.rotates = held.size() == 3 && !spec.channels_last;
  if (port.rotates) std::rotate(port.sample.begin(), port.sample.end() - 1, port.sample.end());
  for (const auto& [axis, name] : spec.free) {
    port.free.push_back(port.rotates ? (axis + 1) % 3 : axis);
  }
  return port;
}

Variable channels_last(const HostedPort& port, const Variable& x) {
  return port.rotates ? permute(x, {0, 2, 3, 1}) : x;
}

bool fits(const HostedPort& port, const Shape& batch) {
  if (batch.size() != port.sample.size() + 1 || batch[0] < 1) return false;
  for (std::size_t i = 0; i < port.sample.size(); ++i) {
    const auto axis = static_cast<std::int64_t>(i);
    const bool free = std::find(port.free.begin(), port.free.end(), axis) != port.free.end();
    if (batch[i + 1] != port.sample[i] && !(free && batch[i + 1] > 0)) return false;
  }
  return true;
}

std::string expected_text(const HostedPort& port) {
  std::string text = "[N";
  for (const std::int64_t size : port.sample) text += ", " + std::to_string(size);
  return text + "]";
}

}  // namespace

HostedPorts::HostedPorts(const imports::GraphSpec& network)
    : output_(port_from(network.output, network.output_sample, 0)),
      sample_(network.sample),
      reads_parts_(!network.parts.empty()) {
  for (const imports::PartSpec& part : network.parts) {
    inputs_.push_back(port_from(part.port, part.shape, part.first));
  }
  if (!reads_parts_) inputs_.push_back(port_from(network.input, network.sample, 0));
}

void HostedPorts::require_fit(const std::vector<Variable>& inputs) const {
  if (inputs.size() != inputs_.size()) {
    throw std::invalid_argument("expected " + std::to_string(inputs_.size()) + " inputs, got " +
                                std::to_string(inputs.size()));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "the input '" + printable(inputs_[i].name) + "'";
    if (!fits(inputs_[i], inputs[i].shape())) {
      throw std::invalid_argument(name + ": expected " + expected_text(inputs_[i]) + ", got " +
                                  shape_string(inputs[i].shape()));
    }
    if (inputs[i].dim(0) != inputs[0].dim(0)) {
      throw std::invalid_argument(name + ": expected a batch of " +
                                  std::to_string(inputs[0].dim(0)) + ", got " +
                                  std::to_string(inputs[i].dim(0)));
    }
  }
}

Variable HostedPorts::joined(const std::vector<Variable>& inputs) const {
  require_fit(inputs);
  if (!reads_parts_) return channels_last(inputs_[0], inputs[0]);
  const std::int64_t batch = inputs[0].dim(0);
  std::vector<std::size_t> order(inputs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return inputs_[a].first < inputs_[b].first; });
  std::vector<Variable> rows;
  for (const std::size_t i : order) {
    const Variable held = channels_last(inputs_[i], inputs[i]);
    rows.push_back(reshape(held, {batch, shape_size(inputs_[i].sample)}));
  }
  Shape whole = sample_;
  whole.insert(whole.begin(), batch);
  return reshape(rows.size() == 1 ? rows[0] : concat(rows), whole);
}

Variable HostedPorts::given(const Variable& output) const {
  return output_.rotates ? permute(output, {0, 3, 1, 2}) : output;
}

}  // namespace steelyard
