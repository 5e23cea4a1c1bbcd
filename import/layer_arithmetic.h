// Layers, and the arithmetic after them that their weights and biases can take.
#pragma once

#include "steelyard/import/graph/editable_graph.h"

namespace steelyard::imports {

// Makes MatMul and Gemm with constant weights "Linear", adds a constant after a Linear, Conv or
// ConvTranspose to its bias, and multiplies the weights of a Linear or Conv by a constant factor of
// each output. With `keeps_weights` of the model a constant only becomes the bias of a layer
// without one.
void make_layers(EditableGraph& graph);

}  // namespace steelyard::imports
