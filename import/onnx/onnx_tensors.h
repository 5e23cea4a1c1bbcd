// Reads the tensors of ONNX files, and those that the files keep in others.
#pragma once

#include <filesystem>
#include <string>

#include "steelyard/import/onnx/onnx_model.h"

namespace onnx {
class TensorProto;
}

namespace steelyard::imports {

// "'name'", for messages.
std::string in_quotes(const std::string& text);
std::string in_small_letters(std::string name);
// ONNX's name of a type of elements: "float".
std::string type_name(int type);

// Whether its elements are of a type that read_tensor() reads: texts, complex numbers and floats of
// 8 bits are not.
bool holds_numbers(const onnx::TensorProto& tensor);

// Throws InputError that begins with the file and `what`, where the tensor is not what it says or
// lies outside of the file's folder.
Constant read_tensor(const onnx::TensorProto& tensor, const std::filesystem::path& file,
                     std::string what);

// Puts the bytes that a tensor keeps in another file into the tensor. Throws as read_tensor().
void take_external(onnx::TensorProto& tensor, const std::filesystem::path& file, std::string what);

}  // namespace steelyard::imports
