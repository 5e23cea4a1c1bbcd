#include "steelyard/framework/data/cifar10.h"

#include <algorithm>
#include <string>
#include <vector>

#include "steelyard/framework/error.h"
#include "steelyard/framework/file_kind.h"
#include "steelyard/framework/files.h"

namespace steelyard {
namespace {

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kPixels = kSide * kSide;
constexpr std::int64_t kRecordBytes = 1 + kChannels * kPixels;
constexpr std::int64_t kClasses = 10;
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 31;

std::vector<std::filesystem::path> train_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("data_batch_") && name.ends_with(".bin")) files.push_back(entry.path());
  }
  if (error || files.empty()) {
    throw InputError(printable((folder / "data_batch_*.bin").string()) +
                     ": not found: set data.path to the folder of CIFAR-10's binary version");
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Planes to interleaved channels.
void copy_record(const unsigned char* record, std::uint8_t* pixels) {
  for (std::int64_t c = 0; c < kChannels; ++c) {
    for (std::int64_t i = 0; i < kPixels; ++i) pixels[i * kChannels + c] = record[c * kPixels + i];
  }
}

Dataset load_files(const std::vector<std::filesystem::path>& files) {
  std::vector<std::string> contents;
  std::int64_t records = 0;
  for (const auto& path : files) {
    contents.push_back(read_file(path, kMaxFileBytes));
    const auto bytes = static_cast<std::int64_t>(contents.back().size());
    if (bytes == 0 || bytes % kRecordBytes != 0) {
      throw InputError(printable(path.string()) + ": expected records of " +
                       std::to_string(kRecordBytes) + " bytes, got " + std::to_string(bytes) +
                       " bytes" + looks_like(kind_of(contents.back())));
    }
    records += bytes / kRecordBytes;
  }
  Dataset dataset{Tensor::empty({records, kSide, kSide, kChannels}, DType::kU8),
                  Tensor::empty({records}, DType::kI64), kClasses};
  auto* pixels = dataset.inputs.data<std::uint8_t>();
  auto* label = dataset.targets.data<std::int64_t>();
  for (std::size_t f = 0; f < files.size(); ++f) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(contents[f].data());
    for (std::size_t at = 0; at < contents[f].size(); at += kRecordBytes) {
      if (bytes[at] >= kClasses) {
        throw InputError(printable(files[f].string()) + ": offset " + std::to_string(at) +
                         ": expected a label below 10, got " + std::to_string(bytes[at]));
      }
      *label++ = bytes[at];
      copy_record(bytes + at + 1, pixels);
      pixels += kChannels * kPixels;
    }
  }
  return dataset;
}

}  // namespace

DatasetSplits load_cifar10(const std::filesystem::path& folder, DatasetParts parts) {
  const bool all = parts == DatasetParts::kAll;
  return {all ? load_files(train_files(folder)) : Dataset{},
          load_files({folder / "test_batch.bin"})};
}

}  // namespace steelyard
