#include "steelyard/framework/data/dataset_digest.h"

#include <algorithm>
#include <future>
#include <string_view>
#include <vector>

#include "steelyard/framework/sha256.h"
#include "steelyard/kernels/backend.h"

namespace steelyard {
namespace {

using Pieces = std::vector<std::string_view>;

void add_pieces(const Tensor& tensor, Pieces& pieces) {
  const auto* bytes = static_cast<const char*>(tensor.raw());
  for (std::int64_t at = 0; at < tensor.bytes(); at += kDigestPieceBytes) {
    const std::int64_t size = std::min(kDigestPieceBytes, tensor.bytes() - at);
    pieces.emplace_back(bytes + at, static_cast<std::size_t>(size));
  }
}

// The digest of each piece, by all threads.
std::vector<std::string> digests_of(const Pieces& pieces) {
  std::vector<std::string> digests(pieces.size());
  const auto threads = std::min<std::size_t>(pieces.size(), kernels::num_threads());
  std::vector<std::future<void>> workers;
  for (std::size_t first = 0; first < threads; ++first) {
    workers.push_back(std::async(std::launch::async, [&, first] {
      for (std::size_t i = first; i < pieces.size(); i += threads) {
        digests[i] = sha256_of(pieces[i]);
      }
    }));
  }
  for (std::future<void>& worker : workers) worker.get();
  return digests;
}

}  // namespace

std::string digest_of(std::span<const Dataset> datasets) {
  Pieces pieces;
  std::string all;
  for (const Dataset& dataset : datasets) {
    if (dataset.size() == 0) continue;
    for (const Tensor& tensor : {dataset.inputs, dataset.targets}) {
      all += std::string(dtype_name(tensor.dtype())) + shape_string(tensor.shape()) + "\n";
      add_pieces(tensor, pieces);
    }
  }
  for (const std::string& digest : digests_of(pieces)) all += digest + "\n";
  return sha256_of(all);
}

}  // namespace steelyard
