#include "steelyard/framework/files/gzip_file.h"

#include <zlib.h>

#include <algorithm>
#include <new>

namespace steelyard {
namespace {

constexpr std::uint64_t kBufferBytes = 1 << 17;
constexpr std::uint64_t kLargestPiece = 1 << 30;  // zlib counts in 32 bits
constexpr int kGzipWindowBits = 15 + 16;          // the largest window, gzip's header and checksum

}  // namespace

GzipFile::GzipFile(const std::filesystem::path& path)
    : file_(std::make_shared<const InputFile>(path)), stream_(std::make_unique<z_stream>()) {
  unsigned char magic[2] = {};
  if (file_->size() >= sizeof magic) file_->read(0, magic, sizeof magic);
  packed_ = magic[0] == 0x1F && magic[1] == 0x8B;
  if (!packed_) return;
  buffer_.resize(std::min(kBufferBytes, file_->size()));
  if (inflateInit2(stream_.get(), kGzipWindowBits) != Z_OK) throw std::bad_alloc();
}

GzipFile::~GzipFile() {
  if (packed_) inflateEnd(stream_.get());
}

std::uint64_t GzipFile::read(void* into, std::uint64_t bytes) {
  if (packed_) return unpack(into, bytes);
  const std::uint64_t there = std::min(bytes, file_->size() - offset_);
  if (there > 0) file_->read(offset_, into, there);
  offset_ += there;
  return there;
}

void GzipFile::rewind() {
  offset_ = 0;
  problem_.clear();
  if (!packed_) return;
  between_streams_ = true;
  stream_->avail_in = 0;
}

bool GzipFile::fill() {
  if (stream_->avail_in > 0) return true;
  const std::uint64_t there = std::min<std::uint64_t>(buffer_.size(), file_->size() - offset_);
  if (there == 0) return false;
  file_->read(offset_, buffer_.data(), there);
  offset_ += there;
  stream_->next_in = buffer_.data();
  stream_->avail_in = static_cast<unsigned>(there);
  return true;
}

std::uint64_t GzipFile::unpack(void* into, std::uint64_t bytes) {
  std::uint64_t done = 0;
  while (done < bytes && problem_.empty()) {
    if (!fill()) {
      if (!between_streams_) problem_ = "unexpected end of file";
      break;
    }
    if (between_streams_) inflateReset(stream_.get());
    const auto piece = static_cast<unsigned>(std::min(bytes - done, kLargestPiece));
    stream_->next_out = static_cast<unsigned char*>(into) + done;
    stream_->avail_out = piece;
    const int code = inflate(stream_.get(), Z_NO_FLUSH);
    done += piece - stream_->avail_out;
    between_streams_ = code == Z_STREAM_END;
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      problem_ = stream_->msg != nullptr ? stream_->msg : "damaged";
    }
  }
  return done;
}

}  // namespace steelyard
