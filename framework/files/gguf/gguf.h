// Reading and writing GGUF files (framework/files/gguf/gguf_header.h describes the format).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/files/gguf/gguf_header.h"

namespace steelyard {

// An open file whose header is valid: every size and offset fits the file. Errors are InputError.
class GgufReader {
 public:
  explicit GgufReader(const std::filesystem::path& path);

  // The path as messages show it.
  std::string name() const { return printable(file_->path().string()); }
  const GgufHeader& header() const { return header_; }
  // Null where there is no such tensor.
  const GgufTensor* find(std::string_view name) const;
  // The bytes of one of header().tensors, read where they are asked for.
  std::shared_ptr<const ByteRange> bytes_of(const GgufTensor& tensor) const;

 private:
  std::shared_ptr<const InputFile> file_;
  GgufHeader header_;
};

// Replaces a file atomically: the header first, then the tensors' bytes in its order. Nothing is
// replaced before commit(). Throws as AtomicFile does.
class GgufWriter {
 public:
  // Throws std::invalid_argument for what no file can hold; offsets of tensors are not read.
  GgufWriter(const std::filesystem::path& path, const std::vector<GgufEntry>& entries,
             std::vector<GgufTensor> tensors);

  // The next bytes of the tensor that is being written. Throws std::invalid_argument behind the end
  // of the last one.
  void write(const void* bytes, std::uint64_t count);
  void write(const ByteRange& bytes);
  // Throws std::invalid_argument where bytes are missing.
  void commit();

 private:
  void pad_ended_tensors();

  std::vector<GgufTensor> tensors_;
  std::uint64_t alignment_;
  AtomicFile file_;
  std::size_t current_ = 0;    // the tensor that is being written
  std::uint64_t written_ = 0;  // bytes of it
};

}  // namespace steelyard
