// IDX files (MNIST, Fashion-MNIST), plain or gzip.
// Source: http://yann.lecun.com/exdb/mnist/, "FILE FORMATS FOR THE MNIST DATABASE".
#pragma once

#include <filesystem>

#include "steelyard/framework/data/dataset.h"

namespace steelyard {

// u8 [N, H, W, 1]. Throws InputError for a wrong magic, sizes that disagree with the file and
// damaged gzip data.
Tensor read_idx_images(const std::filesystem::path& path);
// i64 [N].
Tensor read_idx_labels(const std::filesystem::path& path);

// The four files of Fashion-MNIST (or MNIST) in a folder, each plain or with ".gz": 10 classes.
// kTest reads the test set alone.
DatasetSplits load_fashion_mnist(const std::filesystem::path& folder,
                                 DatasetParts parts = DatasetParts::kAll);

}  // namespace steelyard
