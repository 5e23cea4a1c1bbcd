#include "steelyard/framework/files/checkpoint_file.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>

#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/kernels/backend.h"

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

// The digest of a header that has one and is written as encode_safetensors_header() does: of its
// bytes with zeros in place of the digest's digits.
std::string header_digest(std::string header) {
  // In keys and values quotation marks are escaped, so this is the key.
  std::size_t at = header.find(R"(,"sha256":")");
  if (at == std::string::npos) at = header.find(R"({"sha256":")");
  at = header.find(':', at) + 2;
  return sha256_of(header.replace(at, kDigestDigits, kDigestDigits, '0'));
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
  // The first comparison covers what the parser does not see, such as the padding.
  if (reader.header_bytes() != encode_safetensors_header(header.entries, header.metadata) ||
      digest.size() != kDigestDigits || digest != header_digest(reader.header_bytes())) {
    throw InputError(reader.name() + ": damaged: the header's sha256 does not match");
  }
  const std::string format = find(header.metadata, kFormatKey).value_or("");
  const std::string version = find(header.metadata, kVersionKey).value_or("");
  if (format != kFormat || version != kVersion) {
    throw InputError(reader.name() + ": expected format " + kFormat + " version " + kVersion +
                     ", got '" + printable(format) + "' version '" + printable(version) + "'");
  }
}

// Bytes for which another thread is worth its start.
constexpr std::uint64_t kBytesForThread = 1 << 20;

// The tensors of a file, whose bytes are read and checked by all threads, each tensor by one.
std::vector<NamedTensor> read_verified(const SafetensorsReader& reader) {
  const std::vector<SafetensorsEntry>& entries = reader.header().entries;
  std::vector<NamedTensor> tensors;
  std::vector<std::string_view> bytes;
  for (const SafetensorsEntry& entry : entries) {
    const Tensor tensor = reader.empty(entry);
    tensors.push_back({entry.name, tensor});
    bytes.emplace_back(static_cast<const char*>(tensor.raw()), entry.end - entry.begin);
  }
  std::vector<std::exception_ptr> faults(entries.size());
  const std::uint64_t all_bytes = entries.empty() ? 0 : entries.back().end;
  const auto threads =
      std::min(static_cast<std::uint64_t>(kernels::num_threads()), all_bytes / kBytesForThread + 1);
  const auto read = [&](std::size_t i) {
    try {
      reader.read(entries[i], tensors[i].tensor);
    } catch (...) {
      faults[i] = std::current_exception();
    }
  };
  const std::vector<std::string> digests = sha256_of_each(bytes, static_cast<int>(threads), read);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (faults[i]) std::rethrow_exception(faults[i]);
    const std::string expected =
        find(reader.header().metadata, digest_key(entries[i].name)).value_or("none");
    if (digests[i] != expected) {
      throw InputError(reader.name() + ": damaged: tensor '" + printable(entries[i].name) +
                       "': expected sha256 " + printable(expected) + ", got " + digests[i]);
    }
  }
  return tensors;
}

// Without the keys that are the format's own.
TensorFileMetadata own_metadata(const SafetensorsReader& reader) {
  TensorFileMetadata metadata = reader.header().metadata;
  std::erase_if(metadata, [](const auto& entry) { return is_reserved(entry.first); });
  return metadata;
}

Checkpoint read_native(const SafetensorsReader& reader) {
  verify_header(reader);
  return {read_verified(reader), own_metadata(reader)};
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
  metadata[kDigestKey] = std::string(kDigestDigits, '0');
  metadata[kDigestKey] = sha256_of(encode_safetensors_header(entries, metadata));
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
