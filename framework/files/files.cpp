#include "steelyard/framework/files/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/memory_error.h"

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

void write_all(const Descriptor& file, const void* data, std::uint64_t bytes,
               const std::filesystem::path& path) {
  const auto* in = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(file.get(), in, std::min(bytes, kLargestTransfer));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw std::runtime_error(problem(path, "cannot write: " + errno_text()));
    in += done;
    bytes -= static_cast<std::uint64_t>(done);
  }
}

Descriptor open_folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) throw_cannot_create(path, {errno, std::generic_category()});
  return opened;
}

// Whether the name in the folder still leads to the open file.
bool is_still_at(const Descriptor& folder, const std::string& name, const Descriptor& file) {
  struct stat named = {};
  struct stat open = {};
  return ::fstatat(folder.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::fstat(file.get(), &open) == 0 && named.st_dev == open.st_dev &&
         named.st_ino == open.st_ino;
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (::getentropy(&number, sizeof number) != 0) {
    throw std::system_error(errno, std::generic_category(), "getentropy");
  }
  return number;
}

// "NAME.0123456789ab.tmp".
constexpr std::size_t kRandomDigits = 12;
constexpr std::string_view kTemporaryEnd = ".tmp";

std::string temporary_name(const std::string& name) {
  constexpr std::uint64_t kMask = (std::uint64_t{1} << (4 * kRandomDigits)) - 1;
  char digits[kRandomDigits + 1];
  std::snprintf(digits, sizeof digits, "%012llx",
                static_cast<unsigned long long>(random_number() & kMask));
  return name + "." + digits + std::string(kTemporaryEnd);
}

bool is_temporary_of(const std::string& name, std::string_view entry) {
  const std::string prefix = name + ".";
  return entry.size() == prefix.size() + kRandomDigits + kTemporaryEnd.size() &&
         entry.starts_with(prefix) && entry.ends_with(kTemporaryEnd) &&
         entry.substr(prefix.size(), kRandomDigits).find_first_not_of("0123456789abcdef") ==
             std::string_view::npos;
}

// The temporaries of a file, complete or not.
std::vector<std::string> temporaries_of(const std::string& name, const Descriptor& folder) {
  std::vector<std::string> found;
  const int again = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(again), ::closedir);
  if (!entries) return found;
  while (const dirent* entry = ::readdir(entries.get())) {
    if (is_temporary_of(name, entry->d_name)) found.emplace_back(entry->d_name);
  }
  return found;
}

// Whether another process writes the file whose temporary is `own`. Of those that no process holds
// any more, the leftovers of killed ones, the names are removed. Only files of the same user count:
// anybody may put others into a shared folder.
bool has_another_writer(const std::string& name, const Descriptor& folder, const std::string& own,
                        const Descriptor& file) {
  struct stat mine = {};
  if (::fstat(file.get(), &mine) != 0) return false;
  for (const std::string& temporary : temporaries_of(name, folder)) {
    struct stat info = {};
    if (temporary == own ||
        ::fstatat(folder.get(), temporary.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode) || info.st_uid != mine.st_uid) {
      continue;
    }
    const Descriptor other(
        ::openat(folder.get(), temporary.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (other.get() < 0) continue;
    if (::flock(other.get(), LOCK_EX | LOCK_NB) == 0) {
      if (is_still_at(folder, temporary, other)) ::unlinkat(folder.get(), temporary.c_str(), 0);
    } else if (errno == EWOULDBLOCK) {
      return true;
    }
  }
  return false;
}

// Two that begin at once both give way, and try again after different times.
constexpr int kAttempts = 5;
void give_way() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1 + random_number() % 16));
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

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // Before opening, which has an effect on some devices.
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    throw InputError(problem(path, "cannot open: " + errno_text()));
  }
  require_regular(path, info);
  // O_NONBLOCK: should it be a named pipe by now, opening must not wait for its writer.
  descriptor_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor_.get() < 0 || ::fstat(descriptor_.get(), &info) != 0) {
    throw InputError(problem(path, "cannot open: " + errno_text()));
  }
  require_regular(path, info);
  size_ = static_cast<std::uint64_t>(info.st_size);
}

void InputFile::read(std::uint64_t offset, void* into, std::uint64_t bytes) const {
  auto* out = static_cast<char*>(into);
  const auto take = [&](std::uint64_t at, std::uint64_t count) -> ssize_t {
    if (descriptor_.get() >= 0) {
      return ::pread(descriptor_.get(), out + (at - offset), std::min(count, kLargestTransfer),
                     static_cast<off_t>(at));
    }
    if (at >= bytes_.size()) return 0;
    return static_cast<ssize_t>(bytes_.copy(out + (at - offset), count, at));
  };
  std::uint64_t done = 0;
  while (done < bytes) {
    const ssize_t got = take(offset + done, bytes - done);
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

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  if (path.empty()) throw InputError("expected the path of a file to write, got an empty path");
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0) require_regular(path, info);
  folder_ = open_folder_of(path);
  const std::string name = path.filename();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 0) give_way();
    const std::string temporary = temporary_name(name);
    Descriptor file(::openat(folder_.get(), temporary.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (file.get() < 0 && errno == EEXIST) continue;
    if (file.get() < 0) throw_cannot_create(path, {errno, std::generic_category()});
    // File systems without locks are used without.
    const bool busy = ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    // Another process may have taken it for a leftover before it was locked.
    if (busy || !is_still_at(folder_, temporary, file)) continue;
    if (!has_another_writer(name, folder_, temporary, file)) {
      temporary_ = temporary;
      file_ = std::move(file);
      return;
    }
    ::unlinkat(folder_.get(), temporary.c_str(), 0);
  }
  throw InputError(problem(path, "cannot create: another process is writing it"));
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlinkat(folder_.get(), temporary_.c_str(), 0);
}

void AtomicFile::write(const void* data, std::uint64_t bytes) {
  write_all(file_, data, bytes, path_);
}

Descriptor AtomicFile::commit() {
  if (::fsync(file_.get()) != 0) {
    throw std::runtime_error(problem(path_, "cannot sync: " + errno_text()));
  }
  if (::renameat(folder_.get(), temporary_.c_str(), folder_.get(), path_.filename().c_str()) != 0) {
    throw std::runtime_error(problem(path_, "cannot rename the finished file: " + errno_text()));
  }
  temporary_.clear();
  // What file systems say that cannot sync a folder: then there is nothing to wait for.
  if (::fsync(folder_.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    throw std::runtime_error(problem(path_, "cannot sync its folder: " + errno_text()));
  }
  return std::move(file_);
}

GrowingFile::GrowingFile(const std::filesystem::path& path, std::string_view beginning)
    : path_(path) {
  AtomicFile file(path);
  file.write(beginning);
  file_ = file.commit();
}

void GrowingFile::append(std::string_view bytes) {
  write_all(file_, bytes.data(), bytes.size(), path_);
}

Descriptor open_to_append(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a named pipe must not wait for its reader.
  Descriptor file(::open(
      path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  struct stat info = {};
  if (file.get() < 0 && errno == ELOOP) {
    throw InputError(problem(path, "expected a regular file, got a symbolic link"));
  }
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) {
    throw_cannot_create(path, {errno, std::generic_category()});
  }
  require_regular(path, info);
  if (info.st_nlink > 1) {
    throw InputError(problem(path, "expected a file of one name, got a hard link"));
  }
  return file;
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace steelyard
