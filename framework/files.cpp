#include "steelyard/framework/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "steelyard/framework/error.h"
#include "steelyard/framework/folders.h"
#include "steelyard/framework/memory_error.h"

namespace steelyard {
namespace {

constexpr std::uint64_t kLargestTransfer = std::uint64_t{1} << 30;  // read(2) ends near 2 GiB

std::string errno_text() { return std::generic_category().message(errno); }

std::string problem(const std::filesystem::path& path, const std::string& what) {
  return printable(path.string()) + ": " + what;
}

// What something is that is no regular file.
std::string kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

void require_regular(const std::filesystem::path& path, const struct stat& info) {
  if (S_ISREG(info.st_mode)) return;
  throw InputError(problem(path, "expected a regular file, got " + kind_name(info.st_mode)));
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

// Whether the name still leads to the open file, which its writer may have renamed meanwhile.
bool is_still_at(const std::filesystem::path& path, int descriptor) {
  struct stat named = {};
  struct stat open = {};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(descriptor, &open) == 0 &&
         named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

// An empty file of one's own: two processes that write one temporary would mix their bytes. File
// systems without locks are used without.
int open_locked(const std::filesystem::path& path) {
  while (true) {
    const int descriptor =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (descriptor < 0) throw_cannot_create(path, {errno, std::generic_category()});
    const bool busy = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!busy && is_still_at(path, descriptor) && ::ftruncate(descriptor, 0) == 0) {
      return descriptor;
    }
    const std::string reason = busy ? "another process is writing it" : errno_text();
    const bool moved = !busy && !is_still_at(path, descriptor);
    ::close(descriptor);
    if (!moved) throw InputError(problem(path, "cannot create: " + reason));
  }
}

}  // namespace

bool path_exists(const std::filesystem::path& path) {
  std::error_code error;
  const bool found = std::filesystem::exists(path, error);
  if (error) throw InputError(problem(path, error.message()));
  return found;
}

bool is_folder(const std::filesystem::path& path) {
  return path_exists(path) && std::filesystem::is_directory(path);
}

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // Before opening, which has an effect on some devices.
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    throw InputError(problem(path, "cannot open: " + errno_text()));
  }
  require_regular(path, info);
  // O_NONBLOCK: should it be a named pipe by now, opening must not wait for its writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw InputError(problem(path, "cannot open: " + errno_text()));
  try {
    if (::fstat(descriptor_, &info) != 0) {
      throw InputError(problem(path, "cannot open: " + errno_text()));
    }
    require_regular(path, info);
  } catch (...) {
    ::close(descriptor_);
    throw;
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
  return with_memory_for(problem(path, std::to_string(file.size()) + " bytes"), [&] {
    std::string bytes(file.size(), '\0');
    file.read(0, bytes.data(), bytes.size());
    return bytes;
  });
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path), temporary_(path) {
  temporary_ += ".tmp";
  struct stat info = {};
  for (const auto& taken : {path_, temporary_}) {
    if (::stat(taken.c_str(), &info) == 0) require_regular(taken, info);
  }
  descriptor_ = open_locked(temporary_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::unlink(temporary_.c_str());  // while it is locked: afterwards it may be another process's
  ::close(descriptor_);
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
