#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/support/zip_files.h"

namespace steelyard::fuzz {
namespace {

constexpr std::uint64_t kMostFilled = 64 * 1024;

// The largest second member of a "data_offsets" in a header, or 0.
std::uint64_t end_of_tensors(std::string_view json) {
  const auto header = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  std::uint64_t end = 0;
  if (!header.is_object()) return end;
  for (const auto& entry : header) {
    if (!entry.is_object() || !entry.contains("data_offsets")) continue;
    const auto& offsets = entry["data_offsets"];
    if (offsets.is_array() && offsets.size() == 2 && offsets[1].is_number_unsigned()) {
      end = std::max(end, offsets[1].get<std::uint64_t>());
    }
  }
  return end;
}

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "steelyard-XXXXXX").string();
    require(mkdtemp(name.data()) != nullptr, "no scratch folder in $TMPDIR");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

void require_one_line(const std::string& message) {
  require(!message.empty(), "a message is empty");
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    require(byte >= 0x20 && byte != 0x7F, "a message holds a control character: " + message);
  }
}

std::vector<std::string_view> split(std::string_view bytes, std::size_t count) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < count) {
    const std::size_t end = std::min(bytes.find('\0'), bytes.size());
    parts.push_back(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  parts.push_back(bytes);
  return parts;
}

MemoryFile::MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
  require(descriptor_ >= 0, "memfd_create failed");
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

MemoryFile::~MemoryFile() { close(descriptor_); }

const std::filesystem::path& MemoryFile::holding(std::string_view bytes) {
  const bool written =
      ftruncate(descriptor_, 0) == 0 &&
      pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
  require(written, "writing in memory failed");
  return path_;
}

const std::filesystem::path& scratch_folder() {
  static const Scratch kScratch;
  return kScratch.path();
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  require(file.good(), "writing " + path.string() + " failed");
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string safetensors_bytes(std::string_view json, std::string_view data) {
  const std::uint64_t n = json.size();
  std::string bytes(sizeof n, '\0');
  std::memcpy(bytes.data(), &n, sizeof n);
  bytes += json;
  const std::uint64_t end = end_of_tensors(json);
  const std::uint64_t kept = std::min<std::uint64_t>(end, data.size());
  bytes += data.substr(0, kept);
  bytes.append(std::min(end, kMostFilled) - std::min(kept, kMostFilled), '\0');
  return bytes;
}

std::string with_zip_checksums(std::string_view bytes) {
  std::string file(bytes);
  if (!file.starts_with("PK\x03\x04")) return file;
  const auto number = [&](std::size_t at, std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(file[at + i]);
    return value;
  };
  constexpr std::size_t kEntry = 46, kHeader = 30;
  for (std::size_t at = 0; (at = file.find("PK\x01\x02", at)) != std::string::npos; at += 4) {
    if (file.size() - at < kEntry || number(at + 10, 2) != 0) continue;
    const std::uint64_t size = number(at + 20, 4), header = number(at + 42, 4);
    if (header + kHeader > file.size()) continue;
    const std::uint64_t begin = header + kHeader + number(header + 26, 2) + number(header + 28, 2);
    if (begin > file.size() || size > file.size() - begin) continue;
    const std::uint32_t sum = testing::crc32_of(file.substr(begin, size));
    for (int i = 0; i < 4; ++i) {
      file[at + 16 + static_cast<std::size_t>(i)] = static_cast<char>(sum >> (8 * i) & 0xFF);
    }
  }
  return file;
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 ||
          std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0);
}

bool equal(const TensorFile& a, const TensorFile& b) {
  return a.metadata == b.metadata &&
         std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                    [](const NamedTensor& x, const NamedTensor& y) {
                      return x.name == y.name && equal(x.tensor, y.tensor);
                    });
}

}  // namespace steelyard::fuzz
