#include "steelyard/framework/comm/collectives.h"

#include <bit>

#include "steelyard/framework/error.h"

namespace steelyard::comm {

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

std::vector<std::string> Collectives::all_gather(std::string_view bytes) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> sizes(ranks);
  sizes[static_cast<std::size_t>(rank())] = static_cast<std::int64_t>(bytes.size());
  all_reduce(std::span<std::int64_t>(sizes), Add{});
  std::vector<std::size_t> begin(ranks + 1);
  for (std::size_t i = 0; i < ranks; ++i) begin[i + 1] = begin[i] + sizes[i];

  std::string all(begin.back(), '\0');
  const auto own = static_cast<std::size_t>(rank());
  std::copy(bytes.begin(), bytes.end(), all.data() + begin[own]);
  const auto block = [&](std::size_t first, std::size_t count) {
    return std::as_writable_bytes(
        std::span<char>(all.data() + begin[first], begin[first + count] - begin[first]));
  };
  for (std::size_t distance = 1; distance < ranks; distance *= 2) {
    const std::size_t first = own & ~(distance - 1);  // of the ranks whose bytes are here
    exchange(rank() ^ static_cast<int>(distance), block(first, distance),
             block(first ^ distance, distance));
  }

  std::vector<std::string> result;
  for (std::size_t i = 0; i < ranks; ++i) {
    result.push_back(all.substr(begin[i], begin[i + 1] - begin[i]));
  }
  return result;
}

}  // namespace steelyard::comm
