// A picture of training images before and after augmentation.
#pragma once

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/images/image.h"

namespace steelyard {

// Rows of up to eight training images of a class, each above its augmented form in the first epoch,
// for the first sixteen classes. Throws InputError if samples are not images.
Image contact_sheet(const Dataset& train, const LoaderOptions& options);

}  // namespace steelyard
