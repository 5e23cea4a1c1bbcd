// How far a training step moves learned scales and offsets: relative to the scale that learning
// began with (docs/numerics.md has the rule and what was measured).
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/train/optimizer.h"

namespace steelyard::qat {

// The first scales that a step of learning rate 1 moves a scale at most. With 1 a scale follows too
// slowly in a fine-tuning of a few hundred steps (docs/numerics.md).
inline constexpr double kScalesOfAStep = 10;

// What an optimizer's steps of the model's latents are relative to (SgdOptions::step_units,
// AdamWOptions::step_units): the quantizers' own first scales, which are set where learning begins.
StepUnits latent_units(Module& model);

}  // namespace steelyard::qat
