#include "steelyard/framework/comm/collectives.h"

#include <bit>
#include <stdexcept>

#include "steelyard/framework/tensor/error.h"

namespace steelyard::comm {

void require_length(int rank, std::uint64_t bytes, Lengths expected) {
  if (bytes >= expected.least && bytes <= expected.most) return;
  throw std::runtime_error(
      "rank " + std::to_string(rank) + " announces " + std::to_string(bytes) + " bytes, expected " +
      (expected.least == expected.most ? "" : "at most ") + std::to_string(expected.most));
}

Collectives::Collectives(Transport& transport, std::size_t piece_bytes)
    : transport_(transport), piece_bytes_(std::max<std::size_t>(piece_bytes, 1)) {
  if (!std::has_single_bit(static_cast<unsigned>(size()))) {
    throw InputError("the number of ranks must be a power of two, got " + std::to_string(size()));
  }
}

void Collectives::exchange(int peer, std::span<const std::byte> send,
                           std::span<std::byte> receive) {
  bytes_sent_ += static_cast<std::int64_t>(send.size());
  while (!send.empty() || !receive.empty()) {
    const auto sent = send.first(std::min(piece_bytes_, send.size()));
    const auto received = receive.first(std::min(piece_bytes_, receive.size()));
    transport_.exchange(peer, sent, received);
    send = send.subspan(sent.size());
    receive = receive.subspan(received.size());
  }
}

// A binomial tree: in each round the ranks that have the bytes send them on, half as far each time.
void Collectives::broadcast(std::span<std::byte> bytes, int root) {
  const int place = rank() ^ root;  // of this rank, where the root's is 0
  for (int distance = size() / 2; distance > 0; distance /= 2) {
    if (place % distance != 0) continue;
    const int peer = rank() ^ distance;
    if ((place & distance) == 0) {
      exchange(peer, bytes, {});
    } else {
      exchange(peer, {}, bytes);
    }
  }
}

void Collectives::double_blocks(const std::function<std::span<std::byte>(Block)>& bytes_of) {
  const auto own = static_cast<std::size_t>(rank());
  for (std::size_t distance = 1; distance < static_cast<std::size_t>(size()); distance *= 2) {
    const std::size_t first = own & ~(distance - 1);  // of the ranks whose bytes are here
    exchange(rank() ^ static_cast<int>(distance), bytes_of({first, distance}),
             bytes_of({first ^ distance, distance}));
  }
}

std::vector<std::string> Collectives::all_gather(std::string_view bytes, Lengths expected) {
  const auto ranks = static_cast<std::size_t>(size());
  const auto own = static_cast<std::size_t>(rank());
  // Not a sum: no rank can change what this one says of itself.
  std::vector<std::uint64_t> sizes(ranks);
  sizes[own] = bytes.size();
  double_blocks([&](Block block) {
    return std::as_writable_bytes(std::span(sizes).subspan(block.first, block.count));
  });
  std::vector<std::size_t> begin(ranks + 1);
  for (std::size_t i = 0; i < ranks; ++i) {
    require_length(static_cast<int>(i), sizes[i], expected);
    begin[i + 1] = begin[i] + sizes[i];
  }

  std::string all(begin.back(), '\0');
  std::copy(bytes.begin(), bytes.end(), all.data() + begin[own]);
  double_blocks([&](Block block) {
    const std::size_t size = begin[block.first + block.count] - begin[block.first];
    return std::as_writable_bytes(std::span<char>(all.data() + begin[block.first], size));
  });

  std::vector<std::string> result;
  for (std::size_t i = 0; i < ranks; ++i) {
    result.push_back(all.substr(begin[i], begin[i + 1] - begin[i]));
  }
  return result;
}

}  // namespace steelyard::comm
