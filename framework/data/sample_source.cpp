#include "steelyard/framework/data/sample_source.h"

#include <algorithm>
#include <cstring>

#include "steelyard/framework/files/sha256.h"

namespace steelyard {

SampleOrigin SampleSource::read_with_origin(std::int64_t sample, void* to) const {
  read(sample, nullptr, to);
  std::string digest = content_digest(sample);
  if (digest.empty()) {
    digest =
        sha256_of({static_cast<const char*>(to), static_cast<std::size_t>(sample_bytes(*this))});
  }
  return {std::move(digest)};
}

TensorSamples::TensorSamples(Tensor inputs)
    : inputs_(std::move(inputs)),
      shape_(inputs_.shape().begin() + 1, inputs_.shape().end()),
      sample_bytes_(
          inputs_.dim(0) == 0 ? 0 : static_cast<std::size_t>(inputs_.bytes() / inputs_.dim(0))) {}

const void* TensorSamples::in_memory(std::int64_t sample) const {
  return static_cast<const std::byte*>(inputs_.raw()) +
         static_cast<std::size_t>(sample) * sample_bytes_;
}

void TensorSamples::read(std::int64_t sample, Rng* /*random*/, void* to) const {
  std::memcpy(to, in_memory(sample), sample_bytes_);
}

ConcatenatedSamples::ConcatenatedSamples(std::vector<std::shared_ptr<const SampleSource>> sources)
    : sources_(std::move(sources)) {
  std::int64_t end = 0;
  for (const auto& source : sources_) ends_.push_back(end += source->size());
}

std::pair<const SampleSource*, std::int64_t> ConcatenatedSamples::find(std::int64_t sample) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), sample);
  const SampleSource& source = *sources_.at(static_cast<std::size_t>(end - ends_.begin()));
  return {&source, sample - (*end - source.size())};
}

void ConcatenatedSamples::read(std::int64_t sample, Rng* random, void* to) const {
  const auto [source, index] = find(sample);
  source->read(index, random, to);
}

std::string ConcatenatedSamples::name(std::int64_t sample) const {
  const auto [source, index] = find(sample);
  return source->name(index);
}

std::int64_t sample_values(const SampleSource& source) {
  std::int64_t values = 1;
  for (const std::int64_t extent : source.shape()) values *= extent;
  return values;
}

std::int64_t sample_bytes(const SampleSource& source) {
  return sample_values(source) * static_cast<std::int64_t>(dtype_bytes(source.dtype()));
}

}  // namespace steelyard
