// PyTorch's checkpoints, as torch.save() has written them since version 1.6: a zip archive of a
// pickle, which says what the tensors are, and of their bytes. Nothing of the pickle is executed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "steelyard/framework/files/safetensors.h"

namespace steelyard {

struct TorchFile {
  std::vector<NamedTensor> tensors;  // row-major, whatever the strides in the file; in its order
  std::string entry;                 // where they were: "state_dict", ...; empty: at the top
};

// Reads a state dict: a dict of tensors, at the top of the file or, if no tensor is there, as the
// entry "state_dict", "model_state_dict" or "model", the first of these that is a dict. Tensors of
// f64, f32, f16, bf16, i64, i32, i8, u8 and bool; parameters are tensors too; the rest of the file
// may be dicts, lists, tuples, numbers and texts. Throws InputError naming the file and, for what
// the pickle must not hold, the byte and the global.
TorchFile read_torch_file(const std::filesystem::path& path);

}  // namespace steelyard
