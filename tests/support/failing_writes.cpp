// Preloaded into the program under test: below $FAILING_FOLDER the disk is full from operation
// $FAILING_FROM on, counted from 0 over new files and folders, writes, syncs and renames.
// $FAILING_LOG gets a line about the first that failed. A write that fails first writes half of its
// bytes, as a disk that becomes full does.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace {

enum class Outcome { kDone, kFirstFailure, kFailure };

std::string setting(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}

template <typename F>
F* real(F* /*interposed*/, const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

bool is_below_folder(const std::string& path) {
  std::error_code ignored;
  const std::string folder = setting("FAILING_FOLDER");
  return !folder.empty() && std::filesystem::absolute(path, ignored).string().starts_with(folder);
}

void log_failure(const std::string& line) {
  static const auto kWrite = real(&::write, "write");
  const int descriptor = creat(setting("FAILING_LOG").c_str(), 0666);
  if (descriptor < 0) return;
  if (kWrite(descriptor, line.data(), line.size()) < 0) std::abort();
  close(descriptor);
}

Outcome outcome(const char* operation, const std::string& path) {
  static std::atomic<long> operations{0};
  const std::string first = setting("FAILING_FROM");
  if (first.empty() || !is_below_folder(path)) return Outcome::kDone;
  const long number = operations++;
  if (number < std::atol(first.c_str())) return Outcome::kDone;
  if (number > std::atol(first.c_str())) return Outcome::kFailure;
  log_failure(std::string(operation) + " " + path + "\n");
  return Outcome::kFirstFailure;
}

// "" where the system does not say it.
std::filesystem::path path_of(int descriptor) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), ignored);
}

Outcome outcome(const char* operation, int descriptor) {
  const auto path = path_of(descriptor);
  return path.empty() ? Outcome::kDone : outcome(operation, path.string());
}

template <typename F>
auto unless_full(Outcome outcome, const F& f) -> decltype(f()) {
  if (outcome == Outcome::kDone) return f();
  errno = ENOSPC;
  return -1;
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, size_t bytes) {
  static const auto kWrite = real(&::write, "write");
  const Outcome result = outcome("write", descriptor);
  if (result == Outcome::kFirstFailure && bytes > 1) return kWrite(descriptor, data, bytes / 2);
  return unless_full(result, [&] { return kWrite(descriptor, data, bytes); });
}

ssize_t writev(int descriptor, const iovec* parts, int count) {
  static const auto kWritev = real(&::writev, "writev");
  return unless_full(outcome("writev", descriptor),
                     [&] { return kWritev(descriptor, parts, count); });
}

int fsync(int descriptor) {
  static const auto kFsync = real(&::fsync, "fsync");
  return unless_full(outcome("fsync", descriptor), [&] { return kFsync(descriptor); });
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  static const auto kRenameat = real(&::renameat, "renameat");
  return unless_full(outcome("rename", (path_of(to_folder) / to).string()),
                     [&] { return kRenameat(from_folder, from, to_folder, to); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto kMkdir = real(&::mkdir, "mkdir");
  return unless_full(outcome("mkdir", path), [&] { return kMkdir(path, mode); });
}

int open(const char* path, int flags, ...) {
  static const auto kOpen = real(&::open, "open");
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    std::va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  const bool creates = (flags & O_CREAT) != 0 && access(path, F_OK) != 0;
  return unless_full(creates ? outcome("create", path) : Outcome::kDone,
                     [&] { return kOpen(path, flags, mode); });
}

int openat(int folder, const char* name, int flags, ...) {
  static const auto kOpenat = real(&::openat, "openat");
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    std::va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  const bool creates = (flags & O_CREAT) != 0;  // of files that are new by their names
  return unless_full(
      creates ? outcome("create", (path_of(folder) / name).string()) : Outcome::kDone,
      [&] { return kOpenat(folder, name, flags, mode); });
}

}  // extern "C"
