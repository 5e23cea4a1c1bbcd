// What TFLite files have that are called with new frames of a sequence.
#pragma once

#include "steelyard/export/tflite/tflite_nodes.h"

namespace steelyard::deploy {

// Operators for a node that makes a history: a resource variable has what is kept from call to
// call.
void add_tflite_history(TfliteNodes& nodes, const Node& node);

}  // namespace steelyard::deploy
