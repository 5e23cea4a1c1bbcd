// Collective operations above Transport::exchange(). The number of ranks is a power of two.
//
// all_reduce() is the same binary tree for every number of ranks: first neighbours are combined,
// then pairs of neighbours, and so on. Where each rank brings the sum of an aligned subtree
// (shard_sum.h), the bits of the result do not depend on how many ranks there are. Combining is
// element by element, so they do not depend on how the elements are cut into messages either; and
// it must be commutative, so that both ranks of a pair get equal bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "steelyard/framework/comm/transport.h"

namespace steelyard::comm {

// The sum, as collectives combine it. One thread adds: it shares the machine with the threads that
// compute the next gradients.
struct Add {
  template <typename T>
  void operator()(std::span<T> mine, std::span<const T> theirs) const {
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += theirs[i];
  }
};

// How many bytes a rank may send.
struct Lengths {
  std::size_t least = 0, most = 0;
};

// Throws std::runtime_error that names the rank if it announces another length: before anything is
// allocated for it.
void require_length(int rank, std::uint64_t bytes, Lengths expected);

class Collectives {
 public:
  // No message is longer than `piece_bytes`. Throws InputError when the number of ranks is not a
  // power of two.
  Collectives(Transport& transport, std::size_t piece_bytes);

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  std::int64_t bytes_sent() const { return bytes_sent_; }

  // Every rank's `data` becomes the combination of all ranks' data; their sizes are equal.
  // combine(mine, theirs): mine[i] becomes the combination of both, for spans of equal sizes.
  template <typename T, class Combine>
  void all_reduce(std::span<T> data, Combine combine);
  // all_reduce() of many arrays, which share messages.
  template <typename T, class Combine>
  void all_reduce(const std::vector<std::span<T>>& arrays, Combine combine);

  // Every rank's bytes become the root's; their sizes are equal.
  void broadcast(std::span<std::byte> bytes, int root);
  // What every rank gave, in rank order; each of `expected` lengths, or as require_length().
  std::vector<std::string> all_gather(std::string_view bytes, Lengths expected);

 private:
  // Up to this size it pays to send everything in log2(N) messages in place of twice as many.
  static constexpr std::size_t kSmallBytes = 16384;
  static constexpr int kReceived = 0, kPacked = 1;  // of the transport's scratch memory

  // Ranks [first, first + count).
  struct Block {
    std::size_t first, count;
  };

  void exchange(int peer, std::span<const std::byte> send, std::span<std::byte> receive);
  // Every rank's bytes reach all: in each round a pair exchanges the blocks that it has.
  void double_blocks(const std::function<std::span<std::byte>(Block)>& bytes_of);
  template <typename T, class Combine>
  void double_up(std::span<T> data, Combine combine);
  template <typename T, class Combine>
  void halve_and_double(std::span<T> data, Combine combine);
  template <typename T>
  std::span<T> scratch(int which, std::size_t count);
  template <typename T>
  void copy(T* to, const T* from, std::size_t count);

  Transport& transport_;
  std::size_t piece_bytes_;
  std::int64_t bytes_sent_ = 0;
};

template <typename T>
std::span<T> Collectives::scratch(int which, std::size_t count) {
  return {reinterpret_cast<T*>(transport_.scratch(which, count * sizeof(T))), count};
}

template <typename T>
void Collectives::copy(T* to, const T* from, std::size_t count) {
  transport_.copy(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                  count * sizeof(T));
}

// Recursive doubling: in each round everything is exchanged with the neighbour of that distance.
template <typename T, class Combine>
void Collectives::double_up(std::span<T> data, Combine combine) {
  const std::span<T> theirs = scratch<T>(kReceived, data.size());
  for (int distance = 1; distance < size(); distance *= 2) {
    exchange(rank() ^ distance, std::as_bytes(data), std::as_writable_bytes(theirs));
    combine(data, std::span<const T>(theirs));
  }
}

// Recursive halving, then doubling: in each round a pair divides what it has between its two ranks,
// and afterwards they tell one another the results. 2 (N - 1) / N of the bytes are sent.
template <typename T, class Combine>
void Collectives::halve_and_double(std::span<T> data, Combine combine) {
  struct Halves {
    std::span<T> mine, theirs;
  };
  std::vector<Halves> rounds;
  std::span<T> held = data;
  for (int distance = 1; distance < size(); distance *= 2) {
    std::span<T> low = held.first(held.size() / 2);
    std::span<T> high = held.subspan(held.size() / 2);
    if ((rank() & distance) != 0) std::swap(low, high);
    const std::span<T> received = scratch<T>(kReceived, low.size());
    exchange(rank() ^ distance, std::as_bytes(high), std::as_writable_bytes(received));
    combine(low, std::span<const T>(received));
    rounds.push_back({low, high});
    held = low;
  }
  for (int distance = size() / 2; distance > 0; distance /= 2) {
    const auto [mine, theirs] = rounds.back();
    rounds.pop_back();
    exchange(rank() ^ distance, std::as_bytes(mine), std::as_writable_bytes(theirs));
  }
}

template <typename T, class Combine>
void Collectives::all_reduce(std::span<T> data, Combine combine) {
  const std::size_t most = std::max<std::size_t>(piece_bytes_ / sizeof(T), 1);
  while (!data.empty()) {
    const std::span<T> piece = data.first(std::min(most, data.size()));
    if (piece.size_bytes() <= kSmallBytes) {
      double_up(piece, combine);
    } else {
      halve_and_double(piece, combine);
    }
    data = data.subspan(piece.size());
  }
}

template <typename T, class Combine>
void Collectives::all_reduce(const std::vector<std::span<T>>& arrays, Combine combine) {
  const std::size_t most = std::max<std::size_t>(piece_bytes_ / sizeof(T), 1);
  std::vector<std::span<T>> together;
  std::size_t count = 0;
  const auto reduce_together = [&] {
    const std::span<T> packed = scratch<T>(kPacked, count);
    T* at = packed.data();
    for (const auto part : together) {
      copy(at, part.data(), part.size());
      at += part.size();
    }
    all_reduce(packed, combine);
    const T* from = packed.data();
    for (const auto part : together) {
      copy(part.data(), from, part.size());
      from += part.size();
    }
    together.clear();
    count = 0;
  };
  for (const std::span<T> array : arrays) {
    if (array.size() >= most) {
      all_reduce(array, combine);
      continue;
    }
    if (count + array.size() > most) reduce_together();
    together.push_back(array);
    count += array.size();
  }
  reduce_together();
}

}  // namespace steelyard::comm
