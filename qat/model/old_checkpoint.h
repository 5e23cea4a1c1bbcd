// Checkpoints that earlier versions wrote.
#pragma once

#include <filesystem>

#include "steelyard/framework/files/checkpoint.h"

namespace steelyard::qat {

// load_checkpoint(), then upgrade_checkpoint() and require_quantizer_state()
// (qat/model/saved_state.h).
Checkpoint load_checkpoint_of(Module& model, const std::filesystem::path& path);

// Converts the tensors of this model's quantizers to their current names and meaning.
//
// Learned zero points used to be stored as `learned_zero_point`, in codes. They become
// `learned_offset`, the real value of the lowest code, computed with the scale of the latent next
// to it, so that every zero point is the saved one. The optimizer's state of these parameters
// begins anew.
void upgrade_checkpoint(Module& model, Checkpoint& checkpoint);

}  // namespace steelyard::qat
