// A file of CIFAR-10's binary version, as the training and as the test file of a folder. To keep
// inputs small, one byte stands for 48 of a record's pixels.
#include "steelyard/framework/data/cifar.h"

#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

constexpr std::size_t kRepeats = 48;
constexpr std::size_t kRecordBytes = 3073;
constexpr std::size_t kRecordInput = 1 + (kRecordBytes - 1) / kRepeats;

std::string expanded(std::string_view bytes) {
  std::string file;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    file.append(i % kRecordInput == 0 ? 1 : kRepeats, bytes[i]);
  }
  return file;
}

void check_samples(const Dataset& dataset, const std::string& file) {
  fuzz::require(static_cast<std::size_t>(dataset.size()) == file.size() / kRecordBytes,
                "another number of records");
  const Tensor inputs = load_samples(dataset).inputs;
  for (std::size_t n = 0; n < file.size() / kRecordBytes; ++n) {
    const auto* record = reinterpret_cast<const unsigned char*>(file.data()) + n * kRecordBytes;
    fuzz::require(dataset.targets.span<std::int64_t>()[n] == record[0] && record[0] < 10,
                  "another label");
    for (std::size_t i = 0; i < kRecordBytes - 1; ++i) {
      const std::size_t at = n * (kRecordBytes - 1) + i % 1024 * 3 + i / 1024;
      fuzz::require(inputs.span<std::uint8_t>()[at] == record[1 + i], "another pixel");
    }
  }
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  const std::string file = expanded(fuzz::view(data, size));
  for (const char* name : {"data_batch_1.bin", "test_batch.bin"}) {
    fuzz::write_file(fuzz::scratch_folder() / name, file);
  }
  fuzz::accepted([&] {
    const DatasetSplits splits = load_cifar10({.path = fuzz::scratch_folder()});
    check_samples(splits.train, file);
    check_samples(splits.test, file);
  });
  return 0;
}
