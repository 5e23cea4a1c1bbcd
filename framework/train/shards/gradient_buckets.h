// Sums of gradients over the ranks that proceed while the backward pass computes other gradients.
#pragma once

#include <cstddef>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/comm/communicator.h"

namespace steelyard {

// The sums of one step. Parameters are cut into buckets from the last one to the first, about the
// order in which backward finishes them. A bucket starts when its gradients and those of all
// buckets before it are there: every rank starts the same sums in the same order, whatever the
// order of its own backward is. Sums are element by element, so buckets change no bit.
class GradientBuckets {
 public:
  // Large enough that the latency of a message does not matter, small enough that sums begin early.
  static constexpr std::size_t kBytes = std::size_t{1} << 20;

  GradientBuckets(comm::Communicator& ranks, const std::vector<NamedParameter>& parameters,
                  std::size_t bucket_bytes);

  // Adds this rank's final gradient of a parameter, given by its index; the sum reuses its memory.
  void add(std::size_t parameter, Tensor gradient);
  // The sums, by the parameters' indices; all gradients were added.
  std::vector<Tensor> wait();

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;
    std::size_t missing = 0;
  };

  comm::Communicator& ranks_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // of every parameter
  std::vector<Tensor> gradients_;
  std::vector<comm::Pending> started_;  // of the first buckets
};

}  // namespace steelyard
