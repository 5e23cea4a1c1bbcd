// The format of a file, recognized from its first bytes: for messages about files of another format
// than the expected one.
#pragma once

#include <string>
#include <string_view>

#include "steelyard/framework/files/files.h"

namespace steelyard {

// Enough bytes from the beginning of a file for kind_of().
inline constexpr std::size_t kFileKindBytes = 512;

inline constexpr const char* kSafetensorsKind = "a safetensors file";
inline constexpr const char* kCsvKind = "CSV";
inline constexpr const char* kGgufKind = "a GGUF model";
inline constexpr const char* kTorchKind = "a PyTorch file (zip)";
inline constexpr const char* kOldTorchKind = "a PyTorch file (pickle)";  // before PyTorch 1.6

// "a PNG image", "a NumPy array", "CSV text", "an empty file"; "" where the bytes tell nothing.
std::string kind_of(std::string_view first_bytes);

// The kind of a file, by its first bytes.
std::string kind_of(const InputFile& file);

// " (it looks like a PNG image)", or "" for "".
std::string looks_like(const std::string& kind);

}  // namespace steelyard
