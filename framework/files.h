// Reading and writing files: size limits before allocation, atomic replacement, one-line errors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "steelyard/framework/printable.h"

namespace steelyard {

// A regular file opened for reading; a named pipe, a device or a folder in its place is neither
// opened nor waited for. Everything wrong with it is an InputError that starts with its path.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // As the file was when opened, in bytes.
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  // Fills `into` from byte `offset`; throws InputError when the file ends before.
  void read(std::uint64_t offset, void* into, std::uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Whether the path exists, and whether it is a folder. Both throw InputError if that cannot be
// determined.
bool path_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

// The bytes of a regular file; throws InputError when it cannot be read or is longer than
// `max_bytes`, before anything is allocated.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// A file that appears under its name only once complete. It is written to `path` + ".tmp" (a
// leftover of a killed run is overwritten); commit() syncs it, renames it and syncs the folder, so
// that after a crash either the old or the new file is there. Without commit() the temporary is
// removed. Throws InputError when the temporary cannot be created, when another process is writing
// it, and when `path` is no regular file, which it would replace; std::runtime_error
// when the disk is full or writing fails.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::uint64_t bytes);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

// Replaces the file's contents through AtomicFile.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

}  // namespace steelyard
