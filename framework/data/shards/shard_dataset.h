// Images and their classes in tar archives, as WebDataset lays them out.
#pragma once

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/dataset_request.h"

namespace steelyard {

// `request.path` is a folder with train*.tar and test*.tar, read in the order of their names. A
// sample is the files of one name up to the first point after the last slash, one after the
// other: an image, NAME.jpg or another of image_extensions(), and a text with the class, NAME.cls
// (NAME.txt for texts). Its other files, such as NAME.json and NAME.mask.png, are passed over.
// Classes are sorted as those of folders. Without labels, a sample needs no text. Throws InputError
// that names the archive and the file in it.
DatasetSplits load_shards(const DatasetRequest& request);

}  // namespace steelyard
