// The binary versions of CIFAR-10 and CIFAR-100.
// Source: https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
#pragma once

#include "steelyard/framework/data/dataset_request.h"

namespace steelyard {

// data_batch_*.bin (in order of their names) and test_batch.bin of a folder: records of a label and
// 32x32 red, green and blue planes. Inputs are u8 [N, 32, 32, 3], read from the files when they are
// asked for; 10 classes. kTest reads the test set alone; test_batch.bin may be absent where
// `request.test_samples` are set aside. Throws InputError for missing files, partial records and
// labels above 9.
DatasetSplits load_cifar10(const DatasetRequest& request);
// train.bin and test.bin: records of two labels, of which the second is one of 100 classes, and the
// same planes.
DatasetSplits load_cifar100(const DatasetRequest& request);

}  // namespace steelyard
