// Models whose last layer can be computed for a part of its rows at a time.
#pragma once

#include "steelyard/framework/autograd/module.h"

namespace steelyard {

// A layer that computes each row of its input [..., F] by itself, in training as in evaluation, and
// changes no state of its own.
class RowLayer {
 public:
  virtual ~RowLayer() = default;
};

// A model that can be computed without its last layer.
class HeadedModel {
 public:
  virtual ~HeadedModel() = default;
  // The last layer, which reads one value and gives the output; null where there is none.
  virtual const Slot* head() const = 0;
  // What the head reads; the model's input without a head.
  virtual Variable body(const Variable& x, ForwardContext& context) = 0;
};

}  // namespace steelyard
