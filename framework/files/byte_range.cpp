#include "steelyard/framework/files/byte_range.h"

#include <cstring>
#include <utility>

namespace steelyard {
namespace {

class FileRange : public ByteRange {
 public:
  FileRange(std::shared_ptr<const InputFile> file, std::uint64_t begin, std::uint64_t size)
      : file_(std::move(file)), begin_(begin), size_(size) {}

  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, void* into, std::uint64_t bytes) const override {
    file_->read(begin_ + offset, into, bytes);
  }

 private:
  std::shared_ptr<const InputFile> file_;
  std::uint64_t begin_;
  std::uint64_t size_;
};

class MemoryRange : public ByteRange {
 public:
  explicit MemoryRange(std::string bytes) : bytes_(std::move(bytes)) {}

  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, void* into, std::uint64_t bytes) const override {
    std::memcpy(into, bytes_.data() + offset, bytes);
  }

 private:
  std::string bytes_;
};

}  // namespace

std::shared_ptr<const ByteRange> range_of_file(std::shared_ptr<const InputFile> file,
                                               std::uint64_t begin, std::uint64_t size) {
  return std::make_shared<FileRange>(std::move(file), begin, size);
}

std::shared_ptr<const ByteRange> range_in_memory(std::string bytes) {
  return std::make_shared<MemoryRange>(std::move(bytes));
}

}  // namespace steelyard
