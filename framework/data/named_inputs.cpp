#include "steelyard/framework/data/named_inputs.h"

#include <algorithm>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

class JoinedSamples : public SampleSource {
 public:
  explicit JoinedSamples(std::vector<InputSource> inputs) : inputs_(std::move(inputs)) {
    std::int64_t values = 0;
    for (const InputSource& input : inputs_) values += sample_values(*input.samples);
    shape_ = {values};
  }

  std::int64_t size() const override { return inputs_[0].samples->size(); }
  DType dtype() const override { return DType::kF32; }
  const Shape& shape() const override { return shape_; }
  std::string name(std::int64_t sample) const override { return inputs_[0].samples->name(sample); }

  void read(std::int64_t sample, Rng* random, void* to) const override {
    auto* values = static_cast<float*>(to);
    for (const InputSource& input : inputs_) {
      const std::int64_t count = sample_values(*input.samples);
      if (input.samples->dtype() == DType::kF32) {
        input.samples->read(sample, random, values);
      } else {
        std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
        input.samples->read(sample, random, bytes.data());
        std::copy(bytes.begin(), bytes.end(), values);
      }
      values += count;
    }
  }

 private:
  std::vector<InputSource> inputs_;
  Shape shape_;
};

}  // namespace

void set_named_inputs(Dataset& dataset, const std::vector<InputSource>& inputs,
                      const std::string& source) {
  dataset.names.inputs.clear();
  for (const InputSource& input : inputs) {
    if (input.samples->size() != inputs[0].samples->size()) {
      throw InputError(source + ": expected as many samples of " + printable(input.name) +
                       " as of " + printable(inputs[0].name) + ", " +
                       std::to_string(inputs[0].samples->size()) + ", got " +
                       std::to_string(input.samples->size()));
    }
    dataset.names.inputs.push_back({input.name, input.samples->shape()});
  }
  dataset.inputs = Tensor();
  dataset.source = std::make_shared<JoinedSamples>(inputs);
}

}  // namespace steelyard
