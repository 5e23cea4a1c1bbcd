// Linear maps in C programs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "steelyard/export/c/c_nodes.h"

namespace steelyard::deploy {

// Adds a call of `kernel` for the width of the node's weights ("conv": conv_8, conv_4 or conv_2).
// `codes` are the weights in the kernel's order, those of one output after another; `fields` are
// the members of the geometry. Throws std::invalid_argument where sums of the codes themselves, not
// of code - zero point, can overflow int32.
struct CProduct {
  std::string kernel;
  std::vector<std::int8_t> codes;
  CFields fields = {};
  bool plain_bias = false;  // the kernel subtracts the zero point from each code
};
void add_c_product(CNodes& nodes, const Node& node, CProduct product);

// The most bytes that a run of `terms` weights takes when the bytes that hold them are unpacked.
std::int64_t c_unpacked_bytes(std::int64_t terms, int bits);

// The name of an array of weights of `bits` bits, packed; `of_two_places` as CNodes::array() has
// it.
std::string c_weights(CNodes& nodes, std::span<const std::int8_t> codes, int bits,
                      bool of_two_places);

// The biases of sums of weights times codes as they are, `codes` being the node's weights, those of
// one output after another; the plain ones where the kernel subtracts the zero point from each
// code. Throws as add_c_product() does.
std::vector<std::int32_t> c_biases(const CNodes& nodes, const Node& node,
                                   std::span<const std::int8_t> codes, bool plain = false);

// Whether a node before is the same layer with the same weights.
bool shares_weights(const Graph& graph, const Node& node);

// The geometry of a convolution of images or of a transposed one.
CFields c_windows(const CNodes& nodes, const Node& node, const Conv2dGeometry& conv);

// The same clamp as the fused activation and the codes' range: members least and most.
void set_c_range(CFields& fields, const Quantization& q, kernels::Activation activation);

}  // namespace steelyard::deploy
