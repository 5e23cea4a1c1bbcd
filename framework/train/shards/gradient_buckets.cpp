#include "steelyard/framework/train/shards/gradient_buckets.h"

#include <utility>

namespace steelyard {

GradientBuckets::GradientBuckets(comm::Communicator& ranks,
                                 const std::vector<NamedParameter>& parameters,
                                 std::size_t bucket_bytes)
    : ranks_(ranks), bucket_of_(parameters.size()), gradients_(parameters.size()) {
  std::size_t bytes = bucket_bytes;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    if (bytes >= bucket_bytes) {
      buckets_.emplace_back();
      bytes = 0;
    }
    const Variable& parameter = parameters[i].variable;
    bytes +=
        static_cast<std::size_t>(shape_size(parameter.shape())) * dtype_bytes(parameter.dtype());
    buckets_.back().parameters.push_back(i);
    ++buckets_.back().missing;
    bucket_of_[i] = buckets_.size() - 1;
  }
}

void GradientBuckets::add(std::size_t parameter, Tensor gradient) {
  gradients_[parameter] = std::move(gradient);
  --buckets_[bucket_of_[parameter]].missing;
  while (started_.size() < buckets_.size() && buckets_[started_.size()].missing == 0) {
    std::vector<Tensor> gradients;
    for (const std::size_t i : buckets_[started_.size()].parameters) {
      gradients.push_back(gradients_[i]);
    }
    started_.push_back(ranks_.start_sum(std::move(gradients)));
  }
}

std::vector<Tensor> GradientBuckets::wait() {
  for (comm::Pending& sum : started_) sum.wait();
  return std::move(gradients_);
}

}  // namespace steelyard
