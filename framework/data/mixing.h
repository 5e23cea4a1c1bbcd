// Batches whose samples are mixed with one another: mixup and cutmix.
#pragma once

#include "steelyard/framework/data/data_loader.h"

namespace steelyard {

// Every sample of a whole batch with the one before it, the first with the last, where the options
// ask for it; labels become probabilities f32 [B, classes]. A function of (seed, epoch,
// batch.index) and the samples.
void mix_batch(const Dataset& dataset, const LoaderOptions& options, std::int64_t epoch,
               Batch& batch);

// mix_batch() for some rows of a batch; `before` has the sample before the first of them.
void mix_after(Batch before, const Dataset& dataset, const LoaderOptions& options,
               std::int64_t epoch, Batch& rows);

}  // namespace steelyard
