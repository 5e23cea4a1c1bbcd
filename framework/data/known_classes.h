// The classes of well-known datasets, whose files have only their numbers.
#pragma once

#include <string>
#include <vector>

namespace steelyard {

// In the order of their numbers, as the authors of the datasets name them.
const std::vector<std::string>& fashion_mnist_classes();  // Xiao et al., arXiv:1708.07747, table 2
const std::vector<std::string>& cifar10_classes();        // batches.meta.txt of the binary version
const std::vector<std::string>& cifar100_classes();       // fine_label_names.txt, likewise

}  // namespace steelyard
