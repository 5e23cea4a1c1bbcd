#include "steelyard/framework/files/safetensors.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/memory_error.h"

namespace steelyard {
namespace {

void require_safetensors(const InputFile& file) {
  const std::string kind = kind_of(file);
  if (kind.empty() || kind == kSafetensorsKind) return;
  const bool tiny = file.size() < kSafetensorsPrefixBytes;
  throw InputError(printable(file.path().string()) + ": not a safetensors file: it looks like " +
                   kind +
                   (tiny ? ": expected at least 8 bytes, got " + std::to_string(file.size()) : ""));
}

std::string read_header(const InputFile& file) {
  require_safetensors(file);
  const std::string name = printable(file.path().string());
  std::uint64_t n = 0;
  if (file.size() < kSafetensorsPrefixBytes) {
    throw InputError(name + ": expected at least 8 bytes, got " + std::to_string(file.size()));
  }
  file.read(0, &n, sizeof n);
  // One that is cut off still has JSON after that length.
  const std::string where =
      name + (kind_of(file) == kSafetensorsKind ? ": " : ": not a safetensors file: ");
  if (n > kMaxSafetensorsHeaderBytes) {
    throw InputError(where + "expected a header of at most " +
                     std::to_string(kMaxSafetensorsHeaderBytes) + " bytes, got " +
                     std::to_string(n));
  }
  if (n > file.size() - kSafetensorsPrefixBytes) {
    throw InputError(where + "expected a header of " + std::to_string(n) + " bytes, the file has " +
                     std::to_string(file.size() - kSafetensorsPrefixBytes) + " after its prefix");
  }
  std::string bytes(kSafetensorsPrefixBytes + n, '\0');
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

[[noreturn]] void refuse(const std::string& tensor, const std::string& what) {
  throw std::invalid_argument("[safetensors] tensor '" + printable(tensor) + "': " + what);
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : SafetensorsReader(std::make_shared<const InputFile>(path)) {}

SafetensorsReader::SafetensorsReader(std::shared_ptr<const InputFile> file)
    : file_(std::move(file)), header_bytes_(read_header(*file_)) {
  header_ = parse_safetensors_header(
      name(), std::string_view(header_bytes_).substr(kSafetensorsPrefixBytes),
      file_->size() - header_bytes_.size());
}

Tensor SafetensorsReader::empty(const SafetensorsEntry& entry) const {
  return with_memory_for(name() + ": tensor '" + printable(entry.name) + "' of " +
                             std::to_string(entry.end - entry.begin) + " bytes",
                         [&] { return Tensor::empty(entry.shape, entry.dtype); });
}

void SafetensorsReader::read(const SafetensorsEntry& entry, const Tensor& into) const {
  file_->read(header_bytes_.size() + entry.begin, into.raw(), entry.end - entry.begin);
  if (entry.dtype != DType::kBool) return;
  // Other bytes than 0 and 1 are no C++ bool.
  const auto* bytes = static_cast<const unsigned char*>(into.raw());
  const auto* bad = std::find_if(bytes, bytes + into.size(), [](auto b) { return b > 1; });
  if (bad != bytes + into.size()) {
    throw InputError(name() + ": tensor '" + printable(entry.name) +
                     "': expected 0 or 1 at index " + std::to_string(bad - bytes) + ", got " +
                     std::to_string(*bad));
  }
}

Tensor SafetensorsReader::read(const SafetensorsEntry& entry) const {
  Tensor tensor = empty(entry);
  read(entry, tensor);
  return tensor;
}

TensorFile read_safetensors(const std::filesystem::path& path) {
  return read_safetensors(SafetensorsReader(path));
}

TensorFile read_safetensors(const SafetensorsReader& reader) {
  TensorFile file;
  file.metadata = reader.header().metadata;
  for (const SafetensorsEntry& e : reader.header().entries) {
    file.tensors.push_back({e.name, reader.read(e)});
  }
  return file;
}

std::vector<NamedTensor> safetensors_order(std::vector<NamedTensor> tensors) {
  for (const NamedTensor& t : tensors) {
    if (!t.tensor.defined()) refuse(t.name, "undefined");
    if (t.tensor.device().kind != Device::Kind::kCpu) refuse(t.name, "expected it on the CPU");
    if (t.tensor.shape().size() > kMaxSafetensorsRank) refuse(t.name, "rank above 8");
    if (t.name == "__metadata__") refuse(t.name, "reserved name");
  }
  if (tensors.size() > kMaxSafetensorsTensors) {
    throw std::invalid_argument("[safetensors] expected at most 65536 tensors, got " +
                                std::to_string(tensors.size()));
  }
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const std::size_t a_bytes = dtype_bytes(a.tensor.dtype());
    const std::size_t b_bytes = dtype_bytes(b.tensor.dtype());
    return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
  });
  std::vector<std::string> names;
  for (const NamedTensor& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) refuse(*twice, "duplicate name");
  return tensors;
}

std::vector<SafetensorsEntry> safetensors_layout(const std::vector<NamedTensor>& ordered) {
  std::vector<SafetensorsEntry> entries;
  std::uint64_t position = 0;
  for (const NamedTensor& t : ordered) {
    const std::uint64_t end = position + static_cast<std::uint64_t>(t.tensor.bytes());
    entries.push_back({t.name, t.tensor.dtype(), t.tensor.shape(), position, end});
    position = end;
  }
  return entries;
}

void write_safetensors(const std::filesystem::path& path, const std::string& header,
                       const std::vector<NamedTensor>& ordered) {
  if (header.size() - kSafetensorsPrefixBytes > kMaxSafetensorsHeaderBytes) {
    throw std::invalid_argument("[safetensors] names, shapes and metadata need a header of " +
                                std::to_string(header.size()) + " bytes, above 16 MiB");
  }
  AtomicFile file(path);
  file.write(header);
  for (const NamedTensor& t : ordered) {
    file.write(t.tensor.raw(), static_cast<std::uint64_t>(t.tensor.bytes()));
  }
  file.commit();
}

void write_safetensors(const std::filesystem::path& path, const TensorFile& file) {
  const std::vector<NamedTensor> ordered = safetensors_order(file.tensors);
  write_safetensors(path, encode_safetensors_header(safetensors_layout(ordered), file.metadata),
                    ordered);
}

}  // namespace steelyard
