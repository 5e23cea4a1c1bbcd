#include "steelyard/framework/data/mixing.h"

#include <vector>

namespace steelyard {
namespace {

// Probabilities of labels, as floats; marks are those already.
Tensor chances_of(const Tensor& targets, std::int64_t classes) {
  if (targets.dtype() != DType::kI64) return targets;
  Tensor chances = Tensor::zeros({targets.dim(0), classes});
  for (std::int64_t i = 0; i < targets.dim(0); ++i) {
    chances.data<float>()[i * classes + targets.data<std::int64_t>()[i]] = 1;
  }
  return chances;
}

// Every sample with the one before it; the first one with `before_first`, a row of inputs and one
// of targets.
void mix_rows(const Mix& mix, const Shape& sample, const float* before_first,
              const float* targets_before, Batch& batch) {
  const std::int64_t rows = batch.inputs.dim(0);
  const std::int64_t values = batch.inputs.size() / rows, chances = batch.targets.size() / rows;
  const bool image = sample.size() == 3;
  for (std::int64_t i = rows - 1; i >= 0; --i) {
    float* inputs = batch.inputs.data<float>() + i * values;
    float* targets = batch.targets.data<float>() + i * chances;
    mix_into(mix, i == 0 ? before_first : inputs - values, image ? sample[1] : 1, sample.back(),
             values, inputs);
    const float* other = i == 0 ? targets_before : targets - chances;
    for (std::int64_t c = 0; c < chances; ++c) {
      const double own = mix.share * static_cast<double>(targets[c]);
      targets[c] = static_cast<float>(own + (1 - mix.share) * static_cast<double>(other[c]));
    }
  }
}

Mix mix_of(const Dataset& dataset, const LoaderOptions& options, std::int64_t epoch,
           std::int64_t batch) {
  const Shape sample = dataset.sample_shape();
  const bool image = sample.size() == 3;
  return draw_mix(options.augment, options.seed, epoch, batch, image ? sample[0] : 1,
                  image ? sample[1] : 1);
}

std::vector<float> row_of(const Tensor& all, std::int64_t row) {
  const std::int64_t values = all.size() / all.dim(0);
  const float* from = all.data<float>() + row * values;
  return {from, from + values};
}

}  // namespace

void mix_batch(const Dataset& dataset, const LoaderOptions& options, std::int64_t epoch,
               Batch& batch) {
  if (!options.augment.mixes()) return;
  batch.targets = chances_of(batch.targets, dataset.classes);
  const std::int64_t last = batch.inputs.dim(0) - 1;
  const std::vector<float> inputs = row_of(batch.inputs, last);
  const std::vector<float> targets = row_of(batch.targets, last);
  mix_rows(mix_of(dataset, options, epoch, batch.index), dataset.sample_shape(), inputs.data(),
           targets.data(), batch);
}

void mix_after(Batch before, const Dataset& dataset, const LoaderOptions& options,
               std::int64_t epoch, Batch& rows) {
  rows.targets = chances_of(rows.targets, dataset.classes);
  before.targets = chances_of(before.targets, dataset.classes);
  mix_rows(mix_of(dataset, options, epoch, rows.index), dataset.sample_shape(),
           before.inputs.data<float>(), before.targets.data<float>(), rows);
}

}  // namespace steelyard
