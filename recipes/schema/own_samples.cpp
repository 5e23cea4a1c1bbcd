// Samples of a program's dataset whose errors have its name and the sample's.
#include <utility>

#include "steelyard/recipes/schema/registries.h"

namespace steelyard {
namespace {

class OwnSamples : public SampleSource {
  template <typename F>
  auto of_sample(std::int64_t sample, const F& f) const {
    try {
      return f();
    } catch (const InputError&) {
      throw;
    } catch (...) {
      rethrow_of_part(part_ + ": " + name(sample));
    }
  }

 public:
  OwnSamples(std::string part, std::shared_ptr<const SampleSource> own)
      : part_(std::move(part)), own_(std::move(own)) {}

  std::int64_t size() const override {
    return in_part(part_, [&] { return own_->size(); });
  }
  DType dtype() const override {
    return in_part(part_, [&] { return own_->dtype(); });
  }
  const Shape& shape() const override {
    return *in_part(part_, [&] { return &own_->shape(); });
  }
  void read(std::int64_t sample, Rng* random, void* to) const override {
    of_sample(sample, [&] { own_->read(sample, random, to); });
  }
  const void* in_memory(std::int64_t sample) const override {
    return of_sample(sample, [&] { return own_->in_memory(sample); });
  }
  std::string name(std::int64_t sample) const override {
    return in_part(part_, [&] { return own_->name(sample); });
  }
  std::string raw_name(std::int64_t sample) const override {
    return in_part(part_, [&] { return own_->raw_name(sample); });
  }
  bool draws() const override {
    return in_part(part_, [&] { return own_->draws(); });
  }
  bool decodes() const override {
    return in_part(part_, [&] { return own_->decodes(); });
  }
  std::optional<Image> stored_image(std::int64_t sample) const override {
    return of_sample(sample, [&] { return own_->stored_image(sample); });
  }
  std::string content_digest(std::int64_t sample) const override {
    return of_sample(sample, [&] { return own_->content_digest(sample); });
  }
  SampleOrigin read_with_origin(std::int64_t sample, void* to) const override {
    return of_sample(sample, [&] { return own_->read_with_origin(sample, to); });
  }

 private:
  std::string part_;
  std::shared_ptr<const SampleSource> own_;
};

}  // namespace

DatasetSplits splits_of_part(const std::string& part, DatasetSplits splits) {
  for (Dataset* dataset : {&splits.train, &splits.test}) {
    if (!dataset->source) continue;
    dataset->source = std::make_shared<OwnSamples>(part, std::move(dataset->source));
  }
  return splits;
}

}  // namespace steelyard
