#include "steelyard/framework/files/checkpoint_file.h"

#include <optional>
#include <stdexcept>

#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

constexpr const char* kFormatKey = "format";
constexpr const char* kFormat = "steelyard-checkpoint";
constexpr const char* kVersionKey = "format_version";
constexpr const char* kVersion = "1";
constexpr const char* kDigestKey = "sha256";
constexpr std::string_view kTensorDigestPrefix = "sha256:";
constexpr std::size_t kDigestDigits = 64;

bool is_reserved(const std::string& key) {
  return key == kFormatKey || key == kVersionKey || key == kDigestKey ||
         key.starts_with(kTensorDigestPrefix);
}

std::string digest_key(const std::string& tensor) {
  return std::string(kTensorDigestPrefix) + tensor;
}

std::string digest_of(const Tensor& tensor) {
  Sha256 hash;
  hash.update(tensor.raw(), static_cast<std::size_t>(tensor.bytes()));
  return hash.hex();
}

// The header's digest: of its bytes with zeros in place of the digest's digits.
std::string header_digest(const std::vector<SafetensorsEntry>& entries,
                          TensorFileMetadata metadata) {
  metadata[kDigestKey] = std::string(kDigestDigits, '0');
  return sha256_of(encode_safetensors_header(entries, metadata));
}

std::optional<std::string> find(const TensorFileMetadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::nullopt : std::optional(found->second);
}

// One damaged mark must not turn a checkpoint into a foreign file that nobody verifies.
bool is_native(const TensorFileMetadata& metadata) {
  return find(metadata, kFormatKey) == kFormat ||
         (metadata.contains(kVersionKey) && metadata.contains(kDigestKey));
}

void require_native(const SafetensorsReader& reader) {
  if (is_native(reader.header().metadata)) return;
  throw InputError(reader.name() +
                   ": expected a Steelyard checkpoint, got another safetensors file");
}

void verify_header(const SafetensorsReader& reader) {
  const SafetensorsHeader& header = reader.header();
  const std::string digest = find(header.metadata, kDigestKey).value_or("");
  // The second comparison covers what the parser does not see, such as the padding.
  if (digest != header_digest(header.entries, header.metadata) ||
      reader.header_bytes() != encode_safetensors_header(header.entries, header.metadata)) {
    throw InputError(reader.name() + ": damaged: the header's sha256 does not match");
  }
  const std::string format = find(header.metadata, kFormatKey).value_or("");
  const std::string version = find(header.metadata, kVersionKey).value_or("");
  if (format != kFormat || version != kVersion) {
    throw InputError(reader.name() + ": expected format " + kFormat + " version " + kVersion +
                     ", got '" + printable(format) + "' version '" + printable(version) + "'");
  }
}

Tensor read_verified(const SafetensorsReader& reader, const SafetensorsEntry& entry) {
  Tensor tensor = reader.read(entry);
  const std::string expected =
      find(reader.header().metadata, digest_key(entry.name)).value_or("none");
  const std::string actual = digest_of(tensor);
  if (actual != expected) {
    throw InputError(reader.name() + ": damaged: tensor '" + printable(entry.name) +
                     "': expected sha256 " + printable(expected) + ", got " + actual);
  }
  return tensor;
}

// Without the keys that are the format's own.
TensorFileMetadata own_metadata(const SafetensorsReader& reader) {
  TensorFileMetadata metadata = reader.header().metadata;
  std::erase_if(metadata, [](const auto& entry) { return is_reserved(entry.first); });
  return metadata;
}

Checkpoint read_native(const SafetensorsReader& reader) {
  verify_header(reader);
  Checkpoint checkpoint;
  checkpoint.metadata = own_metadata(reader);
  for (const SafetensorsEntry& e : reader.header().entries) {
    checkpoint.tensors.push_back({e.name, read_verified(reader, e)});
  }
  return checkpoint;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  for (const auto& [key, value] : checkpoint.metadata) {
    if (is_reserved(key)) {
      throw std::invalid_argument("[checkpoint] metadata key '" + printable(key) + "' is reserved");
    }
  }
  std::vector<NamedTensor> tensors = checkpoint.tensors;
  for (NamedTensor& t : tensors) t.tensor = t.tensor.to(Device{});
  const std::vector<NamedTensor> ordered = safetensors_order(tensors);
  const std::vector<SafetensorsEntry> entries = safetensors_layout(ordered);
  TensorFileMetadata metadata = checkpoint.metadata;
  metadata[kFormatKey] = kFormat;
  metadata[kVersionKey] = kVersion;
  for (const NamedTensor& t : ordered) metadata[digest_key(t.name)] = digest_of(t.tensor);
  metadata[kDigestKey] = header_digest(entries, metadata);
  if (metadata.size() > kMaxSafetensorsMetadata) {
    throw std::invalid_argument("[checkpoint] too many metadata keys");
  }
  write_safetensors(path, encode_safetensors_header(entries, metadata), ordered);
}

Checkpoint load_checkpoint(const std::filesystem::path& path) {
  return load_checkpoint(SafetensorsReader(path));
}

Checkpoint load_checkpoint(const SafetensorsReader& reader) {
  require_native(reader);
  return read_native(reader);
}

TensorFileMetadata load_checkpoint_metadata(const std::filesystem::path& path) {
  const SafetensorsReader reader(path);
  require_native(reader);
  verify_header(reader);
  return own_metadata(reader);
}

TensorFile load_tensors(const std::filesystem::path& path) {
  const SafetensorsReader reader(path);
  return is_native(reader.header().metadata) ? read_native(reader) : read_safetensors(reader);
}

}  // namespace steelyard
