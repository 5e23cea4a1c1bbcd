#include "steelyard/framework/files/file_kind.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>

#include "steelyard/framework/files/safetensors_header.h"

namespace steelyard {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::size_t offset;
  std::string_view bytes;
  const char* kind;
};

// From the formats' descriptions. PyTorch before 1.6 wrote a pickle of a magic number first.
constexpr Signature kSignatures[] = {
    {0, "\x89PNG\r\n\x1a\n"sv, "a PNG image"},
    {0, "\xFF\xD8\xFF"sv, "a JPEG image"},
    {0, "GIF8"sv, "a GIF image"},
    {0, "\x93NUMPY"sv, "a NumPy array"},
    {0, "\x1F\x8B"sv, "gzip"},
    {0, "BZh"sv, "bzip2"},
    {0,
     "\xFD"
     "7zXZ\0"sv,
     "xz"},
    {0, "\x28\xB5\x2F\xFD"sv, "zstd"},
    {257, "ustar"sv, "a tar archive"},
    {0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    {0, "GGUF"sv, kGgufKind},
    {4, "TFL3"sv, "a TensorFlow Lite model"},
    {0, "\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19"sv, kOldTorchKind},
    {0, "\0\0\x08\x01"sv, "IDX labels"},
    {0, "\0\0\x08\x03"sv, "IDX images"},
    {0,
     "\x7F"
     "ELF"sv,
     "a program"},
    {0, "%PDF"sv, "a PDF document"},
    {0, "\xFF\xFE"sv, "UTF-16 text"},
    {0, "\xFE\xFF"sv, "UTF-16 text"},
    {0, "version https://git-lfs"sv, "a Git LFS pointer, not the file itself"},
};

bool holds_at(std::string_view bytes, std::size_t offset, std::string_view part) {
  return bytes.size() >= offset && bytes.substr(offset).starts_with(part);
}

// An archive by the name of its first file: PyTorch writes NAME/data.pkl, NumPy NAME.npy.
std::string zip_kind(std::string_view bytes) {
  constexpr std::size_t kNameBytes = 26;
  constexpr std::size_t kName = 30;
  std::string_view name;
  if (bytes.size() > kName) {
    const auto length = static_cast<unsigned char>(bytes[kNameBytes]) |
                        static_cast<unsigned>(static_cast<unsigned char>(bytes[kNameBytes + 1]))
                            << 8;
    name = bytes.substr(kName, length);
  }
  if (name.ends_with("/data.pkl")) return kTorchKind;
  if (name.ends_with(".npy")) return "NumPy arrays (npz)";
  return "a zip archive";
}

// The signature of two letters, the file's size, and four bytes that are 0.
bool is_bmp(std::string_view bytes) {
  return bytes.starts_with("BM") && holds_at(bytes, 6, "\0\0\0\0"sv);
}

// The length of a header, then JSON.
bool is_safetensors(std::string_view bytes) {
  std::uint64_t length = 0;
  if (bytes.size() <= kSafetensorsPrefixBytes) return false;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length >= 2 && length <= kMaxSafetensorsHeaderBytes &&
         bytes[kSafetensorsPrefixBytes] == '{';
}

// onnx.proto: field 1, the format's version, comes first; then the producer (2 to 4), the model's
// version (5), a text (6) or the graph (7).
bool is_onnx(std::string_view bytes) {
  constexpr auto kNext = "\x12\x1A\x22\x28\x32\x3A"sv;
  return bytes.size() > 3 && bytes[0] == '\x08' && bytes[1] > 0 && bytes[1] < 0x40 &&
         kNext.find(bytes[2]) != std::string_view::npos;
}

// Protocols 2 to 5 begin with their number.
bool is_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

bool is_text(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = utf8_length(bytes);
    // The last character may be cut off.
    if (length == 0) return bytes.size() < 4 && static_cast<unsigned char>(bytes[0]) >= 0xC2;
    const bool space = bytes[0] == '\t' || bytes[0] == '\n' || bytes[0] == '\r';
    if (!space && is_control(utf8_character(bytes))) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

// The next line without its end; `text` moves after it.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// "key:" or "key: value".
bool is_yaml_entry(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos) return false;
  const bool word = std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(colon),
                                [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  return word && (colon + 1 == line.size() || line[colon + 1] == ' ');
}

std::string text_kind(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return "blank text";
  const std::string_view begin = text.substr(start);
  if (begin[0] == '{' || begin[0] == '[') return "JSON";
  if (begin[0] == '<') return "HTML or XML";
  for (std::string_view rest = begin; !rest.empty();) {
    const std::string_view next = take_line(rest);
    if (is_yaml_entry(next)) return "YAML";
    if (!next.empty() && next[0] != '#' && next != "---") break;
  }
  const std::string_view line = take_line(text);
  const auto commas = std::count(line.begin(), line.end(), ',');
  const std::string_view second = take_line(text);
  if (commas > 0 && (second.empty() || std::count(second.begin(), second.end(), ',') == commas)) {
    return kCsvKind;
  }
  return "text";
}

}  // namespace

std::string kind_of(std::string_view bytes) {
  bytes = bytes.substr(0, kFileKindBytes);
  if (bytes.empty()) return "an empty file";
  if (is_safetensors(bytes)) return kSafetensorsKind;
  for (const Signature& signature : kSignatures) {
    if (holds_at(bytes, signature.offset, signature.bytes)) return signature.kind;
  }
  if (is_bmp(bytes)) return "a BMP image";
  if (bytes.starts_with("PK\x03\x04"sv)) return zip_kind(bytes);
  if (is_pickle(bytes)) return "a Python pickle";
  if (is_onnx(bytes)) return "an ONNX model";
  if (is_text(bytes)) return text_kind(bytes);
  constexpr std::size_t kManyZeros = 64;
  const bool zeros = std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
  return zeros && bytes.size() >= kManyZeros ? "a file that begins with zeros" : "";
}

std::string kind_of(const InputFile& file) {
  std::string bytes(std::min<std::uint64_t>(file.size(), kFileKindBytes), '\0');
  file.read(0, bytes.data(), bytes.size());
  return kind_of(bytes);
}

std::string looks_like(const std::string& kind) {
  return kind.empty() ? "" : " (it looks like " + kind + ")";
}

}  // namespace steelyard
