// A file that is read from its beginning, unpacked where it is gzip.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/files/files.h"

struct z_stream_s;  // of zlib

namespace steelyard {

// No deflate stream expands by more (zlib's technical notes): bounds what a file claims.
inline constexpr std::uint64_t kDeflateRatio = 1032;

// Plain files are passed on as they are. Unlike gzread(), nothing after a gzip stream but another
// one is passed over. (https://www.rfc-editor.org/rfc/rfc1952)
class GzipFile {
 public:
  // Throws InputError as InputFile does.
  explicit GzipFile(const std::filesystem::path& path);
  ~GzipFile();
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  // As it is shown in messages.
  std::string name() const { return printable(file_->path().string()); }
  bool is_packed() const { return packed_; }
  // As it is stored.
  const std::shared_ptr<const InputFile>& file() const { return file_; }
  std::uint64_t stored_bytes() const { return file_->size(); }
  // Fills `into` as far as there is data; returns the number of bytes.
  std::uint64_t read(void* into, std::uint64_t bytes);
  void rewind();
  // The reason why the last read ended early: " (incorrect header check)"; "" at the end of the
  // data.
  std::string reason() const { return problem_.empty() ? "" : " (" + printable(problem_) + ")"; }

 private:
  std::uint64_t unpack(void* into, std::uint64_t bytes);
  // Makes packed bytes available; false at the end of the file.
  bool fill();

  std::shared_ptr<const InputFile> file_;
  std::uint64_t offset_ = 0;  // of what was not read yet
  bool packed_ = false;
  bool between_streams_ = true;
  std::unique_ptr<z_stream_s> stream_;
  std::vector<unsigned char> buffer_;
  std::string problem_;
};

}  // namespace steelyard
