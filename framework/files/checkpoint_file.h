// The native checkpoint: a safetensors file that proves its own integrity.
//
// `__metadata__` holds "format": "steelyard-checkpoint", "format_version": "1", the caller's own
// strings, "sha256:<tensor>" for every tensor, and "sha256" over the header (prefix and padding
// included) with the 64 digits of that field replaced by zeros. So every byte of the file is
// covered, and damage to a tensor names it. Equal contents give equal bytes: no time, path or host
// is stored.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "steelyard/framework/files/safetensors.h"

namespace steelyard {

// Tensors and the caller's own metadata.
using Checkpoint = TensorFile;

// Replaces the file atomically. Throws std::invalid_argument when the metadata uses a reserved key
// ("format", "format_version", "sha256", "sha256:...").
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

// Reads and verifies a native checkpoint. Throws InputError when the file is damaged, of another
// version, or not a native checkpoint.
Checkpoint load_checkpoint(const std::filesystem::path& path);
Checkpoint load_checkpoint(const SafetensorsReader& reader);

// The caller's own metadata of a native checkpoint: reads and verifies the header alone. Throws as
// load_checkpoint().
TensorFileMetadata load_checkpoint_metadata(const std::filesystem::path& path);

// Reads any safetensors file: verified like load_checkpoint when it is a native checkpoint (even
// one whose marks are damaged), plain otherwise.
TensorFile load_tensors(const std::filesystem::path& path);

}  // namespace steelyard
