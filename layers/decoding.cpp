#include "steelyard/layers/decoding.h"

#include <stdexcept>

#include "steelyard/framework/ops/moves/slice.h"

namespace steelyard {
namespace {

const GraphModule& as_graph(const Module& model) {
  if (const auto* graph = dynamic_cast<const GraphModule*>(&model)) return *graph;
  throw std::invalid_argument("[Decoding] expected a graph of a decoder's layers, got " +
                              model.type_name());
}

// The last of the positions of x [1, T, F].
Variable last_position(const Variable& x) {
  return slice(x, {{0, 1}, {x.dim(1) - 1, 1}, {0, x.dim(2)}});
}

}  // namespace

Decoding::Decoding(const Module& model, std::int64_t room) : model_(as_graph(model)) {
  if (room < 1) {
    throw std::invalid_argument("[Decoding] expected a room of at least 1, got " +
                                std::to_string(room));
  }
  for (const GraphModule::Node& node : model_.nodes()) {
    if (dynamic_cast<const CausalAttention*>(&**node.slot) != nullptr) {
      kept_[node.slot].room = room;
    }
  }
  if (kept_.empty()) {
    throw std::invalid_argument("[Decoding] expected a model with CausalAttention");
  }
}

Tensor Decoding::next(const Tensor& tokens) {
  const NoGradGuard no_grad;
  const GraphModule::Node* const head = &model_.nodes().back();
  ForwardContext context;
  return model_
      .forward_by(
          Variable(tokens),
          [&](const GraphModule::Node& node, const std::vector<Variable>& inputs) {
            const auto kept = kept_.find(node.slot);
            if (kept != kept_.end()) {
              return dynamic_cast<CausalAttention&>(**node.slot).go_on(inputs, kept->second);
            }
            if (&node != head) return call(*node.slot, inputs, context);
            return call(*node.slot, {last_position(inputs.at(0))}, context);
          })
      .value();
}

}  // namespace steelyard
