// Rows of tables for operations that a value of an enumeration chooses.
#pragma once

#include "steelyard/framework/words.h"

namespace steelyard {

template <typename E>
struct OpNames {
  E value;
  const char* operation;  // on the tape
  const char* layer;      // the type of its layer
};

}  // namespace steelyard
