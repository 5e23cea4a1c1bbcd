// Checkpoints that earlier versions wrote.
#pragma once

#include <filesystem>

#include "steelyard/framework/checkpoint.h"

namespace steelyard::qat {

// load_checkpoint(), then upgrade_checkpoint() and require_quantizer_state() (qat/saved_state.h).
Checkpoint load_checkpoint_of(Module& model, const std::filesystem::path& path);

// Gives the tensors of this model's quantizers the names and meaning that they have today.
//
// Zero points used to learn as `learned_zero_point`, in codes. That becomes `learned_offset`, the
// real value of the lowest code, with the scale that the latent beside it stands for: every zero
// point is the one that was saved. The optimizer's state of these parameters begins anew.
void upgrade_checkpoint(Module& model, Checkpoint& checkpoint);

}  // namespace steelyard::qat
