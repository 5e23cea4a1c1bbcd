// A picture of training images before and after transforms and augmentation.
#pragma once

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/images/image.h"

namespace steelyard {

// Rows of up to eight training images of a class: as they are stored, reduced to fit (only where
// their sizes differ from that of samples), as evaluation sees them, and augmented as in the first
// epoch; for the first sixteen classes. Throws InputError if samples are not images.
Image contact_sheet(const Dataset& train, const LoaderOptions& options);

}  // namespace steelyard
