#include "steelyard/framework/files/gguf/gguf.h"

#include <algorithm>
#include <stdexcept>

namespace steelyard {
namespace {

constexpr std::uint64_t kCopiedAtOnce = std::uint64_t{1} << 20;

std::uint64_t alignment_of(const std::vector<GgufEntry>& entries) {
  for (const GgufEntry& entry : entries) {
    if (entry.key == "general.alignment") {
      return static_cast<std::uint64_t>(*entry.value.whole_number());
    }
  }
  return kGgufAlignment;
}

}  // namespace

GgufReader::GgufReader(const std::filesystem::path& path)
    : file_(std::make_shared<const InputFile>(path)),
      header_(
          parse_gguf_header(printable(path.string()), *range_of_file(file_, 0, file_->size()))) {}

const GgufTensor* GgufReader::find(std::string_view name) const {
  const auto found = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                  [&](const GgufTensor& t) { return t.name == name; });
  return found == header_.tensors.end() ? nullptr : &*found;
}

std::shared_ptr<const ByteRange> GgufReader::bytes_of(const GgufTensor& tensor) const {
  return range_of_file(file_, header_.data_begin + tensor.offset, tensor.bytes());
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const std::vector<GgufEntry>& entries,
                       std::vector<GgufTensor> tensors)
    : tensors_(std::move(tensors)), alignment_(kGgufAlignment), file_(path) {
  const std::string header = encode_gguf_header(entries, tensors_);
  alignment_ = alignment_of(entries);
  file_.write(header);
}

void GgufWriter::write(const void* bytes, std::uint64_t count) {
  const auto* from = static_cast<const char*>(bytes);
  while (count > 0) {
    if (current_ == tensors_.size()) {
      throw std::invalid_argument("[gguf] " + std::to_string(count) +
                                  " bytes behind the last tensor's end");
    }
    const std::uint64_t now = std::min(count, tensors_[current_].bytes() - written_);
    file_.write(from, now);
    from += now;
    count -= now;
    written_ += now;
    pad_ended_tensors();
  }
}

void GgufWriter::write(const ByteRange& bytes) {
  std::string part(std::min(bytes.size(), kCopiedAtOnce), '\0');
  for (std::uint64_t done = 0; done < bytes.size();) {
    const std::uint64_t now = std::min<std::uint64_t>(part.size(), bytes.size() - done);
    bytes.read(done, part.data(), now);
    write(part.data(), now);
    done += now;
  }
}

void GgufWriter::pad_ended_tensors() {
  const std::uint64_t bytes = tensors_[current_].bytes();
  if (written_ < bytes) return;
  file_.write(std::string(gguf_padded(bytes, alignment_) - bytes, '\0'));
  ++current_;
  written_ = 0;
}

void GgufWriter::commit() {
  if (current_ < tensors_.size()) {
    const GgufTensor& tensor = tensors_[current_];
    throw std::invalid_argument("[gguf] tensor '" + printable(tensor.name) + "': expected " +
                                std::to_string(tensor.bytes()) + " bytes, got " +
                                std::to_string(written_));
  }
  file_.commit();
}

}  // namespace steelyard
