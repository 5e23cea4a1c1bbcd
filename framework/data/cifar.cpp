#include "steelyard/framework/data/cifar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kPixels = kSide * kSide;
constexpr std::string_view kBatch = "data_batch_";

// The records of a version: its labels, the last of which counts, and the planes.
struct Format {
  std::int64_t labels;
  std::int64_t classes;

  std::int64_t record_bytes() const { return labels + kChannels * kPixels; }
};
constexpr Format kCifar10{1, 10};
constexpr Format kCifar100{2, 100};

// The records of a file, which stay there.
class CifarSamples : public SampleSource {
 public:
  CifarSamples(const std::filesystem::path& path, const Format& format)
      : file_(path), format_(format) {
    const auto record = static_cast<std::uint64_t>(format_.record_bytes());
    if (file_.size() > 0 && file_.size() % record == 0) return;
    throw InputError(file_name() + ": expected records of " + std::to_string(record) +
                     " bytes, got " + std::to_string(file_.size()) + " bytes" +
                     looks_like(kind_of(file_)));
  }

  std::int64_t size() const override {
    return static_cast<std::int64_t>(file_.size()) / format_.record_bytes();
  }
  DType dtype() const override { return DType::kU8; }
  const Shape& shape() const override { return shape_; }
  std::string name(std::int64_t sample) const override {
    return file_name() + ": sample " + std::to_string(sample);
  }

  void read(std::int64_t sample, Rng* /*random*/, void* to) const override {
    std::array<std::uint8_t, kChannels * kPixels> planes;
    file_.read(offset_of(sample) + static_cast<std::uint64_t>(format_.labels), planes.data(),
               planes.size());
    auto* pixels = static_cast<std::uint8_t*>(to);
    for (std::int64_t c = 0; c < kChannels; ++c) {
      const std::uint8_t* plane = planes.data() + c * kPixels;
      for (std::int64_t i = 0; i < kPixels; ++i) pixels[i * kChannels + c] = plane[i];
    }
  }

  // Throws InputError unless it is one of a class.
  std::int64_t label(std::int64_t sample) const {
    const std::uint64_t offset = offset_of(sample) + static_cast<std::uint64_t>(format_.labels) - 1;
    std::uint8_t label = 0;
    file_.read(offset, &label, sizeof label);
    if (label < format_.classes) return label;
    throw InputError(file_name() + ": offset " + std::to_string(offset) +
                     ": expected a label below " + std::to_string(format_.classes) + ", got " +
                     std::to_string(label));
  }

 private:
  std::string file_name() const { return printable(file_.path().string()); }
  std::uint64_t offset_of(std::int64_t sample) const {
    return static_cast<std::uint64_t>(sample * format_.record_bytes());
  }

  InputFile file_;
  Format format_;
  Shape shape_{kSide, kSide, kChannels};
};

// Batches with numbers are all there, from 1 on.
void require_numbers_in_order(const std::vector<std::filesystem::path>& files) {
  std::set<std::size_t> numbers;
  for (const std::filesystem::path& file : files) {
    const std::string name = file.stem().string().substr(kBatch.size());
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc() || end != name.data() + name.size()) return;
    numbers.insert(number);
  }
  for (std::size_t i = 1; i <= numbers.size(); ++i) {
    if (numbers.contains(i)) continue;
    throw InputError(printable(files[0].parent_path().string()) + ": expected " +
                     std::string(kBatch) + std::to_string(i) + ".bin among " +
                     std::to_string(files.size()) + " batches");
  }
}

std::vector<std::filesystem::path> cifar10_train_files(const std::filesystem::path& folder) {
  require_folder(folder, "of CIFAR-10's binary version");
  std::vector<std::filesystem::path> files = folder_entries(folder);
  std::erase_if(files, [](const std::filesystem::path& path) {
    return !path.filename().string().starts_with(kBatch) || path.extension() != ".bin";
  });
  require_numbers_in_order(files);
  if (!files.empty()) return files;
  throw InputError(printable((folder / "data_batch_*.bin").string()) +
                   ": not found: set data.path to the folder of CIFAR-10's binary version");
}

Dataset load_files(const std::vector<std::filesystem::path>& paths, const Format& format) {
  std::vector<std::shared_ptr<const SampleSource>> sources;
  std::vector<std::int64_t> labels;
  for (const auto& path : paths) {
    const auto samples = std::make_shared<const CifarSamples>(path, format);
    for (std::int64_t i = 0; i < samples->size(); ++i) labels.push_back(samples->label(i));
    sources.push_back(samples);
  }
  Dataset dataset{{}, Tensor::empty({std::ssize(labels)}, DType::kI64), format.classes};
  std::copy(labels.begin(), labels.end(), dataset.targets.data<std::int64_t>());
  dataset.source = std::make_shared<ConcatenatedSamples>(std::move(sources));
  return dataset;
}

// `test`: where the test set is.
template <typename TrainFiles>
DatasetSplits load_splits(const DatasetRequest& request, const Format& format,
                          const TrainFiles& train_files, const std::filesystem::path& test) {
  const bool has_test = path_exists(test);
  DatasetSplits splits;
  if (request.needs_train(has_test)) splits.train = load_files(train_files(), format);
  if (!request.needs_test(has_test)) return splits;
  if (!has_test) {
    throw InputError(printable(test.string()) + ": not found: expected the test set" +
                     kOrTestAside);
  }
  splits.test = load_files({test}, format);
  return splits;
}

}  // namespace

DatasetSplits load_cifar10(const DatasetRequest& request) {
  const auto train_files = [&] { return cifar10_train_files(request.path); };
  return load_splits(request, kCifar10, train_files, request.path / "test_batch.bin");
}

DatasetSplits load_cifar100(const DatasetRequest& request) {
  const auto train_files = [&] { return std::vector{request.path / "train.bin"}; };
  return load_splits(request, kCifar100, train_files, request.path / "test.bin");
}

}  // namespace steelyard
