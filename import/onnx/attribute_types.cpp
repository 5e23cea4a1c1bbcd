#include "steelyard/import/onnx/attribute_types.h"

#include <set>
#include <vector>

namespace steelyard::imports {

std::optional<onnx::AttributeProto::AttributeType> type_of_attribute(const std::string& name) {
  using Proto = onnx::AttributeProto;
  struct Names {
    Proto::AttributeType type;
    std::set<std::string> names;
  };
  static const std::vector<Names> kTypes{
      {Proto::INT,
       {"allowzero", "antialias", "axis", "blocksize", "ceil_mode", "count_include_pad", "end",
        "group", "hidden_size", "input_forget", "keepdims", "layout", "noop_with_empty_axes"}},
      {Proto::INT,
       {"num_groups", "size", "spatial", "start", "to", "training_mode", "transA", "transB",
        "value_int"}},
      {Proto::INTS,
       {"axes", "dilations", "ends", "kernel_shape", "output_padding", "output_shape", "pads",
        "perm", "split", "starts", "strides", "value_ints"}},
      {Proto::FLOAT,
       {"alpha", "beta", "bias", "clip", "epsilon", "gamma", "max", "min", "value_float"}},
      {Proto::FLOATS, {"scales", "value_floats"}},
      {Proto::STRING,
       {"approximate", "auto_pad", "coordinate_transformation_mode", "direction",
        "keep_aspect_ratio_policy", "mode", "nearest_mode"}},
      {Proto::STRINGS, {"activations"}}};
  for (const Names& of : kTypes) {
    if (of.names.contains(name)) return of.type;
  }
  return std::nullopt;
}

}  // namespace steelyard::imports
