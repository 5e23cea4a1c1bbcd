// The common part of pools over windows in texts, files and programs.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/tflite/tflite_nodes.h"

namespace steelyard::deploy {

// " 2x2, stride 2x2, padding 0x0".
std::string pool_text(const Node& node);

// A pool in a TFLite file; the border of its padding has this code.
void add_tflite_pool(TfliteNodes& nodes, const Node& node, TfliteOp op, std::int8_t border);

// A call of a pool's kernel in a C program.
void add_c_pool(CNodes& nodes, const Node& node, const char* kernel);

// "3x3".
std::string extent_text(const std::array<std::int64_t, 2>& pair);

}  // namespace steelyard::deploy
