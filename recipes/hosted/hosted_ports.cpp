#include "steelyard/recipes/hosted/hosted_ports.h"

#include <algorithm>
#include <stdexcept>

#include "steelyard/framework/ops/moves/concat.h"
#include "steelyard/framework/ops/moves/permute.h"
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/tensor/file_order.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

using Order = std::vector<std::int64_t>;

// `held`: the shape as the engine has it.
HostedPort port_from(const imports::PortSpec& spec, const Shape& held, std::int64_t first) {
  HostedPort port{.name = spec.name,
                  .order = file_order(held.size(), spec.channels_last, spec.batch_axis),
                  .whole = spec.whole(),
                  .first = first};
  for (std::size_t i = 0; i < port.order.size(); ++i) {
    const std::int64_t axis = port.order[i] - 1;
    port.shape.push_back(axis < 0 ? -1 : held[static_cast<std::size_t>(axis)]);
    if (spec.free.contains(axis)) port.free.push_back(static_cast<std::int64_t>(i));
  }
  return port;
}

Order engine_order(const HostedPort& port) { return file_order(port.order.size() - 1, true, 0); }

Variable turned(const Variable& x, const Order& before, const Order& after) {
  return before == after ? x : permute(x, order_between(before, after));
}

// The shape that the engine has of it.
Shape engine_shape(const HostedPort& port, std::int64_t batch) {
  Shape held(port.order.size());
  for (std::size_t i = 0; i < port.order.size(); ++i) {
    held[static_cast<std::size_t>(port.order[i])] = port.shape[i] < 0 ? batch : port.shape[i];
  }
  return held;
}

std::int64_t batch_of(const HostedPort& port, const Variable& x) {
  return x.dim(std::find(port.order.begin(), port.order.end(), 0) - port.order.begin());
}

bool fits(const HostedPort& port, const Shape& batch) {
  if (batch.size() != port.shape.size()) return false;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto axis = static_cast<std::int64_t>(i);
    const bool free =
        port.shape[i] < 0 || std::find(port.free.begin(), port.free.end(), axis) != port.free.end();
    if (batch[i] != port.shape[i] && !(free && batch[i] > 0)) return false;
  }
  return true;
}

std::string expected_text(const HostedPort& port) {
  std::string text;
  for (const std::int64_t size : port.shape) {
    text += (text.empty() ? "[" : ", ") + (size < 0 ? "N" : std::to_string(size));
  }
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
  for (const imports::PartSpec& part : network.output_parts) {
    outputs_.push_back(port_from(part.port, part.shape, part.first));
  }
  joins_outputs_ = !outputs_.empty();
  if (!joins_outputs_) outputs_.push_back(output_);
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
    const std::int64_t first = batch_of(inputs_[0], inputs[0]),
                       own = batch_of(inputs_[i], inputs[i]);
    if (own != first) {
      throw std::invalid_argument(name + ": expected a batch of " + std::to_string(first) +
                                  ", got " + std::to_string(own));
    }
  }
}

Variable HostedPorts::joined(const std::vector<Variable>& inputs) const {
  require_fit(inputs);
  const auto held = [&](std::size_t i) {
    return turned(inputs[i], inputs_[i].order, engine_order(inputs_[i]));
  };
  if (!reads_parts_) return held(0);
  const std::int64_t batch = batch_of(inputs_[0], inputs[0]);
  std::vector<std::size_t> order(inputs.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return inputs_[a].first < inputs_[b].first; });
  std::vector<Variable> rows;
  for (const std::size_t i : order) {
    rows.push_back(reshape(held(i), {batch, shape_size(inputs[i].shape()) / batch}));
  }
  Shape whole = sample_;
  whole.insert(whole.begin(), batch);
  return reshape(rows.size() == 1 ? rows[0] : concat(rows), whole);
}

Variable HostedPorts::given(const Variable& output) const {
  return turned(output, engine_order(output_), output_.order);
}

std::vector<Tensor> HostedPorts::parts(const Tensor& given) const {
  if (!joins_outputs_) return {given};
  const NoGradGuard no_grad;
  std::vector<Tensor> parts;
  for (const HostedPort& port : outputs_) {
    const Shape held = engine_shape(port, given.dim(0));
    const std::int64_t values = shape_size(held) / given.dim(0);
    const Variable part = slice(Variable(given), {{0, given.dim(0)}, {port.first, values}});
    parts.push_back(turned(reshape(part, held), engine_order(port), port.order).value());
  }
  return parts;
}

Tensor HostedPorts::joined_gradients(const std::vector<Tensor>& gradients,
                                     const Tensor& like) const {
  const std::vector<Tensor> outputs = parts(like);
  if (gradients.size() != outputs.size()) {
    throw std::invalid_argument("expected " + std::to_string(outputs.size()) + " gradients, got " +
                                std::to_string(gradients.size()));
  }
  const NoGradGuard no_grad;
  const std::int64_t batch = like.dim(0);
  std::vector<Variable> rows;
  bool any = false;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Tensor gradient = gradients[i];
    any = any || gradient.defined();
    if (!gradient.defined()) {
      gradient = Tensor::zeros(outputs[i].shape(), like.dtype(), like.device());
    }
    if (gradient.shape() != outputs[i].shape() || gradient.dtype() != like.dtype() ||
        gradient.device() != like.device()) {
      throw std::invalid_argument(
          "the gradient of the output '" + printable(outputs_[i].name) + "': expected " +
          std::string(dtype_name(like.dtype())) + " " + shape_string(outputs[i].shape()) + " on " +
          device_name(like.device()) + ", got " + std::string(dtype_name(gradient.dtype())) + " " +
          shape_string(gradient.shape()) + " on " + device_name(gradient.device()));
    }
    if (!joins_outputs_) {
      rows.emplace_back(gradient);
      continue;
    }
    const HostedPort& port = outputs_[i];
    const Variable held = turned(Variable(gradient), port.order, engine_order(port));
    rows.push_back(reshape(held, {batch, shape_size(held.shape()) / batch}));
  }
  if (!any) throw std::invalid_argument("expected the gradient of an output, got none");
  return rows.size() == 1 ? rows[0].value() : concat(rows).value();
}

}  // namespace steelyard
