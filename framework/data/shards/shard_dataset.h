// Images and their classes in tar archives, as WebDataset lays them out.
#pragma once

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/dataset_request.h"

namespace steelyard {

// `request.path` is a folder with train*.tar and test*.tar, read in the order of their names. A
// sample is two files of one name up to the first point behind the last slash, one behind the
// other: an image, and a text with the class, NAME.cls. Classes are sorted as those of folders.
// Throws InputError that names the archive and the file in it.
DatasetSplits load_shards(const DatasetRequest& request);

}  // namespace steelyard
