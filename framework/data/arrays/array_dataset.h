// Datasets in NumPy's files.
#pragma once

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/dataset_request.h"

namespace steelyard {

// `request.path` is a folder with train.npz and test.npz, each of the arrays inputs and targets, or
// with train_inputs.npy, train_targets.npy and those of the test set; or one .npz file of x_train,
// y_train, x_test and y_test, or of inputs and targets, of which `request.test_samples` are set
// aside. With `request.inputs`, arrays of those names are there instead of inputs. Inputs stay in
// the files. Without labels no targets are looked for, and it may also be a .npy file, an .npz file
// of one array, or a folder of .npy files without those names: NAME.npy for each of
// `request.inputs`, or one sample in each. Throws InputError that names the file and what it
// expected.
DatasetSplits load_arrays(const DatasetRequest& request);
// The inputs of an .npz file of such a dataset.
Dataset load_npy_inputs(const std::filesystem::path& path, const std::vector<std::string>& names);

}  // namespace steelyard
