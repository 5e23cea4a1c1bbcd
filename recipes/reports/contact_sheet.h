// A picture of what a model is trained on.
#pragma once

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/images/image.h"

namespace steelyard {

// Rows of up to eight training images of a class, each above what training makes of it in its first
// epoch; of the first sixteen classes. Throws InputError for what is no image.
Image contact_sheet(const Dataset& train, const LoaderOptions& options);

}  // namespace steelyard
