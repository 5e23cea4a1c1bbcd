// Samples that are read one at a time: from a tensor, or from files larger than memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/data/images/image.h"
#include "steelyard/framework/tensor/rng.h"
#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

// What a sample is made of.
struct SampleOrigin {
  std::string digest;  // of its content, in hexadecimal
  // [height, width] of its image before transforms; nothing where it is made of none.
  std::optional<std::array<std::int64_t, 2>> image_size = {};
};

// The inputs of a dataset. Every function may be called by several threads at once, and gives the
// same at any time: a file that has changed since it was opened is an error, where that shows.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual std::int64_t size() const = 0;
  // The dtype and shape of a sample: u8 or f32; images [H, W, C], features [F], or any other shape.
  virtual DType dtype() const = 0;
  virtual const Shape& shape() const = 0;

  // Writes all values of a sample to `to`. `random` draws what a source that draws() changes at
  // random; null: the sample as evaluation sees it. Throws InputError that names the file.
  virtual void read(std::int64_t sample, Rng* random, void* to) const = 0;
  // Where the sample already lies in memory, as read() would write it; null where it does not.
  virtual const void* in_memory(std::int64_t) const { return nullptr; }

  // The sample in messages: its file, or its number.
  virtual std::string name(std::int64_t sample) const { return "sample " + std::to_string(sample); }
  // name(), with the bytes that the name of its file has.
  virtual std::string raw_name(std::int64_t sample) const { return name(sample); }
  // Whether read() has a random part.
  virtual bool draws() const { return false; }
  // Whether read() is so much work that several threads should share it.
  virtual bool decodes() const { return false; }
  // The image that a sample is made of, before transforms; nothing where it is made of none.
  virtual std::optional<Image> stored_image(std::int64_t) const { return {}; }
  // A digest of what the sample is read from, in hexadecimal; empty: of what read() gives.
  virtual std::string content_digest(std::int64_t) const { return {}; }
  // Writes the sample as evaluation sees it to `to`, and says what it is made of: one reading for
  // all.
  virtual SampleOrigin read_with_origin(std::int64_t sample, void* to) const;
};

// Rows of a tensor [N, ...].
class TensorSamples : public SampleSource {
 public:
  explicit TensorSamples(Tensor inputs);

  std::int64_t size() const override { return inputs_.dim(0); }
  DType dtype() const override { return inputs_.dtype(); }
  const Shape& shape() const override { return shape_; }
  void read(std::int64_t sample, Rng* random, void* to) const override;
  const void* in_memory(std::int64_t sample) const override;

 private:
  Tensor inputs_;
  Shape shape_;
  std::size_t sample_bytes_;
};

// Some samples of another source, in the order of `samples`.
class SelectedSamples : public SampleSource {
 public:
  SelectedSamples(std::shared_ptr<const SampleSource> source, std::vector<std::int64_t> samples)
      : source_(std::move(source)), samples_(std::move(samples)) {}

  std::int64_t size() const override { return std::ssize(samples_); }
  DType dtype() const override { return source_->dtype(); }
  const Shape& shape() const override { return source_->shape(); }
  void read(std::int64_t sample, Rng* random, void* to) const override {
    source_->read(at(sample), random, to);
  }
  const void* in_memory(std::int64_t sample) const override {
    return source_->in_memory(at(sample));
  }
  std::string name(std::int64_t sample) const override { return source_->name(at(sample)); }
  bool draws() const override { return source_->draws(); }
  bool decodes() const override { return source_->decodes(); }
  std::optional<Image> stored_image(std::int64_t sample) const override {
    return source_->stored_image(at(sample));
  }
  std::string content_digest(std::int64_t sample) const override {
    return source_->content_digest(at(sample));
  }
  SampleOrigin read_with_origin(std::int64_t sample, void* to) const override {
    return source_->read_with_origin(at(sample), to);
  }

 private:
  std::int64_t at(std::int64_t sample) const {
    return samples_.at(static_cast<std::size_t>(sample));
  }

  std::shared_ptr<const SampleSource> source_;
  std::vector<std::int64_t> samples_;
};

// The samples of several sources of one type and shape, one source after another.
class ConcatenatedSamples : public SampleSource {
 public:
  explicit ConcatenatedSamples(std::vector<std::shared_ptr<const SampleSource>> sources);

  std::int64_t size() const override { return ends_.back(); }
  DType dtype() const override { return sources_[0]->dtype(); }
  const Shape& shape() const override { return sources_[0]->shape(); }
  void read(std::int64_t sample, Rng* random, void* to) const override;
  std::string name(std::int64_t sample) const override;

 private:
  // The source that has the sample, and which of its samples it is.
  std::pair<const SampleSource*, std::int64_t> find(std::int64_t sample) const;

  std::vector<std::shared_ptr<const SampleSource>> sources_;
  std::vector<std::int64_t> ends_;  // of each, among all samples
};

// The samples of another source under another shape of as many values.
class ReshapedSamples : public SampleSource {
 public:
  ReshapedSamples(std::shared_ptr<const SampleSource> source, Shape shape)
      : source_(std::move(source)), shape_(std::move(shape)) {}

  std::int64_t size() const override { return source_->size(); }
  DType dtype() const override { return source_->dtype(); }
  const Shape& shape() const override { return shape_; }
  void read(std::int64_t sample, Rng* random, void* to) const override {
    source_->read(sample, random, to);
  }
  const void* in_memory(std::int64_t sample) const override { return source_->in_memory(sample); }
  std::string name(std::int64_t sample) const override { return source_->name(sample); }
  std::string content_digest(std::int64_t sample) const override {
    return source_->content_digest(sample);
  }

 private:
  std::shared_ptr<const SampleSource> source_;
  Shape shape_;
};

// Values of a sample, and their bytes.
std::int64_t sample_values(const SampleSource& source);
std::int64_t sample_bytes(const SampleSource& source);

}  // namespace steelyard
