// Reading and writing files: size limits before allocation, atomic replacement, one-line errors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "steelyard/framework/tensor/printable.h"

namespace steelyard {

// An open file or folder, closed at its end.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  // Below 0 where nothing is open.
  int get() const { return number_; }

 private:
  int number_;
};

// A regular file opened for reading; a named pipe, a device or a folder in its place is neither
// opened nor waited for. Everything wrong with it is an InputError that starts with its path.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  // The bytes of a file, which the caller keeps as long as this exists; `name` stands for its path.
  InputFile(std::string_view bytes, std::filesystem::path name)
      : path_(std::move(name)), bytes_(bytes), size_(bytes.size()) {}

  // As the file was when opened, in bytes.
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  // Fills `into` from byte `offset`; throws InputError when the file ends before.
  void read(std::uint64_t offset, void* into, std::uint64_t bytes) const;

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;   // of nothing where the bytes are in memory
  std::string_view bytes_;  // there
  std::uint64_t size_ = 0;
};

// Whether the path exists, and whether it is a folder. Both throw InputError if that cannot be
// determined.
bool path_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

// The bytes of a regular file; throws InputError when it cannot be read or is longer than
// `max_bytes`, before anything is allocated.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// A file that appears under its name only once complete. It is written beside it, as
// NAME.RANDOM.tmp: a new file, so that no link and no file of another user is ever written to.
// commit() syncs it, renames it and syncs the folder, so that after a crash either the old or the
// new file is there. Without commit() the temporary is removed; one that a killed process left is
// removed by the next that writes this file, if it is the same user's. Throws InputError when the
// temporary cannot be created, when another process of this user is writing the file, and when
// `path` is empty or no regular file, which it would replace; std::runtime_error when the disk is
// full or writing fails.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::uint64_t bytes);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  // Returns the complete file, for those who write more behind its end.
  Descriptor commit();

 private:
  std::filesystem::path path_;
  Descriptor folder_;
  std::string temporary_;  // its name there, empty once it is renamed
  Descriptor file_;
};

// A file that begins as an AtomicFile and gets more behind its end. It stays the same file whatever
// its name comes to stand for. Throws as AtomicFile does.
class GrowingFile {
 public:
  GrowingFile(const std::filesystem::path& path, std::string_view beginning);
  void append(std::string_view bytes);

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

// Opens a file to write behind its end, a new one where there is none. Throws InputError for links,
// hard ones too: they may lead to a file that this user would not write to.
Descriptor open_to_append(const std::filesystem::path& path);

// Replaces the file's contents through AtomicFile.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

}  // namespace steelyard
