// IDX files (MNIST, Fashion-MNIST), plain or gzip.
// Source: http://yann.lecun.com/exdb/mnist/, "FILE FORMATS FOR THE MNIST DATABASE".
#pragma once

#include <filesystem>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/dataset_request.h"

namespace steelyard {

// Inputs u8 [N, H, W, 1] without targets: read from a plain file when they are asked for, held in
// memory where the file is gzip. Throws InputError for a wrong magic, sizes that disagree with the
// file and damaged gzip data.
Dataset load_idx_images(const std::filesystem::path& path);
// The images of load_idx_images() in memory.
Tensor read_idx_images(const std::filesystem::path& path);
// i64 [N].
Tensor read_idx_labels(const std::filesystem::path& path);

// The four files of a folder whose names have "train-images", "train-labels", "test-images" (or
// "t10k-images") and "test-labels" in them, each plain or with ".gz": as many classes as the
// largest training label says. kTest reads the test set alone. The two of the test set may be
// absent where `request.test_samples` are set aside.
DatasetSplits load_idx(const DatasetRequest& request);

// The four files of Fashion-MNIST (or MNIST) in a folder, each plain or with ".gz": 10 classes.
// Parts and test set as above.
DatasetSplits load_fashion_mnist(const DatasetRequest& request);

}  // namespace steelyard
