// What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput: clang's libFuzzer
// drives it in a build with STEELYARD_FUZZ, run_corpus.cpp over the committed corpus in the tests.
//
// A target checks more than that nothing crashes: what parses is written and parses back equal,
// what does not is refused with the documented exception and one printable line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/files/safetensors.h"
#include "steelyard/framework/tensor/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace steelyard::fuzz {

// Ends the program as a sanitizer would, unless `holds`.
void require(bool holds, const std::string& what);

// A message for people: one line without control characters.
void require_one_line(const std::string& message);

// Runs `f`; false where it throws InputError. Every other exception ends the program.
template <typename F>
bool accepted(const F& f) {
  try {
    f();
    return true;
  } catch (const InputError& error) {
    require_one_line(error.what());
    return false;
  }
}

inline std::string_view view(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// `count` parts, separated by NUL bytes; the last one may hold more of them, missing ones are
// empty.
std::vector<std::string_view> split(std::string_view bytes, std::size_t count);

// A file in memory that readers open by its path.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // The path, after the file holds `bytes` only.
  const std::filesystem::path& holding(std::string_view bytes);

 private:
  int descriptor_;
  std::filesystem::path path_;
};

// A folder for as long as the program runs, in $TMPDIR.
const std::filesystem::path& scratch_folder();
void write_file(const std::filesystem::path& path, std::string_view bytes);
std::string read_file(const std::filesystem::path& path);

// A safetensors file of this JSON and these tensors' bytes; their end is cut or filled with zeros
// to the length that the JSON says, up to 64 KiB, so that a changed shape alone is no damage.
std::string safetensors_bytes(std::string_view json, std::string_view data);

// A zip archive whose stored files have the right checksums, so that changed bytes alone are no
// damage; other bytes as they are.
std::string with_zip_checksums(std::string_view bytes);

// Types, shapes and bytes are the same.
bool equal(const Tensor& a, const Tensor& b);
// Names, types, shapes, bytes and metadata are the same.
bool equal(const TensorFile& a, const TensorFile& b);

}  // namespace steelyard::fuzz
