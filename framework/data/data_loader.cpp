#include "steelyard/framework/data/data_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "steelyard/framework/data/streams.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/rng.h"

namespace steelyard {
namespace {

// How one image is placed: output pixel (y, x) shows input pixel (y + dy, x + dx), x mirrored.
struct Placement {
  std::int64_t dy = 0;
  std::int64_t dx = 0;
  bool flip = false;
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
  return placement;
}

// Normalises u8 through a table of 256 values per channel: no division per pixel.
class ByteNormalizer {
 public:
  using Value = std::uint8_t;

  ByteNormalizer(const Normalization& normalization, std::int64_t channels)
      : table_(static_cast<std::size_t>(channels) * 256) {
    for (std::size_t i = 0; i < table_.size(); ++i) {
      const bool none = normalization.mean.empty();
      const double mean = none ? 0.0 : normalization.mean[i / 256];
      const double stddev = none ? 1.0 : normalization.stddev[i / 256];
      table_[i] = static_cast<float>((static_cast<double>(i % 256) / 255.0 - mean) / stddev);
    }
  }

  float operator()(std::uint8_t value, std::int64_t channel) const {
    return table_[static_cast<std::size_t>(channel * 256 + value)];
  }

 private:
  std::vector<float> table_;
};

// In double, as bytes are: what programs that read an export are told to compute.
class FloatNormalizer {
 public:
  using Value = float;

  FloatNormalizer(const Normalization& normalization, std::int64_t channels)
      : mean_(normalization.mean.begin(), normalization.mean.end()),
        stddev_(normalization.stddev.begin(), normalization.stddev.end()) {
    if (mean_.empty()) mean_.assign(static_cast<std::size_t>(channels), 0.0);
    if (stddev_.empty()) stddev_.assign(static_cast<std::size_t>(channels), 1.0);
  }

  float operator()(float value, std::int64_t channel) const {
    const auto c = static_cast<std::size_t>(channel);
    return static_cast<float>((static_cast<double>(value) - mean_[c]) / stddev_[c]);
  }

 private:
  std::vector<double> mean_;
  std::vector<double> stddev_;
};

// Pixels or feature vectors: `count` groups of `channels` values.
template <typename Normalizer>
void normalize(const Normalizer& normalizer, const typename Normalizer::Value* in, float* out,
               std::int64_t count, std::int64_t channels) {
  if (channels == 1) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = normalizer(in[i], 0);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) {
      out[i * channels + c] = normalizer(in[i * channels + c], c);
    }
  }
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
  // Padding is zero before normalisation, as if the image had been padded first.
  const auto fill = [&](float* from, std::int64_t pixels) {
    for (std::int64_t i = 0; i < pixels; ++i) {
      for (std::int64_t c = 0; c < channels; ++c) from[i * channels + c] = normalizer({}, c);
    }
  };
  const std::int64_t begin = std::clamp<std::int64_t>(-placement.dx, 0, width);
  const std::int64_t end = std::clamp<std::int64_t>(width - placement.dx, 0, width);
  for (std::int64_t y = 0; y < height; ++y) {
    float* row = out + y * width * channels;
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

void require_finite(const float* values, std::int64_t count, std::int64_t sample) {
  if (!std::all_of(values, values + count, [](float v) { return std::isfinite(v); })) {
    throw InputError("dataset: inputs of sample " + std::to_string(sample) + " are not finite");
  }
}

template <typename Normalizer>
void fill_inputs(const Dataset& dataset, const LoaderOptions& options,
                 std::span<const std::int64_t> samples, std::int64_t epoch, Tensor& inputs) {
  using Value = typename Normalizer::Value;
  const std::int64_t channels = inputs.dim(-1);
  const std::int64_t per_sample = inputs.size() / inputs.dim(0);
  const Normalizer normalizer(options.normalization, channels);
  const bool augment = options.augment.random_crop || options.augment.flip;
  const Value* in = dataset.inputs.data<Value>();
  float* out = inputs.data<float>();
  for (const std::int64_t sample : samples) {
    const Value* image = in + sample * per_sample;
    if constexpr (std::is_same_v<Value, float>) require_finite(image, per_sample, sample);
    if (augment) {
      place_image(normalizer, draw_placement(options, epoch, sample), image, out, inputs.dim(1),
                  inputs.dim(2), channels);
    } else {
      normalize(normalizer, image, out, per_sample / channels, channels);
    }
    out += per_sample;
  }
}

void fill_targets(const Tensor& all, std::span<const std::int64_t> samples, Tensor& targets) {
  const auto bytes = static_cast<std::size_t>(targets.bytes() / targets.dim(0));
  const auto* in = static_cast<const char*>(all.raw());
  auto* out = static_cast<char*>(targets.raw());
  for (const std::int64_t sample : samples) {
    std::memcpy(out, in + static_cast<std::size_t>(sample) * bytes, bytes);
    out += bytes;
  }
}

Tensor empty_batch(const Tensor& all, std::int64_t size, DType dtype) {
  Shape shape = all.shape();
  shape[0] = size;
  return Tensor::empty(std::move(shape), dtype);
}

}  // namespace

Tensor normalized(const Tensor& inputs, const Normalization& normalization) {
  const bool bytes = inputs.dtype() == DType::kU8;
  if ((!bytes && inputs.dtype() != DType::kF32) || inputs.rank() < 2) {
    throw InputError("inputs: expected u8 or f32 of rank 2 or more, got " +
                     std::string(dtype_name(inputs.dtype())) + " " + shape_string(inputs.shape()));
  }
  const std::int64_t channels = inputs.dim(-1);
  if (!normalization.mean.empty() &&
      static_cast<std::int64_t>(normalization.mean.size()) != channels) {
    throw InputError("inputs: expected " + std::to_string(normalization.mean.size()) +
                     " channels, got " + std::to_string(channels));
  }
  Tensor out = Tensor::empty(inputs.shape());
  if (out.size() == 0) return out;
  if (bytes) {
    normalize(ByteNormalizer(normalization, channels), inputs.data<std::uint8_t>(),
              out.data<float>(), out.size() / channels, channels);
  } else {
    normalize(FloatNormalizer(normalization, channels), inputs.data<float>(), out.data<float>(),
              out.size() / channels, channels);
  }
  return out;
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
    if (!condition) throw InputError("[data_loader] " + what);
  };
  require(options.batch_size > 0,
          "expected batch_size above 0, got " + std::to_string(options.batch_size));
  require(dataset.size() > 0, "expected a dataset with samples");
  const auto channels = static_cast<std::size_t>(dataset.inputs.dim(-1));
  const Normalization& n = options.normalization;
  require(n.mean.size() == n.stddev.size() && (n.mean.empty() || n.mean.size() == channels),
          "expected mean and stddev for " + std::to_string(channels) + " channels, got " +
              std::to_string(n.mean.size()) + " and " + std::to_string(n.stddev.size()));
  require(std::all_of(n.stddev.begin(), n.stddev.end(), [](float s) { return s > 0; }),
          "expected stddev above 0");
  const Augmentation& a = options.augment;
  const bool images = dataset.inputs.rank() == 4;
  require(images || !(a.random_crop || a.flip),
          "expected images [N, H, W, C] to augment, got " + shape_string(dataset.inputs.shape()));
  require(
      !a.random_crop || (a.crop_padding >= 0 &&
                         a.crop_padding < std::min(dataset.inputs.dim(1), dataset.inputs.dim(2))),
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
  if (index < 0 || index >= batches_per_epoch(dataset, options)) {
    throw std::out_of_range("[data_loader] batch " + std::to_string(index) + " of " +
                            std::to_string(batches_per_epoch(dataset, options)));
  }
  const std::int64_t begin = index * options.batch_size;
  const std::int64_t size = std::min(options.batch_size, dataset.size() - begin);
  const auto samples = std::span<const std::int64_t>(order).subspan(static_cast<std::size_t>(begin),
                                                                    static_cast<std::size_t>(size));
  Batch batch{empty_batch(dataset.inputs, size, DType::kF32),
              empty_batch(dataset.targets, size, dataset.targets.dtype()), index};
  if (dataset.inputs.dtype() == DType::kU8) {
    fill_inputs<ByteNormalizer>(dataset, options, samples, epoch, batch.inputs);
  } else {
    fill_inputs<FloatNormalizer>(dataset, options, samples, epoch, batch.inputs);
  }
  fill_targets(dataset.targets, samples, batch.targets);
  return batch;
}

DataLoader::DataLoader(Dataset dataset, LoaderOptions options, std::int64_t prefetch)
    : dataset_(std::move(dataset)), options_(std::move(options)), prefetch_(prefetch) {
  validate_options(dataset_, options_);
}

DataLoader::~DataLoader() { stop(); }

std::int64_t DataLoader::batches_per_epoch() const {
  return steelyard::batches_per_epoch(dataset_, options_);
}

void DataLoader::start(std::int64_t epoch, std::int64_t first_batch) {
  if (epoch < 0 || first_batch < 0 || first_batch > batches_per_epoch()) {
    throw std::invalid_argument("[data_loader] expected epoch >= 0 and first batch in [0, " +
                                std::to_string(batches_per_epoch()) + "], got " +
                                std::to_string(epoch) + " and " + std::to_string(first_batch));
  }
  stop();
  epoch_ = epoch;
  next_ = first_batch;
  order_ = epoch_order(dataset_, options_, epoch);
  if (prefetch_ > 0) thread_ = std::thread([this, first_batch] { produce(first_batch); });
}

std::optional<Batch> DataLoader::next() {
  if (order_.empty()) throw std::logic_error("[data_loader] next() before start()");
  if (next_ >= batches_per_epoch()) return std::nullopt;
  if (prefetch_ <= 0) {
    Batch batch = make_batch(dataset_, options_, order_, epoch_, next_);
    ++next_;
    return batch;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || error_; });
  if (ready_.empty()) std::rethrow_exception(error_);
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  ++next_;
  changed_.notify_all();
  return batch;
}

// The background thread: no OpenMP in here, training owns those threads.
void DataLoader::produce(std::int64_t first_batch) {
  try {
    for (std::int64_t i = first_batch; i < batches_per_epoch(); ++i) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] {
          return stopping_ || static_cast<std::int64_t>(ready_.size()) < prefetch_;
        });
        if (stopping_) return;
      }
      Batch batch = make_batch(dataset_, options_, order_, epoch_, i);
      const std::lock_guard lock(mutex_);
      ready_.push_back(std::move(batch));
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

void DataLoader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  stopping_ = false;
  ready_.clear();
  error_ = nullptr;
}

}  // namespace steelyard
