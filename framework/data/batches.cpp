#include "steelyard/framework/data/batches.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "steelyard/framework/data/mixing.h"
#include "steelyard/framework/data/normalizers.h"
#include "steelyard/framework/data/streams.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/rng.h"
#include "steelyard/kernels/backend.h"

namespace steelyard {
namespace {

// How one image is placed: output pixel (y, x) shows input pixel (y + dy, x + dx), both mirrored.
struct Placement {
  std::int64_t dy = 0;
  std::int64_t dx = 0;
  bool flip = false;           // x
  bool vertical_flip = false;  // y
};

Placement draw_placement(const LoaderOptions& options, std::int64_t epoch, std::int64_t sample) {
  // Eight words per sample: the numbers of one sample do not depend on the others.
  Rng rng({options.seed, kAugmentStream + static_cast<std::uint64_t>(epoch),
           static_cast<std::uint64_t>(sample) * 8});
  Placement placement;
  if (options.augment.random_crop) {
    const std::int64_t padding = options.augment.crop_padding;
    const auto places = static_cast<std::uint64_t>(2 * padding + 1);
    placement.dy = static_cast<std::int64_t>(rng.below(places)) - padding;
    placement.dx = static_cast<std::int64_t>(rng.below(places)) - padding;
  }
  if (options.augment.flip) placement.flip = (rng.next_u32() & 1) != 0;
  if (options.augment.vertical_flip) {
    const SampleKey key{options.seed, epoch, sample};
    placement.vertical_flip = (numbers_of(kVerticalFlipStream, key).next_u32() & 1) != 0;
  }
  return placement;
}

void mirror_row(float* row, std::int64_t width, std::int64_t channels) {
  for (std::int64_t left = 0, right = width - 1; left < right; ++left, --right) {
    std::swap_ranges(row + left * channels, row + (left + 1) * channels, row + right * channels);
  }
}

template <typename Normalizer>
void place_image(const Normalizer& normalizer, const Placement& placement,
                 const typename Normalizer::Value* in, float* out, std::int64_t height,
                 std::int64_t width, std::int64_t channels) {
  // Padding is zero before normalization, as if the image had been padded first.
  const auto fill = [&](float* from, std::int64_t pixels) {
    for (std::int64_t i = 0; i < pixels; ++i) {
      for (std::int64_t c = 0; c < channels; ++c) from[i * channels + c] = normalizer({}, c);
    }
  };
  const std::int64_t begin = std::clamp<std::int64_t>(-placement.dx, 0, width);
  const std::int64_t end = std::clamp<std::int64_t>(width - placement.dx, 0, width);
  for (std::int64_t y = 0; y < height; ++y) {
    float* row = out + (placement.vertical_flip ? height - 1 - y : y) * width * channels;
    const std::int64_t from = y + placement.dy;
    if (from < 0 || from >= height) {
      fill(row, width);
      continue;
    }
    fill(row, begin);
    normalize(normalizer, in + (from * width + begin + placement.dx) * channels,
              row + begin * channels, end - begin, channels);
    fill(row + end * channels, width - end);
    if (placement.flip) mirror_row(row, width, channels);
  }
}

void require_finite(std::span<const float> values, const SampleSource& source,
                    std::int64_t sample) {
  if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
    throw InputError("dataset: inputs of " + source.name(sample) + " are not finite");
  }
}

// The random part of a sample's transforms; more words than they draw.
Rng transform_numbers(const LoaderOptions& options, std::int64_t epoch, std::int64_t sample) {
  return Rng({options.seed, kTransformStream + static_cast<std::uint64_t>(epoch),
              static_cast<std::uint64_t>(sample) * 64});
}

template <typename Normalizer>
void fill_inputs(const SampleSource& source, const LoaderOptions& options,
                 std::span<const std::int64_t> samples, std::int64_t epoch, float* out) {
  using Value = typename Normalizer::Value;
  const Shape& shape = source.shape();
  const std::int64_t channels = shape.back();
  const auto per_sample = static_cast<std::size_t>(sample_values(source));
  const Normalizer normalizer(options.normalization, channels);
  const bool augment = options.augment.places();
  const bool changes = std::is_same_v<Value, std::uint8_t> && options.augment.changes_bytes();
  std::vector<Value> read;
  for (const std::int64_t sample : samples) {
    const auto* image = static_cast<const Value*>(source.in_memory(sample));
    if (image == nullptr) {
      read.resize(per_sample);
      Rng numbers = transform_numbers(options, epoch, sample);
      source.read(sample, options.augment.resized_crop ? &numbers : nullptr, read.data());
      image = read.data();
    }
    const SampleKey key{options.seed, epoch, sample};
    if constexpr (std::is_same_v<Value, float>) {
      require_finite({image, per_sample}, source, sample);
    } else if (changes) {
      Image changed{shape[0], shape[1], shape[2], {image, image + per_sample}};
      read = augmented(std::move(changed), options.augment, key).pixels;
      image = read.data();
    }
    if (augment) {
      place_image(normalizer, draw_placement(options, epoch, sample), image, out, shape[0],
                  shape[1], channels);
    } else {
      normalize(normalizer, image, out, static_cast<std::int64_t>(per_sample) / channels, channels);
    }
    if (options.augment.erasing) erase(options.augment, key, shape[0], shape[1], channels, out);
    out += per_sample;
  }
}

void fill_targets(const Tensor& all, std::span<const std::int64_t> samples, std::byte* out) {
  const auto bytes = static_cast<std::size_t>(all.bytes() / all.dim(0));
  if (bytes == 0) return;  // of inputs alone
  const auto* in = static_cast<const std::byte*>(all.raw());
  for (const std::int64_t sample : samples) {
    std::memcpy(out, in + static_cast<std::size_t>(sample) * bytes, bytes);
    out += bytes;
  }
}

}  // namespace

std::span<const std::int64_t> samples_of_batch(const Dataset& dataset, const LoaderOptions& options,
                                               const std::vector<std::int64_t>& order,
                                               std::int64_t index) {
  if (index < 0 || index >= batches_per_epoch(dataset, options)) {
    throw std::out_of_range("[data_loader] batch " + std::to_string(index) + " of " +
                            std::to_string(batches_per_epoch(dataset, options)));
  }
  const std::int64_t begin = index * options.batch_size;
  const std::int64_t size = std::min(options.batch_size, dataset.size() - begin);
  return std::span(order).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
}

Batch empty_batch(const Dataset& dataset, std::int64_t rows, std::int64_t index) {
  require_input_dtype(dataset, "dataset");  // rows of another one are more bytes, or fewer
  Shape inputs = dataset.sample_shape();
  inputs.insert(inputs.begin(), rows);
  Shape targets = dataset.targets.shape();
  targets[0] = rows;
  return {Tensor::empty(std::move(inputs), DType::kF32),
          Tensor::empty(std::move(targets), dataset.targets.dtype()), index};
}

void fill_rows(const Dataset& dataset, const LoaderOptions& options,
               std::span<const std::int64_t> samples, std::int64_t epoch, Batch& batch,
               std::int64_t first) {
  const std::shared_ptr<const SampleSource> source = samples_of(dataset);
  float* inputs = batch.inputs.data<float>() + first * sample_values(*source);
  if (source->dtype() == DType::kU8) {
    fill_inputs<ByteNormalizer>(*source, options, samples, epoch, inputs);
  } else {
    fill_inputs<FloatNormalizer>(*source, options, samples, epoch, inputs);
  }
  const std::int64_t target_bytes = batch.targets.bytes() / batch.targets.dim(0);
  fill_targets(dataset.targets, samples,
               static_cast<std::byte*>(batch.targets.raw()) + first * target_bytes);
}

std::int64_t batches_per_epoch(const Dataset& dataset, const LoaderOptions& options) {
  const std::int64_t full = dataset.size() / options.batch_size;
  const bool rest = dataset.size() % options.batch_size != 0;
  return full + (rest && !options.drop_last ? 1 : 0);
}

std::vector<std::int64_t> epoch_order(const Dataset& dataset, const LoaderOptions& options,
                                      std::int64_t epoch) {
  if (options.shuffle) {
    return random_permutation(dataset.size(), options.seed,
                              kShuffleStream + static_cast<std::uint64_t>(epoch));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(dataset.size()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

void validate_options(const Dataset& dataset, const LoaderOptions& options) {
  const auto require = [](bool condition, const std::string& what) {
    if (!condition) throw InputError(what);
  };
  require(options.batch_size > 0,
          "expected batch_size above 0, got " + std::to_string(options.batch_size));
  require(dataset.size() > 0, "expected a dataset with samples");
  require_input_dtype(dataset, "dataset");
  if (dataset.targets.defined()) require_target_for_each(dataset, "dataset");
  const Shape shape = dataset.sample_shape();
  const auto channels = static_cast<std::size_t>(shape.back());
  const Normalization& n = options.normalization;
  require(n.mean.size() == n.stddev.size() && (n.mean.empty() || n.mean.size() == channels),
          "expected mean and stddev for " + std::to_string(channels) + " channels, got " +
              std::to_string(n.mean.size()) + " and " + std::to_string(n.stddev.size()));
  require(std::all_of(n.stddev.begin(), n.stddev.end(), [](float s) { return s > 0; }),
          "expected stddev above 0");
  const Augmentation& a = options.augment;
  const bool images = shape.size() == 3;
  require(images || !(a.places() || a.changes_bytes() || a.erasing || a.cutmix),
          "expected images [H, W, C] to augment, got " + shape_string(shape));
  require(!a.changes_bytes() || (dataset.dtype() == DType::kU8 && (shape[2] == 1 || shape[2] == 3)),
          "colour_jitter, rotation and trivial_augment need images of bytes with 1 or 3 channels");
  const TargetKind kind = target_kind(dataset.targets, dataset.classes);
  const bool of_pixels = kind != TargetKind::kText && dataset.targets.rank() > 2;
  require(
      !of_pixels || !(a.places() || a.erasing || a.changes_bytes() || a.resized_crop),
      "targets of pixels would stay where they are: expected no changes of images, got targets " +
          shape_string(dataset.targets.shape()));
  require(kind != TargetKind::kText || !(a.flip || a.vertical_flip),
          "a mirrored text is another one: expected no flip and no vertical_flip with texts as "
          "targets");
  require(!a.mixes() || kind == TargetKind::kClass || kind == TargetKind::kMarks,
          "mixup and cutmix need classes or labels as targets");
  require(!a.resized_crop || (dataset.source && dataset.source->draws()),
          "random_resized_crop needs images and data.transforms, which say the size");
  require(!a.random_crop || (a.crop_padding >= 0 && a.crop_padding < std::min(shape[0], shape[1])),
          "expected crop_padding from 0 to below the image's size, got " +
              std::to_string(a.crop_padding));
}

Batch make_batch(const Dataset& dataset, const LoaderOptions& options, std::int64_t epoch,
                 std::int64_t index) {
  validate_options(dataset, options);
  return make_batch(dataset, options, epoch_order(dataset, options, epoch), epoch, index);
}

Batch make_batch(const Dataset& dataset, const LoaderOptions& options,
                 const std::vector<std::int64_t>& order, std::int64_t epoch, std::int64_t index) {
  const auto samples = samples_of_batch(dataset, options, order, index);
  Batch batch = empty_batch(dataset, std::ssize(samples), index);
  fill_rows(dataset, options, samples, epoch, batch, 0);
  mix_batch(dataset, options, epoch, batch);
  return batch;
}

Batch make_batch_rows(const Dataset& dataset, const LoaderOptions& options,
                      const std::vector<std::int64_t>& order, std::int64_t epoch,
                      std::int64_t index, std::int64_t first, std::int64_t rows) {
  const auto samples = samples_of_batch(dataset, options, order, index);
  if (first < 0 || rows < 0 || rows > std::ssize(samples) - first) {
    throw std::out_of_range("[data_loader] rows " + std::to_string(first) + " to " +
                            std::to_string(first + rows) + " of " + std::to_string(samples.size()));
  }
  Batch batch = empty_batch(dataset, rows, index);
  if (rows == 0) return batch;
  fill_rows(dataset, options,
            samples.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)), epoch,
            batch, 0);
  if (!options.augment.mixes()) return batch;
  Batch before = empty_batch(dataset, 1, index);
  const std::int64_t other = (first + std::ssize(samples) - 1) % std::ssize(samples);
  fill_rows(dataset, options, samples.subspan(static_cast<std::size_t>(other), 1), epoch, before,
            0);
  mix_after(before, dataset, options, epoch, batch);
  return batch;
}

}  // namespace steelyard
