// A decoder's passes over a text that grows.
#pragma once

#include <map>

#include "steelyard/layers/decoder.h"

namespace steelyard {

// Keeps the keys and values of a text's positions, so that a pass is one over new tokens alone. All
// layers but the attentions compute position by position, with the arithmetic of the model's own
// forward(), in evaluation: logits differ from its logits by the order of float sums. The text is
// one document, whatever its tokens.
class Decoding {
 public:
  // Of a text of at most `room` tokens. Uses the model, which must not move to another device, as
  // long as it lives. Throws std::invalid_argument unless it is a GraphModule with CausalAttention
  // nodes, or on a room below 1.
  Decoding(const Module& model, std::int64_t room);

  // Logits [1, 1, vocabulary] of what follows after tokens [1, T], at least one, that come after
  // those of earlier calls. Throws std::invalid_argument where they have no room.
  Tensor next(const Tensor& tokens);

 private:
  const GraphModule& model_;
  std::map<const Slot*, KeptKeys> kept_;  // of each attention
};

}  // namespace steelyard
