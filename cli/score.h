// A user's own measure of an ONNX file.
#pragma once

#include <filesystem>
#include <string>

namespace steelyard::cli {

// The number at the end of what the shell command prints, in which {onnx} stands for the file.
// Throws InputError where the command fails or prints none.
double score_of(const std::string& command, const std::filesystem::path& file);

}  // namespace steelyard::cli
