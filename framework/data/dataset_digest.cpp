#include "steelyard/framework/data/dataset_digest.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "steelyard/framework/data/parallel.h"
#include "steelyard/framework/files/sha256.h"

namespace steelyard {
namespace {

using Pieces = std::vector<std::function<std::string()>>;

void add_pieces(const Tensor& tensor, Pieces& pieces) {
  const auto* bytes = static_cast<const char*>(tensor.raw());
  for (std::int64_t at = 0; at < tensor.bytes(); at += kDigestPieceBytes) {
    const std::int64_t size = std::min(kDigestPieceBytes, tensor.bytes() - at);
    pieces.emplace_back([piece = std::string_view(bytes + at, static_cast<std::size_t>(size))] {
      return sha256_of(piece);
    });
  }
}

// The digest of the bytes [begin, end) of all samples in a row: as of a tensor that holds them.
std::string digest_of_bytes(const SampleSource& source, std::int64_t begin, std::int64_t end) {
  const std::int64_t bytes = sample_bytes(source);
  std::vector<char> sample(static_cast<std::size_t>(bytes));
  Sha256 hash;
  for (std::int64_t i = begin / bytes; i * bytes < end; ++i) {
    source.read(i, nullptr, sample.data());
    const std::int64_t from = std::max<std::int64_t>(begin - i * bytes, 0);
    const std::int64_t to = std::min(end - i * bytes, bytes);
    hash.update(sample.data() + from, static_cast<std::size_t>(to - from));
  }
  return hash.hex();
}

// The digest of what the samples [begin, end) are read from.
std::string digest_of_contents(const SampleSource& source, std::int64_t begin, std::int64_t end) {
  Sha256 hash;
  for (std::int64_t i = begin; i < end; ++i) hash.update(source.content_digest(i));
  return hash.hex();
}

void add_pieces(const SampleSource& source, Pieces& pieces) {
  constexpr std::int64_t kContents = 64;
  const bool contents = !source.content_digest(0).empty();
  const std::int64_t size = contents ? source.size() : source.size() * sample_bytes(source);
  const std::int64_t piece = contents ? kContents : kDigestPieceBytes;
  for (std::int64_t at = 0; at < size; at += piece) {
    pieces.emplace_back([&source, contents, at, end = std::min(at + piece, size)] {
      return contents ? digest_of_contents(source, at, end) : digest_of_bytes(source, at, end);
    });
  }
}

std::string header_of(DType dtype, const Shape& shape) {
  return std::string(dtype_name(dtype)) + shape_string(shape) + "\n";
}

}  // namespace

std::string digest_of(std::span<const Dataset> datasets) {
  Pieces pieces;
  std::string all;
  for (const Dataset& dataset : datasets) {
    if (dataset.size() == 0) continue;
    Shape shape = dataset.sample_shape();
    shape.insert(shape.begin(), dataset.size());
    all += header_of(dataset.dtype(), shape);
    if (dataset.source) {
      add_pieces(*dataset.source, pieces);
    } else {
      add_pieces(dataset.inputs, pieces);
    }
    all += header_of(dataset.targets.dtype(), dataset.targets.shape());
    add_pieces(dataset.targets, pieces);
  }
  std::vector<std::string> digests(pieces.size());
  in_parallel(std::ssize(pieces), [&](std::int64_t i) {
    const auto p = static_cast<std::size_t>(i);
    digests[p] = pieces[p]();
  });
  for (const std::string& digest : digests) all += digest + "\n";
  return sha256_of(all);
}

}  // namespace steelyard
