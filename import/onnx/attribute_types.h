// The types of the attributes of ONNX's operations.
#pragma once

#include <onnx.pb.h>

#include <optional>
#include <string>

namespace steelyard::imports {

// The type that ONNX's operations give the attribute of that name, if it is one that is read here.
std::optional<onnx::AttributeProto::AttributeType> type_of_attribute(const std::string& name);

}  // namespace steelyard::imports
