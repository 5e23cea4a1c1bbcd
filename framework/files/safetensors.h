// Reading and writing safetensors files (framework/files/safetensors_header.h describes the
// format).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/safetensors_header.h"
#include "steelyard/framework/tensor/named_tensor.h"

namespace steelyard {

// The contents of a file: tensors on the CPU and the strings of `__metadata__`.
struct TensorFile {
  std::vector<NamedTensor> tensors;
  TensorFileMetadata metadata;
};

// An open file whose header is valid: every size and offset fits the file. Errors are InputError.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);
  explicit SafetensorsReader(std::shared_ptr<const InputFile> file);

  // The path as messages show it.
  std::string name() const { return printable(file_->path().string()); }
  const std::shared_ptr<const InputFile>& file() const { return file_; }
  const SafetensorsHeader& header() const { return header_; }
  // The bytes in front of the tensors, whose offsets begin after them: prefix, JSON and padding.
  const std::string& header_bytes() const { return header_bytes_; }
  // Reads one tensor; `entry` is one of header().entries.
  Tensor read(const SafetensorsEntry& entry) const;
  // The same in two parts: memory for it, and its elements. Several threads may read().
  Tensor empty(const SafetensorsEntry& entry) const;
  void read(const SafetensorsEntry& entry, const Tensor& into) const;

 private:
  std::shared_ptr<const InputFile> file_;
  std::string header_bytes_;
  SafetensorsHeader header_;
};

// Reads a whole file; tensors come in the order of their offsets. Throws InputError naming the file
// and the tensor or offset for everything that is not a valid file of supported dtypes.
TensorFile read_safetensors(const std::filesystem::path& path);
TensorFile read_safetensors(const SafetensorsReader& reader);

// Replaces the file atomically. Tensors are laid out as the reference writer does, by decreasing
// element size, then by name: equal contents give equal bytes. Throws std::invalid_argument for
// what the format cannot hold (duplicate names, names that are not UTF-8, rank above 8, ...).
void write_safetensors(const std::filesystem::path& path, const TensorFile& file);

// The parts of a writer that must know the header before it writes: the file's order (validated),
// the entries of tensors in that order, and the final writing.
std::vector<NamedTensor> safetensors_order(std::vector<NamedTensor> tensors);
std::vector<SafetensorsEntry> safetensors_layout(const std::vector<NamedTensor>& ordered);
void write_safetensors(const std::filesystem::path& path, const std::string& header,
                       const std::vector<NamedTensor>& ordered);

}  // namespace steelyard
