// The state of modules in native checkpoints (checkpoint_file.h).
#pragma once

#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/files/checkpoint_file.h"  // IWYU pragma: export

namespace steelyard {

// Parameters, then buffers, by path: handles that share the module's storage. Each once, under its
// first name, where modules share it.
std::vector<NamedTensor> module_state(const Module& module);

// Copies parameters and buffers by name into the module's tensors, in place; floating dtypes
// convert to the parameter's, others must agree. Names with '/' are training state and skipped;
// "num_batches_tracked" may be absent, as in old PyTorch files, and so may all names but one of a
// tensor that modules share. When names or shapes disagree, one
// InputError that starts with `source_name` lists everything, and values that a module never has
// (framework/autograd/state_check.h) are one, too: then the module stays as it was.
void load_into(Module& module, const std::vector<NamedTensor>& tensors,
               const std::string& source_name);

}  // namespace steelyard
