#include "framework/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "framework/error.h"
#include "framework/folders.h"

namespace steelyard {
namespace {

constexpr std::uint64_t kLargestTransfer = std::uint64_t{1} << 30;  // read(2) ends near 2 GiB

std::string errno_text() { return std::generic_category().message(errno); }

std::string problem(const std::filesystem::path& path, const std::string& what) {
  return printable(path.string()) + ": " + what;
}

// Bytes of the UTF-8 character that `text` starts with; 0 where there is none.
std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

// File systems that cannot sync a folder say EINVAL or ENOTSUP: then there is nothing to wait for.
void sync_folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    throw std::runtime_error(problem(folder, "cannot open the folder: " + errno_text()));
  }
  const bool failed = ::fsync(descriptor) != 0 && errno != EINVAL && errno != ENOTSUP;
  const std::string reason = failed ? errno_text() : "";
  ::close(descriptor);
  if (failed) throw std::runtime_error(problem(folder, "cannot sync the folder: " + reason));
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= max_bytes) return out + "...";
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t length = character_bytes(text.substr(i));
    if (length > 0 && c >= 0x20 && c != 0x7F) {
      out += text.substr(i, length);
      i += length;
    } else {
      out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
      ++i;
    }
  }
  return out;
}

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: opening a named pipe must not wait for its writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw InputError(problem(path, "cannot open: " + errno_text()));
  struct stat info = {};
  if (::fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(descriptor_);
    throw InputError(problem(path, "expected a regular file"));
  }
  size_ = static_cast<std::uint64_t>(info.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, void* into, std::uint64_t bytes) const {
  auto* out = static_cast<char*>(into);
  std::uint64_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(descriptor_, out + done, std::min(bytes - done, kLargestTransfer),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw InputError(problem(path_, "cannot read: " + errno_text()));
    if (got == 0) {
      throw InputError(problem(path_, "expected " + std::to_string(bytes) + " bytes at offset " +
                                          std::to_string(offset) + ", the file ends after " +
                                          std::to_string(done)));
    }
    done += static_cast<std::uint64_t>(got);
  }
}

std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const InputFile file(path);
  if (file.size() > max_bytes) {
    throw InputError(problem(path, "expected at most " + std::to_string(max_bytes) +
                                       " bytes, got " + std::to_string(file.size())));
  }
  std::string bytes(file.size(), '\0');
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path), temporary_(path) {
  temporary_ += ".tmp";
  descriptor_ =
      ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) throw_cannot_create(temporary_, {errno, std::generic_category()});
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::uint64_t bytes) {
  const auto* in = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(descriptor_, in, std::min(bytes, kLargestTransfer));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw std::runtime_error(problem(temporary_, "cannot write: " + errno_text()));
    in += done;
    bytes -= static_cast<std::uint64_t>(done);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) {
    throw std::runtime_error(problem(temporary_, "cannot sync: " + errno_text()));
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw std::runtime_error(problem(path_, "cannot rename the finished file: " + errno_text()));
  }
  ::close(descriptor_);
  descriptor_ = -1;
  sync_folder_of(path_);
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace steelyard
